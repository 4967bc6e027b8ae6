"""What a live node tells of its network."""

from __future__ import annotations

from collections import Counter

from dpcrowd.node.live.status import network_status
from node_support_config import changed, network_of, tables


def test_slot_and_grace_are_those_of_the_network() -> None:
    """A feed that does not know the grace holds lines until they are late."""
    network = network_of(changed(tables(), "network.grace", "250ms"))
    status = network_status(network, "a", set(), {}, Counter(), {}, network.clock().opens(3))
    assert (status.slot, status.slot_seconds, status.grace_seconds) == (3, 60.0, 0.25)
