"""What machines that pass records on show: records and messages, servers that are missing or broken, smoothed slots."""

from __future__ import annotations

from collections import Counter
from copy import deepcopy
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from dpcrowd.node.machine import instructions as do
from dpcrowd.node.machine import stimuli as on
from dpcrowd.privacy import Guarantee
from node_support import Network, Node
from node_support_records import records_of
from node_support_relay import RING, counts_of, facts_of, make_network, simulate
from schemes_support import bits

SLOTS = 24
# With the variances that noise and counts of these tests really have: honest servers are not suspected.
FACTS = replace(facts_of(), guarantee=Guarantee.window(8, 0.3), observation="binomial")
COUNTS = counts_of(FACTS, 60)


def play(network: Network, slots: range, counts: NDArray[np.int64] = COUNTS) -> Network:
    for slot in slots:
        network.slot(slot, counts[slot])
    return network


@cache
def _played(slots: int) -> Network:
    return play(make_network(FACTS, RING), range(slots))


def played(slots: int) -> Network:
    """A network of one's own after some slots; most tests begin with the same ones, which are run once and copied."""
    return deepcopy(_played(slots))


def stores(node: Node) -> list[do.StoreRelease]:
    return [one for one in node.told if isinstance(one, do.StoreRelease)]


@pytest.mark.slow
def test_every_record_is_counted_once_by_who_brought_it_and_whose_it_is() -> None:
    """If copies that come the other way round the ring counted as well, numbers of servers could not be compared."""
    network = played(SLOTS)
    made = {node.view.names[node.view.me]: len(node.disk.samples) for node in network.nodes}
    for node in network.nodes:
        records, me = records_of(node), node.view.name
        arrivals, forwarded_to = records.arrivals, records.forwarding.forwarded_to
        by_origin: Counter[str] = Counter()
        for (sender, origin), count in arrivals.received_by.items():
            assert node.view.number(sender) in RING[node.view.me]
            by_origin[origin] += count
        assert by_origin == {name: count for name, count in made.items() if name != me}
        assert arrivals.received_by.total() == by_origin.total()
        assert [*arrivals.late_by, *arrivals.refused, *records.suspects, *arrivals.equivocators] == []
        assert [records.waiting.overdue(name) for name in node.view.names] == [None] * 5
        passed_on = [one for one in node.told if isinstance(one, do.Send) and one.kind == "forward"]
        assert forwarded_to.total() >= len(passed_on) > 0
        assert set(forwarded_to) <= {node.view.names[number] for number in RING[node.view.me]}


def test_what_is_not_sent_to_a_neighbour_that_is_away_is_not_counted() -> None:
    """Otherwise a node would seem to forward records to a neighbour that was killed hours ago."""
    network = played(8)
    node, name = network.nodes[0], "server-1"
    node.give(on.NeighbourDown(node.view.ends(7), name))
    network.down = {1}
    before = records_of(node).forwarding.forwarded_to[name]
    play(network, range(8, 14))
    assert records_of(node).forwarding.forwarded_to[name] == before
    assert not [
        one
        for one in node.told
        if isinstance(one, do.Send) and one.kind == "forward" and one.slot > 7 and name in one.to
    ]
    node.give(on.NeighbourUp(node.view.ends(13) - 1, name))
    kept = [one for one in records_of(node).held.contents() if one.kind == "record" and one.origin != name]
    assert records_of(node).forwarding.forwarded_to[name] == before + len(kept), "when it is back it gets everything"


def test_heartbeats_are_those_that_a_simulation_predicts() -> None:
    """If heartbeats counted as data, a server would seem to sample all the time."""
    network = played(SLOTS)
    sent: Counter[str] = Counter()
    for node in network.nodes:
        for one in node.told:
            if isinstance(one, do.Send):
                sent[one.kind] += len(one.to)
    sampled = sum(int(release.speaks.sum()) for release in simulate(FACTS, COUNTS[:SLOTS]))
    assert sent["data"] == 2 * sampled
    assert sent["heartbeat"] == 2 * (5 * SLOTS - sampled)
    assert sent["forward"] > 0


@pytest.mark.slow
def test_a_server_that_is_down_is_overdue_then_missing_then_back() -> None:
    """The schedule is public: nobody has to wait for a neighbour of the server to say that it is down."""
    network = play(make_network(FACTS, RING), range(10))
    network.down = {3}
    shown = []
    for slot in range(10, 10 + 3 + 2 * FACTS.lag):
        play(network, range(slot, slot + 1))
        records = records_of(network.nodes[0])
        overdue = records.waiting.overdue("server-3")
        shown.append((overdue, overdue is not None and records.waiting.is_final(overdue)))
        assert all(records.waiting.overdue(name) is None for name in ("server-1", "server-2", "server-4"))
    first = next(overdue for overdue, _ in shown if overdue is not None)
    assert FACTS.due(first, 3), "the first sample that it has missed, by the public schedule"
    expected = [(first if slot >= first else None, slot >= first + FACTS.lag) for slot in range(10, 10 + len(shown))]
    assert shown == expected
    network.down = set()
    play(network, range(10 + len(shown), 10 + len(shown) + 4))  # it goes on in its own phase, within an interval
    assert records_of(network.nodes[0]).waiting.overdue("server-3") is None


