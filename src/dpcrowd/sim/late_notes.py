"""Why a simulation with learned shares takes long: changing links that do not connect all servers (`docs/shares.md`).

Where all records arrive in their own slot, all receivers have the same ones and share their filters. In a slot in which
the graph falls apart they do not, and each part needs filters of its own until the records have arrived.
"""

from __future__ import annotations

from dpcrowd.network.costs import components
from dpcrowd.schemes.relay import Relay
from dpcrowd.sim.config import SimulationConfig
from dpcrowd.sim.topology import Networks

__all__ = ["late_notes"]

_SLOTS = 32  # that are looked at
_OFTEN = 0.25
"""Part of these slots in which some servers do not hear all others, from which on it is said."""
_FEWEST_SERVERS = 10  # fewer are fast anyway


def late_notes(config: SimulationConfig) -> list[str]:
    """Return a remark if learned shares take long because the links of many slots do not connect all servers."""
    slow = [
        entrant.label
        for entrant in config.entrants
        if isinstance(entrant.scheme, Relay) and entrant.scheme.rounds is None and entrant.scheme.max_hops != 1
    ]
    if not slow or config.share_width == 0.0 or not config.network.dynamic or config.servers < _FEWEST_SERVERS:
        return []
    networks = Networks(config.network, config.seed, [0], None, "numpy", config.model.growth)
    slots = range(min(_SLOTS, config.data.slots))
    apart = sum(int(components(networks.at(slot).graph).max()) > 0 for slot in slots) / len(slots)
    if apart < _OFTEN:
        return []
    return [
        f"{', '.join(slow)}: in {apart:.0%} of the slots the links do not connect all servers, so that records are "
        "late and servers that learn shares need filters of their own, which takes many times as long. Links that stay "
        "(--static) or a higher --density avoid it."
    ]
