"""Records of slots before a revision, after a restart: they are checked by the revision that was valid then."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dpcrowd.node.machine import Revision
from dpcrowd.node.machine import stimuli as on
from node_support import Disk, Network, Node
from node_support_relay import RING, counts_of, facts_of, make_network
from schemes_support import bits

LAG, FIRST, AWAY = 5, 10, 2
FACTS = facts_of(lag=LAG)
COUNTS = counts_of(FACTS, 30)


def run(network: Network, slots: range) -> None:
    for slot in slots:
        network.slot(slot, COUNTS[slot])


def revise(network: Network) -> None:
    """The next revision takes over with its first slot: its digest is another one, and everything else is the same."""
    for node in network.nodes:
        view = replace(node.view, digest=bytes(16), revision=2, first_slot=FIRST)
        node.earlier, node.view = (node.view,), view
        node.counts = COUNTS[FIRST, view.me]
        node.give(on.RevisionTaken(view.seals(FIRST), FIRST, Revision(view, node.make_server), node.account()))
    for node in network.nodes:
        node.leave()
    network.deliver()
    for node in network.nodes:
        node.give(on.DeadlinePassed(node.view.ends(FIRST), FIRST))
    network.deliver()


def cut_off_over_a_revision() -> Network:
    """Server 2 and the others lack each other's records of the last two slots before the revision, and of its first."""
    network = make_network(FACTS)
    run(network, range(FIRST - 2))
    network.drop = lambda sender, receiver, payload: AWAY in (sender, receiver)
    run(network, range(FIRST - 2, FIRST))
    revise(network)
    network.drop = lambda sender, receiver, payload: False
    return network


def restart(network: Network, number: int, slot: int) -> Node:
    """A node is killed and starts again after the exchange of a slot; its links come up."""
    node = network.nodes[number]
    node.restart(node.view.ends(slot) + 1, vouched=True)
    for other in RING[number]:
        for me, you in ((other, number), (number, other)):
            one = network.nodes[me]
            one.give(on.NeighbourUp(node.view.ends(slot) + 2, one.view.names[you]))
    network.deliver()
    return node


def different(network: Network, slots: range) -> list[int]:
    """Slots in which not all servers have released the same bits."""
    released = [{one.slot: bits(one.estimate) + bits(one.variance) for one in node.published} for node in network.nodes]
    return [slot for slot in slots if len({one[slot] for one in released}) > 1]


def events(node: Node) -> list[str]:
    return [report.event for report in node.reports]


def test_who_restarts_after_a_revision_has_the_records_of_before() -> None:
    """Two nodes restart; the records that reach them afterwards were signed under the revision before.

    Without that revision they would count all of them as late, and release other estimates than the three that run on.
    """
    network = cut_off_over_a_revision()
    for number in (AWAY, 0):
        node = restart(network, number, FIRST)
        assert "revision-unknown" not in events(node)
        assert node.machine.records is not None
        assert any(one.slot < FIRST for one in node.machine.records.held.contents())
    run(network, range(FIRST + 1, FIRST + 8))
    assert different(network, range(FIRST - 2, FIRST + 8)) == [FIRST - 2, FIRST - 1, FIRST]
    assert not any(node.machine.server.joined for node in network.nodes)


@pytest.mark.slow
def test_who_has_no_copy_of_the_revision_before_asks_when_its_records_are_final() -> None:
    """A folder of an earlier version may have none: the node says so, and has the others' bits L slots later."""
    network = cut_off_over_a_revision()
    network.nodes[AWAY].earlier = ()
    node = restart(network, AWAY, FIRST)
    assert events(node).count("revision-unknown") == 1
    run(network, range(FIRST + 1, FIRST + LAG + 6))
    joined = node.machine.server.joined
    assert joined is not None
    assert joined.slot == FIRST + LAG - 1
    assert different(network, range(FIRST + 1, FIRST + LAG)), "what it could not check is lost until then"
    assert not different(network, range(FIRST + LAG, FIRST + LAG + 6))


@pytest.mark.slow
def test_a_server_that_comes_with_a_revision_has_the_bits_of_the_others_after_the_lag() -> None:
    """It can check no record of before: it begins with a neighbour's word at once, and takes the complete one later."""
    network = make_network(FACTS)
    run(network, range(FIRST))
    revise(network)
    node = network.nodes[AWAY]
    node.disk, node.earlier = Disk(), ()
    node.published.clear()
    restart(network, AWAY, FIRST)
    run(network, range(FIRST + 1, FIRST + LAG + 6))
    assert events(node).count("joined") == 2
    first = next(one for one in node.published if one.slot == FIRST + 1)
    assert np.isfinite(first.variance).all(), "it has an estimate at once"
    assert not different(network, range(FIRST + LAG, FIRST + LAG + 6))
