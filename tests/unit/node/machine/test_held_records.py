"""Which records a machine keeps, and which of them its disk has."""

from __future__ import annotations

from dpcrowd.node.machine import stimuli as on
from node_support_records import FACTS, SLOTS, records_of, run
from node_support_relay import make_network
from schemes_support import bits


def test_a_release_that_cannot_be_stored_loses_no_record() -> None:
    """What was not stored is stored with the next release; a draw that was not paid leaves no signed record behind."""
    network = make_network(FACTS)
    run(network, range(6))
    network.nodes[1].disk.full = True
    run(network, range(6, 8))
    node = network.nodes[1]
    node.disk.full = False
    node.give(on.StorageRecovered(node.view.ends(7)))
    run(network, range(8, 10))
    held = records_of(node).held.records
    assert {(key.slot, key.origin) for key in held} == set(node.disk.records)
    assert not [key for key in held if key.origin == "server-1" and key.slot not in node.disk.samples]
    assert len({bits(one.published[-1].estimate) for one in network.nodes}) == 1


def test_only_the_last_slots_are_kept() -> None:
    """A node must not grow for ever."""
    network = make_network(FACTS)
    run(network, range(SLOTS))
    for node in network.nodes:
        assert min(slot for slot, _ in node.disk.records) > SLOTS - 1 - FACTS.lag
        assert {(key.slot, key.origin) for key in records_of(node).held.records} == set(node.disk.records)
