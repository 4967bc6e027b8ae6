"""Links that do not connect all servers: what that does to a simulation (`docs/shares.md`).

Where links change, records arrive when some later slot connects two servers. If all of them arrive in their own slot,
all receivers have the same ones and share their filters; in a slot in which the graph falls apart they do not, and each
part needs filters of its own until the records have arrived, which takes long if shares are learned.

Where links stay, servers of different parts never hear of one another, whatever the scheme is.
"""

from __future__ import annotations

from collections.abc import Iterator

from dpcrowd.network.costs import components
from dpcrowd.schemes.relay import Relay
from dpcrowd.sim.config import SimulationConfig
from dpcrowd.sim.topology import Networks

__all__ = ["link_notes"]

_SLOTS = 32  # that are looked at
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
    return list(_late(config) if config.network.dynamic else _apart(config))


def _late(config: SimulationConfig) -> Iterator[str]:
    """Yield a remark if learned shares take long because the links of many slots do not connect all servers."""
    slow = [
        entrant.label
        for entrant in config.entrants
        if isinstance(entrant.scheme, Relay) and entrant.scheme.rounds is None and entrant.scheme.max_hops != 1
    ]
    if not slow or config.share_width == 0.0 or config.servers < _FEWEST_SERVERS:
        return
    slots = range(min(_SLOTS, config.data.slots))
    networks = _networks(config, 0)
    apart = sum(int(components(networks.at(slot).graph).max()) > 0 for slot in slots) / len(slots)
    if apart >= _OFTEN:
        yield (
            f"{', '.join(slow)}: in {apart:.0%} of the slots the links do not connect all servers, so that records are "
            "late and servers that learn shares need filters of their own, which takes many times as long. A higher "
            "--density avoids it."
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
