"""Slots that begin again after a clock that was ahead: who vouches then, and what is void."""

from __future__ import annotations

import pytest

from dpcrowd.node.machine import stimuli as on
from dpcrowd.node.machine.trust import Trust
from dpcrowd.node.slots import SECOND
from node_support import body_of
from node_support_lone import COUNTS, Lone, beat, sample, seal_and_hear

AHEAD = 50


def accept_in(node: Lone, slot: int) -> None:
    """The operator accepts the clock, by which this slot is open and the one before it is over."""
    node.give(on.ClockAccepted(node.view.clock.opens(slot) + SECOND // 2))


def ahead_and_back(*, sampled: bool = False) -> Lone:
    """Samples in slots 0 to 4, then three slots of a clock that is ahead, and at slot 8 the clock is accepted."""
    node = Lone()
    node.live(range(5))
    if not sampled:
        node.give(on.TimeLost(node.view.clock.opens(AHEAD + 5)))
    node.live(range(AHEAD + 5, AHEAD + 8))
    accept_in(node, 8)
    node.outbox.clear()
    return node


def test_a_neighbour_that_remembers_from_before_vouches() -> None:
    """The clock was wrong for a moment; whoever was there before remembers what it heard then."""
    node = ahead_and_back()
    assert not seal_and_hear(node, 8, (1, beat(1, 8, echo=5, ago=4)))
    assert seal_and_hear(node, 9)


def test_what_was_sealed_before_the_clock_was_accepted_does_not_vouch() -> None:
    """It was written before; a run that is lost may have told more meanwhile."""
    node = ahead_and_back()
    node.hear(1, beat(1, 7, echo=5, ago=3), node.view.clock.opens(8) + SECOND // 2)
    assert not seal_and_hear(node, 8)
    assert not seal_and_hear(node, 9)


def test_an_echo_of_slots_that_are_told_again_does_not_vouch() -> None:
    """Numbers up to those of the wrong clock lie before its last slot, and yet after it."""
    node = ahead_and_back(sampled=True)
    assert node.disk.counter == 8
    for slot in range(8, AHEAD + 20):
        said = beat(1, slot, echo=8, ago=slot - 8) if slot > 8 else beat(1, slot)
        seal_and_hear(node, slot, (1, said))
        assert node.disk.counter == 8, slot


def test_a_memory_of_the_clock_that_was_ahead_vouches() -> None:
    """Two that were wrong together remember each other's samples of slots that are still to come."""
    node = ahead_and_back(sampled=True)
    assert not seal_and_hear(node, 8, (1, beat(1, 8, echo=8, ago=8 - (AHEAD + 7))))
    assert seal_and_hear(node, 9)


def test_but_not_once_the_clock_was_set_ahead_again() -> None:
    """Then slots to come may be told by a run that nobody has vouched for."""
    trust = Trust(8, complete_until=57)
    trust.begin_again(4, 8, alone=False)
    assert (trust.complete_until, trust.complete_ahead, trust.since) == (4, 57, 8)
    trust.doubt(8, 30)
    trust.hear_echo("server-1", 30, (57, 8), None)
    assert not trust.vouched


def test_a_loss_that_was_shown_stays_shown() -> None:
    """Accepting a clock confirms nothing else."""
    trust = Trust(8, complete_until=57, shown_at=12)
    trust.begin_again(4, 8, alone=False)
    assert trust.lost_at == 12


def test_who_is_alone_needs_nobody() -> None:
    """A network of one server would never sample again."""
    trust = Trust(8, vouched=True, complete_until=57)
    trust.begin_again(4, 8, alone=True)
    assert trust.may_sample


def test_messages_for_slots_to_come_are_void() -> None:
    """Those that came early by the wrong clock would be taken for the real ones when their slot comes."""
    node = Lone()
    node.live(range(5))
    node.seal(AHEAD)
    node.hear(1, sample(1, AHEAD + 1, 10.0), node.view.seals(AHEAD) + 1)
    node.pass_deadline(AHEAD)
    accept_in(node, 8)
    assert node.machine.exchanging is None
    node.live(range(8, AHEAD + 1))
    node.refused.clear()
    node.seal(AHEAD + 1)
    node.hear(1, sample(1, AHEAD + 1, 20.0, counter=2))
    assert node.reasons == []


@pytest.mark.parametrize("number", [1, 2])
def test_proofs_are_sent_until_the_neighbour_is_heard_again(number: int) -> None:
    """What it said by the wrong clock is of a later slot, and would look as if it had spoken in the slot before."""
    node = Lone()
    node.seal(AHEAD, COUNTS)
    node.hear(number, sample(number, AHEAD))
    node.pass_deadline(AHEAD)
    accept_in(node, 8)
    node.outbox.clear()
    node.seal(8, None)
    assert number in body_of(node.outbox[-1].payload).proofs
