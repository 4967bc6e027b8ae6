"""Whom a machine waits for, and which server should have sampled and has not, by the public schedule."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcrowd.node.machine import stimuli as on
from dpcrowd.node.machine.revision import RecordTerms
from dpcrowd.node.machine.schedules import Schedules
from dpcrowd.sampling.schedule import samples_due
from node_support_records import COUNTS, FACTS, records_of, run
from node_support_relay import RING, make_network
from node_support_relay import terms_of as terms_of_ring

LAG = 4


def terms_of(samples: int, length: int, *, moves: bool = True, offset: int = 0, ends: int | None = None) -> RecordTerms:
    """Two servers; the second has this offset."""
    return RecordTerms(samples, length, LAG, None, (0, offset), moves, -1e9, 1e9, ends)


def is_due(slot: int, terms: RecordTerms) -> bool:
    return bool(samples_due(slot, terms.samples, terms.length, np.array(terms.offsets[1])))


def play(terms: RecordTerms, up: list[bool]) -> list[tuple[int | None, int | None]]:
    """Let the second server be up or down, slot by slot; what is overdue, and what really is, after each."""
    schedules, shift, missed = Schedules(terms, 0), 0, None
    heard, seen = False, []
    for slot, is_up in enumerate(up):
        if is_due(slot - shift, terms):
            if is_up:
                schedules.hear(1, slot)
                missed, heard = None, True
            else:
                missed = slot if missed is None else missed
                shift += terms.moves
        seen.append((schedules.overdue(1, 0, slot), missed if heard else None))
    return seen


@settings(max_examples=60)
@given(st.integers(1, 5), st.integers(1, 4), st.integers(0, 11), st.lists(st.booleans(), max_size=60), st.booleans())
def test_what_is_overdue_is_the_first_sample_that_was_missed(
    interval: int, samples: int, offset: int, up: list[bool], moves: bool
) -> None:
    """With the schedule before it moved, a server that is back would be called missing again and again."""
    length = interval * samples
    terms = terms_of(samples, length, moves=moves, offset=offset % length)
    start = [True] * (2 * interval)  # its schedule is known
    seen = play(terms, start + up)[len(start) :]
    assert [shown for shown, _ in seen] == [real for _, real in seen]


@settings(max_examples=60)
@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 11), st.lists(st.booleans(), max_size=40))
def test_a_server_that_is_there_is_never_missing(samples: int, length: int, offset: int, before: list[bool]) -> None:
    """An alarm about a server that samples as it should is the end of alarms; however its schedule has moved."""
    samples = min(samples, length)
    terms = terms_of(samples, length, offset=offset % length)
    up = before + [True] * (4 * length)
    for slot, (shown, _) in enumerate(play(terms, up)):
        if slot >= len(before) + length:
            assert shown is None or shown > slot - 2, "it may be early by a slot where intervals differ"


def test_a_server_that_never_spoke_is_missing_after_an_interval() -> None:
    """It may be down since before this node began; how far its schedule had moved by then is not known."""
    schedules = Schedules(terms_of(2, 10, offset=3), 0)
    assert [schedules.overdue(1, 100, now) for now in (100, 103, 104, 120)] == [None, None, 104, 104]
    lockstep = Schedules(terms_of(2, 10, moves=False), 0)
    first = next(slot for slot in range(101, 110) if is_due(slot, lockstep.terms))
    assert [lockstep.overdue(1, 101, now) for now in (first - 1, first, first + 30)] == [None, first, first]


@pytest.mark.parametrize("moves", [True, False])
def test_nothing_is_due_after_the_horizon(moves: bool) -> None:
    """The budget is spent then: all servers would be missing for ever."""
    schedules = Schedules(terms_of(4, 20, moves=moves, ends=20), 0)
    assert schedules.overdue(1, 0, 19) is not None
    for slot in range(20):
        if is_due(slot, schedules.terms):
            schedules.hear(1, slot)
    assert schedules.overdue(1, 0, 500) is None
    assert Schedules(terms_of(4, 20, moves=moves, ends=20), 0).overdue(1, 30, 500) is None


# ------------------------------------------------------------------------------------------------------ in a network


def test_a_slot_is_released_when_all_records_are_there() -> None:
    """A node that waited for the deadline in every slot would be late for no reason; one that did not wait, wrong."""
    network = make_network(FACTS)
    run(network, range(6))
    for node in network.nodes:
        node.give(on.SlotSealed(node.view.seals(6), 6, COUNTS[6, node.view.me]))
    node = network.nodes[0]
    due = {origin for origin in range(5) if FACTS.due(6, origin)}
    assert due - {0, 1, 4}, "somebody samples who is not a neighbour"
    for near in (1, 4):
        (message,) = [one for one in network.nodes[near].outbox if one.kind != "forward"]
        node.give(on.MessageArrived(node.view.seals(6) + 9, f"server-{near}", message.payload))
    assert node.machine.exchanging == 6, "both neighbours have spoken, but a record is still to come"
    network.deliver()
    assert node.published[-1].slot == 6
    assert all(one.machine.exchanging is None for one in network.nodes)


def test_who_has_missed_its_sample_is_not_waited_for_until_it_is_heard_again() -> None:
    """A server that is down must cost the others one deadline, not one in every slot."""
    schedules = Schedules(terms_of_ring(FACTS), me=1)
    first, second = (slot for slot in range(8) if FACTS.due(slot, 0) and slot < 6)
    assert 0 in schedules.expected(first)
    schedules.miss(0)
    assert 0 not in schedules.expected(second)
    schedules.hear(0, second + 1)
    third = next(slot for slot in range(second + 2, 20) if 0 in schedules.expected(slot))
    assert third - (second + 1) in (2, 3), "its schedule has moved by a slot"


def test_a_network_waits_once_for_a_server_that_is_down() -> None:
    """Its neighbours wait for its heartbeat until the deadline; all others must not wait for its records."""
    links = {**RING, 0: frozenset({1}), 4: frozenset({3})}  # a line: 0, 1, 2, 3, 4
    network = make_network(FACTS, links)
    run(network, range(6))
    network.down.add(0)
    run(network, range(6, 12))
    assert records_of(network.nodes[3]).waiting.schedules.missing == {0}
    for slot in range(12, 16):
        for node in network._up():
            node.give(on.SlotSealed(node.view.seals(slot), slot, COUNTS[slot, node.view.me]))
        network.deliver()
        assert network.nodes[3].published[-1].slot == slot, "released before its deadline"
        for node in network._up():
            node.give(on.DeadlinePassed(node.view.ends(slot), slot))
