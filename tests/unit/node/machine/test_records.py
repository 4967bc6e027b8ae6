"""Records in the state machine: five machines in a ring that pass them on release what the simulator computes."""

from __future__ import annotations

import pytest

from dpcrowd.schemes.base import Release
from node_support import Network
from node_support_relay import RING, counts_of, facts_of, make_network, simulate
from schemes_support import bits

SLOTS = 24


def assert_released(network: Network, batch: list[Release]) -> None:
    for node in network.nodes:
        assert [release.slot for release in node.published] == [release.slot for release in batch]
        for mine, theirs in zip(node.published, batch, strict=True):
            number = node.view.me
            assert bits(mine.estimate) == bits(theirs.estimate[number]), (mine.slot, number)
            assert bits(mine.variance) == bits(theirs.variance[number]), (mine.slot, number)
            assert mine.nano == int(theirs.charge[number].max())


@pytest.mark.parametrize("send_offset_ns", [0, 40])
@pytest.mark.parametrize("reach", [1, 2, "all"])
def test_a_ring_releases_what_the_simulator_computes(reach: object, send_offset_ns: int) -> None:
    """If this broke, no simulated figure would say anything about a network that runs."""
    facts = facts_of(reach=reach)
    counts = counts_of(facts, SLOTS)
    network = make_network(facts, RING, send_offset_ns=send_offset_ns)
    for slot in range(SLOTS):
        network.slot(slot, counts[slot])
    assert_released(network, simulate(facts, counts))
    assert not any(node.refused for node in network.nodes)