@pytest.mark.parametrize("samples", [1, 4])
def test_a_revision_makes_no_server_missing(samples: int) -> None:
    """Records are kept for `lag` slots, and servers that sample less often would all be missing at every revision.

    A revision with more samples does not make them late before it, either.
    """
    rare = replace(FACTS, samples=1, lag=2)
    network = play(make_network(rare, RING), range(20))
    records = records_of(network.nodes[0])
    view = records.revisions.current
    assert view.records is not None
    names = view.names[1:]
    assert {records.waiting.overdue(name) for name in names} == {None}
    assert len({one.origin for one in records.held.contents()}) < 5, (
        "the last records of some servers are not kept any more"
    )
    terms = replace(view.records, samples=samples)
    records.take_over(replace(view, revision=2, first_slot=20, records=terms), network.nodes[0].machine.server)
    assert {records.waiting.overdue(name) for name in names} == {None}
    for slot in range(20, 20 + 16):
        records.waiting.end_slot(slot)
    first = [records.waiting.overdue(name) for name in names]
    assert all(slot is not None and slot >= 20 for slot in first), "nobody has sampled since: all of them are overdue"


@pytest.mark.slow
def test_a_broken_origin_is_named_once_with_the_slot() -> None:
    """Its records count less by themselves; its operator learns of it only if somebody is told."""
    broken = counts_of(FACTS, 60)
    broken[12:, 3] *= 4
    network = play(make_network(FACTS, RING), range(55), broken)
    for node in network.nodes:  # the broken server, too
        suspects = records_of(node).suspects
        assert suspects.keys() == {"server-3"}
        assert 12 + FACTS.lag <= suspects["server-3"] < 55
        (report,) = [one for one in node.reports if one.event == "suspect"]
        assert "server-3" in report.text
        assert str(suspects["server-3"]) in report.text
        assert "its share in network.toml, or that of a region, may not be what it counts" in report.text


def test_smoothed_slots_are_stored_with_every_release() -> None:
    """In the same transaction; all servers have all records here, so they store the same bits."""
    network = played(SLOTS)
    history: list[dict[int, bytes]] = []
    for node in network.nodes:
        mine: dict[int, bytes] = {}
        for one in stores(node):
            assert one.smoothed is not None
            smoothed = one.smoothed.slots()
            slots = smoothed.slots.tolist()
            assert slots == list(range(max(0, one.release.slot - FACTS.lag + 1), one.release.slot + 1))
            assert bits(smoothed.estimate[-1]) == bits(one.release.estimate)
            mine |= {slot: row.tobytes() for slot, row in zip(slots, smoothed.estimate, strict=True)}
        history.append(mine)
    assert all(mine == history[0] for mine in history)
    released = {one.release.slot: one.release.estimate.tobytes() for one in stores(network.nodes[0])}
    assert [slot for slot in range(SLOTS - 1) if history[0][slot] == released[slot]] == [], "all but the last changed"


@pytest.mark.slow
@pytest.mark.parametrize("first", [7, 12])
def test_slots_before_a_revision_are_final(first: int) -> None:
    """They may have had other regions, and their values would stand under wrong names."""
    network = make_network(FACTS, RING)
    for node in network.nodes:
        view = node.machine.view
        object.__setattr__(view, "first_slot", first)
    play(network, range(SLOTS))
    for one in stores(network.nodes[1]):
        assert one.smoothed is not None
        last = one.release.slot
        assert one.smoothed.slots().slots.tolist() == list(range(max(first, last - FACTS.lag + 1), last + 1))


@pytest.mark.slow
def test_the_history_begins_with_the_first_slot_that_there_is() -> None:
    """A network that starts long after its epoch showed slots before its start, empty or as later ones suggest."""
    late = counts_of(FACTS, 112)
    network = play(make_network(FACTS, RING), range(100, 112), late)
    node = network.nodes[1]
    for one in stores(node):
        assert one.smoothed is not None
        last = one.release.slot
        assert one.smoothed.slots().slots.tolist() == list(range(max(100, last - FACTS.lag + 1), last + 1))
    again = FACTS.server(1)
    again.restore(node.disk.state or b"")
    assert bits(again.smoothed().estimate) == bits(node.machine.server.smoothed().estimate)
    node.restart(node.view.ends(111) + 1, vouched=True)
    play(network, range(112, 113), counts_of(FACTS, 113))
    smoothed = stores(node)[-1].smoothed
    assert smoothed is not None
    assert smoothed.slots().slots.tolist() == list(range(113 - FACTS.lag, 113)), "a restart changes nothing"


def test_what_is_smoothed_is_what_was_known_at_the_release() -> None:
    """It is computed in another thread, while the machine already goes on with the next slot."""
    network = play(make_network(FACTS, RING), range(9))
    release = stores(network.nodes[0])[-1]
    expected = network.nodes[0].machine.server.smoothed()
    play(network, range(9, 12))
    assert release.smoothed is not None
    assert bits(release.smoothed.slots().estimate) == bits(expected.estimate)
    assert bits(release.smoothed.slots().variance) == bits(expected.variance)
