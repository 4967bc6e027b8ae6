"""Links that do not connect all servers: what that does to a simulation (`docs/shares.md`).

Where links change and records travel all hops in their own slot, a server passes each of them on in that slot alone. If
it connects all servers, all receivers have the same records and share their filters. If it does not, each part misses
the records of the others for good, and has filters of its own from then on: what was learned of shares lasts, so that
filters that have once differed never become the same again. The parts of all such slots divide the servers further and
further, at most into single ones, which takes long if shares are learned.

Where links stay, servers of different parts never hear of one another, whatever the scheme is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from dpcrowd.arrays import Ints
from dpcrowd.errors import counted
from dpcrowd.network.costs import components
from dpcrowd.schemes.relay import Relay
from dpcrowd.sim.config import SimulationConfig
from dpcrowd.sim.topology import Networks

__all__ = ["filters_needed", "link_notes", "slow_notes"]

_SLOTS = 32  # that are looked at
_MOST_SLOTS = 2000  # likewise, for the number of filters
_MANY = 10
"""Filters of the last slot from which on it is said that they take long."""
_RUNS = 16  # likewise
_OFTEN = 0.25
"""Part of these slots in which some servers do not hear all others, from which on it is said."""
_FEWEST_SERVERS = 10  # fewer are fast anyway
_REMEDIES = {
    "file": "Add links to the file.",
    "random": "A higher --density connects them; links that change (--dynamic) do, too, in time.",
}
_OTHER_REMEDY = "Take another --graph, or other options of it."


def link_notes(config: SimulationConfig) -> list[str]:
    """Return remarks on links that do not connect all servers."""
    return slow_notes(config) if config.network.dynamic else list(_apart(config))


def slow_notes(config: SimulationConfig) -> list[str]:
    """Return a remark if a simulation takes long since its links divide servers that learn shares.

    It follows from the graph alone, so it can be said beforehand.
    """
    return list(_divided(config)) if config.network.dynamic else []


def filters_needed(parts: Iterable[Ints]) -> int:
    """Return into how many groups servers are divided that were in the same part in every slot.

    parts  (N,) the part of each server, slot by slot

    >>> filters_needed([np.array([0, 0, 0, 1]), np.array([0, 1, 0, 0]), np.array([0, 0, 0, 0])])
    3
    """
    groups: Ints = np.zeros(1, dtype=np.int64)
    for part in parts:
        if part.any():
            groups = np.unique(groups * (int(part.max()) + 1) + part, return_inverse=True)[1]
    return int(groups.max()) + 1


def _divided(config: SimulationConfig) -> Iterator[str]:
    """Yield a remark if learned shares take long because the links of some slots do not connect all servers."""
    slow = [
        entrant.label
        for entrant in config.entrants
        if isinstance(entrant.scheme, Relay) and entrant.scheme.rounds is None and entrant.scheme.max_hops != 1
    ]
    if not slow or config.share_width == 0.0 or config.servers < _FEWEST_SERVERS:
        return
    networks = _networks(config, 0)
    parts = [
        components(networks.at(slot).graph).astype(np.int64) for slot in range(min(_MOST_SLOTS, config.data.slots))
    ]
    often = sum(bool(part.any()) for part in parts[:_SLOTS]) / min(_SLOTS, len(parts))
    filters = filters_needed(parts)
    if often >= _OFTEN or filters >= _MANY:
        apart = sum(bool(part.any()) for part in parts)
        looked = "the" if len(parts) == config.data.slots else "the first"
        yield (
            f"{', '.join(slow)}: in {apart} of {looked} {counted(len(parts), 'slot')} the links do not connect all "
            f"servers. Those that are apart miss records, and learn shares with filters of their own: up to {filters} "
            "after these slots, each of which takes as long as the one that all share elsewhere. A higher --density "
            "avoids it."
        )


def _apart(config: SimulationConfig) -> Iterator[str]:
    """Yield a remark if links that stay do not connect all servers in some runs."""
    hearing = [entrant.label for entrant in config.entrants if entrant.scheme.reach not in ("alone", "central")]
    runs = range(min(_RUNS, config.runs))
    parts = [1 + int(components(_networks(config, run).at(0).graph).max()) for run in runs] if hearing else []
    if any(number > 1 for number in parts):
        often = sum(number > 1 for number in parts)
        yield (
            f"{', '.join(hearing)}: the links stay, and in {often} of {len(runs)} runs they do not connect all servers "
            f"(up to {max(parts)} parts that never hear of one another), which costs accuracy and makes servers "
            f"disagree. {_REMEDIES.get(config.network.name, _OTHER_REMEDY)}"
        )


def _networks(config: SimulationConfig, run: int) -> Networks:
    return Networks(config.network, config.seed, [run], None, "numpy", config.model.growth)
