"""Checks that refuse bad networks; each message is one line that names the servers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcrowd.errors import BadInput, counted

__all__ = [
    "check_bounds",
    "check_edges",
    "check_isolated",
    "check_latency",
    "check_runs",
    "check_servers",
    "check_size",
    "name_servers",
]

MOST_ENTRIES = 2**31 - 1
SHOWN = 5


def name_servers(servers: NDArray[Any]) -> str:
    """Return 'server 3', or 'servers 3, 7, 9, 12, 15 and 4 more'."""
    names = ", ".join(str(int(server)) for server in servers[:SHOWN])
    more = f" and {servers.size - SHOWN} more" if servers.size > SHOWN else ""
    return f"server{'s' if servers.size > 1 else ''} {names}{more}"


def check_servers(servers: int, least: int = 2) -> None:
    """Refuse anything but a whole number of servers, at least `least`."""
    if isinstance(servers, bool) or not isinstance(servers, (int, np.integer)) or servers < least:
        raise BadInput(
            f"a network of {counted(servers, 'server')} was asked for; allowed: a whole number of at least {least}."
        )


def check_size(servers: int, links: int) -> None:
    """Refuse networks that are too large: neighbour lists are indexed by 32-bit integers, which bounds their memory."""
    if 2 * links + servers > MOST_ENTRIES:
        raise BadInput(
            f"{servers} servers with {links} links need {2 * links + servers} entries; at most {MOST_ENTRIES} fit "
            "in one network: take fewer runs or slots at a time, or a lower density."
        )


def check_runs(servers: int, runs: int) -> int:
    """Return the number of servers of each run in a union of `runs` equal networks."""
    if runs < 1 or servers % runs:
        raise BadInput(f"a network of {servers} servers cannot be {runs} runs of equal size; give a divisor.")
    return servers // runs


def check_edges(servers: int, sources: NDArray[Any], targets: NDArray[Any]) -> None:
    """Refuse ends of links that are not two equally long lists of numbers of existing servers, or are one server."""
    if sources.ndim != 1 or sources.shape != targets.shape:
        raise BadInput(f"links have ends of shapes {sources.shape} and {targets.shape}; allowed: two equal lists.")
    if sources.size == 0:
        raise BadInput(f"no links are given for {servers} servers; every server needs at least one.")
    for ends in (sources, targets):
        if not np.issubdtype(ends.dtype, np.integer):
            raise BadInput(f"servers are given as {ends.dtype}; allowed: whole numbers from 0 to {servers - 1}.")
    unknown = np.unique(np.concatenate([ends[(ends < 0) | (ends >= servers)] for ends in (sources, targets)]))
    if unknown.size:
        raise BadInput(f"unknown {name_servers(unknown)} in a link; allowed: 0 to {servers - 1}.")
    loops = np.unique(sources[sources == targets])
    if loops.size:
        raise BadInput(f"a link from a server to itself at {name_servers(loops)}; leave such links out.")


def check_latency(latency_ms: NDArray[np.float32] | None, links: int) -> None:
    """Refuse anything but one positive, finite delay per link."""
    if latency_ms is None:
        return
    if latency_ms.shape != (links,):
        raise BadInput(f"latencies have shape {latency_ms.shape}; allowed: one for each of the {links} links.")
    wrong = latency_ms[~((latency_ms > 0) & np.isfinite(latency_ms))]
    if wrong.size:
        raise BadInput(f"a link has a latency of {float(wrong[0])} ms; allowed: finite and above 0.")


def check_isolated(degree: NDArray[Any]) -> None:
    """Refuse a network in which a server has no neighbour."""
    isolated = np.flatnonzero(degree == 0)
    if isolated.size:
        raise BadInput(f"no link at {name_servers(isolated)}; link every server to at least one other.")


def check_bounds(latency: tuple[float, float] | None) -> None:
    """Refuse bounds of link latencies that are not 0 < low <= high."""
    if latency is not None and not (0 < latency[0] <= latency[1] < np.inf):
        raise BadInput(f"link latency between {latency[0]} and {latency[1]} ms; allowed: 0 < low <= high, finite.")
