"""Shares and turnover of a simulation, from what a user asks for: how shares are drawn, numbers, or a file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpcrowd.arrays import Shares
from dpcrowd.errors import BadInput, counted, unknown_name
from dpcrowd.filters import Observation
from dpcrowd.privacy import Users
from dpcrowd.schemes.base import USUAL_TURNOVER
from dpcrowd.sim.data import DataSet
from dpcrowd.sim.data.people import checked_turnover
from dpcrowd.sim.data.share_file import is_share_file, read_shares
from dpcrowd.sim.data.shares import EQUAL, KINDS, checked_shares
from dpcrowd.sim.network_choice import is_graph_file, network_spec
from dpcrowd.sim.network_file import is_network_file, read_network_file

__all__ = ["SharesLike", "is_changing", "resolved_shares", "sized_shares", "turnover_of"]

SharesLike = str | os.PathLike[str] | Sequence[float] | Sequence[Sequence[float]] | Shares


def sized_shares(
    shares: SharesLike | None,
    graph: str | os.PathLike[str],
    servers: int | None,
    data: DataSet,
    *,
    selected: bool,
) -> tuple[SharesLike | None, int | None]:
    """Return the shares, and the number of servers: that of a file, list or array of shares, unless it is stated."""
    if is_share_file(shares):
        return _shares_of_file(shares, graph, servers, data, selected=selected)
    if servers is None and not is_graph_file(graph) and isinstance(shares, list | tuple | np.ndarray):
        servers = _number_of_servers(shares, data)
    return shares, servers


def _number_of_servers(shares: Any, data: DataSet) -> int | None:
    """Return how many servers have these shares; None: their shape does not tell, and they are checked later."""
    try:
        shape = np.shape(shares)
    except ValueError:  # rows of different lengths
        return None
    if len(shape) == 1 and shape[0] > 0:
        return int(shape[0])
    if len(shape) == 3 and shape[0] == 1:
        return int(shape[1])
    if len(shape) != 2:
        return None
    by_region, by_slot = shape[1] == len(data.regions), shape[0] == data.slots
    return None if by_region == by_slot else int(shape[0] if by_region else shape[1])


def _shares_of_file(
    path: str | os.PathLike[str], graph: str | os.PathLike[str], servers: int | None, data: DataSet, *, selected: bool
) -> tuple[Shares, int | None]:
    """Return the shares of a CSV file, and the number of servers, which is that of the file unless it is stated."""
    file = read_shares(path)
    if servers is None and not is_graph_file(graph):
        servers = len(file.servers)
    names = read_network_file(graph).names if is_network_file(graph) else None
    number = network_spec(graph, None, None, None).servers if servers is None else servers
    if names is None and number != len(file.servers):
        source = "--servers (servers=)" if servers is not None else f"'{os.fspath(graph)}'"
        raise BadInput(
            f"'{file.path}' has shares of {counted(len(file.servers), 'server')}, but the simulation has {number}, by "
            f"{source}; give a share for each of {number} servers, or simulate {len(file.servers)}."
        )
    return file.shares(names, data.regions, selected=selected), servers


def resolved_shares(shares: Any, servers: int, data: DataSet, *, is_default: bool = False) -> str | Shares:
    """Return how shares are drawn, or explicit shares, checked.

    is_default  whether nobody has given the number of servers
    """
    if isinstance(shares, str) and shares == EQUAL:
        return np.full(servers, 1.0 / servers)
    if not isinstance(shares, str):
        return _explicit_shares(shares, servers, data, is_default=is_default)
    if shares not in KINDS:
        problem = unknown_name("kind of shares", shares, (EQUAL, *KINDS))
        raise BadInput(
            f"{problem} One number per server, or a CSV file (*.csv) with the columns server,share, is allowed, too."
        )
    return shares


def _explicit_shares(shares: Any, servers: int, data: DataSet, *, is_default: bool) -> Shares:
    """Return explicit shares, checked."""
    checked = checked_shares(shares, servers, data.slots, len(data.regions), is_default=is_default)
    if checked.shape == (servers, len(data.regions)) == (data.slots, servers):
        raise BadInput(
            f"shares of shape {checked.shape} may be one per slot and server, or one per server and region; give "
            "those of regions as a CSV file, or as an array (1, servers, regions)."
        )
    return checked


def is_changing(shares: str | Shares) -> bool:
    """Whether the shares are others in every slot."""
    return shares == "per-slot" if isinstance(shares, str) else shares.ndim == 2


def turnover_of(
    turnover: float | None,
    users: Users,
    observation: Observation,
    shares: str | Shares,
    default_of: str | None = None,
) -> float:
    """Return the turnover of a simulation; 1 where users roam, or where counts do not come from people who stay.

    default_of  the data set whose default the observation is; None: a user has chosen it
    """
    changing = is_changing(shares)
    if turnover is not None:
        checked_turnover(turnover)
        if turnover < 1.0 and changing:
            raise BadInput(f"turnover={turnover:g} is for constant shares, but these change in every slot.")
        if turnover < 1.0 and users == "roaming":
            raise BadInput(f"turnover={turnover:g} is for pinned users; roaming users choose a server in every slot.")
        if turnover < 1.0 and observation == "paper":
            raise BadInput(
                f"turnover={turnover:g} is for binomial counts; the paper's observation"
                f"{'' if default_of is None else f', the default of {default_of!r},'} has no people. Give "
                "observation=binomial, or leave the turnover out."
            )
    if users == "roaming" or observation == "paper" or changing:
        return 1.0
    return USUAL_TURNOVER if turnover is None else float(turnover)
