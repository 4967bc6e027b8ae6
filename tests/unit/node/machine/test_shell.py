"""What the machine makes of its surroundings: revisions, links, keys and clocks, and of instructions that fail."""

from __future__ import annotations

import pytest

from dpcrowd.node.machine import instructions as do
from dpcrowd.node.machine import stimuli as on
from dpcrowd.node.slots import SECOND
from node_support import body_of
from node_support_lone import COUNTS, Lone, beat

# ------------------------------------------------------------------------------------------------------- revisions


def test_a_slot_is_linked_counted_and_sealed_in_this_order() -> None:
    """Counted before the links are there, its message would find nobody."""
    node = Lone((1,))
    node.end(3)
    kinds = [type(told) for told in node.told]
    assert kinds[:3] == [do.Link, do.CountSlot, do.StoreSample]
    assert node.machine.exchanging == 3


def test_a_revision_that_cannot_be_declared_is_tried_again_with_the_next_slot() -> None:
    """A full disk must not end the node, nor may it go on under a promise that is not on the ledger."""
    node = Lone((1,))
    node.live([3])
    node.follow(4, digest=bytes(16))
    node.disk.full, node.disk.refuses = True, (do.TakeOver,)
    node.take(do.Link)
    node.end(4)
    assert [(told.slot, told.why) for told in node.take(do.NotSampled)] == [(4, "revision")]
    assert [(report.event, report.grave) for report in node.reports] == [("revision", True)]
    assert node.machine.view.digest == node.view.digest
    assert body_of(node.outbox[-1].payload).digest == node.view.digest, "neighbours are told something all the same"
    node.disk.full = False
    node.end(5)
    assert node.machine.view.digest == bytes(16)
    assert 5 in node.disk.samples
    assert node.events == ["revision", "revision"]


def test_the_exchange_that_is_open_ends_when_a_revision_takes_over() -> None:
    """Its messages are of the old one, and would be fused with other regions."""
    node = Lone((1, 2))
    node.seal(3)
    node.hear(1, beat(1, 3))
    node.follow(4, digest=bytes(16))
    node.end(4)
    assert [release.slot for release in node.published] == [3]
    assert node.machine.exchanging == 4


def test_a_revision_does_not_come_before_its_slot() -> None:
    """Neighbours have the old one until then."""
    node = Lone((1,))
    node.follow(5, digest=bytes(16))
    node.end(4)
    assert node.machine.view.digest == node.view.digest
    assert node.machine.following == (2, 5)


# ----------------------------------------------------------------------------------------------------------- links


def test_a_timed_link_changes_after_the_exchange_and_before_the_next_seal() -> None:
    """A neighbour of the next slot that is linked with its seal only does not hear its message."""
    node = Lone(lambda slot: frozenset({1} if slot < 4 else {2}))
    node.end(3)
    node.told.clear()
    node.pass_deadline(3)
    assert node.take(do.Link) == [do.Link(4)]
    node.end(4)
    node.told.clear()
    node.pass_deadline(4)
    assert node.take(do.Link) == []


def test_a_link_that_ends_for_good_is_ended_too() -> None:
    """Nobody is expected in the slot after it; without a deadline the session would stay open."""
    node = Lone(lambda slot: frozenset({1} if slot == 5 else ()))
    node.end(4)
    assert node.deadlines == {4: node.view.ends(4)}
    node.told.clear()
    node.pass_deadline(4)
    assert node.take(do.Link) == [do.Link(5)]


def test_who_came_up_over_links_that_are_closed_is_not_there() -> None:
    """Told after the links were opened anew, it would look connected for good."""
    node = Lone((1, 2))
    node.give(on.LinksOpened(0, ("server-1", "server-2"), 1))
    node.give(on.NeighbourUp(0, "server-1", 1))
    assert (node.machine.linked, node.machine.present) == ({"server-1", "server-2"}, {"server-1"})
    node.give(on.LinksClosed(1))
    assert (node.machine.linked, node.machine.present) == (frozenset(), set())
    node.give(on.LinksOpened(1, ("server-1",), 2))
    node.give(on.NeighbourUp(2, "server-1", 1))
    assert node.machine.present == set()
    node.give(on.NeighbourUp(3, "server-1", 2))
    assert node.machine.present == {"server-1"}
    node.give(on.NeighbourDown(4, "server-1", 2))
    assert node.machine.present == set()


@pytest.mark.parametrize("anew", [False, True])
def test_links_that_have_expired_are_those_of_the_next_slot(anew: bool) -> None:
    """Those of the slot that is in exchange may be others."""
    node = Lone((1,))
    node.seal(3)
    node.give(on.LinksExpired(node.view.seals(3) + 1, anew))
    assert node.take(do.Link) == [do.Link(4, anew)]


# ------------------------------------------------------------------------------------------------------------- keys


def other_sign(*parts: bytes) -> bytes:
    return bytes(64)


def test_a_renewed_key_waits_for_the_end_of_the_exchange() -> None:
    """Links are made anew with it, and the messages of the slot that is open would be lost."""
    node = Lone((1, 2))
    node.give(on.LinksOpened(0, ("server-1", "server-2")))
    node.seal(3)
    node.told.clear()
    node.give(on.KeyRenewed(node.view.seals(3) + 1, other_sign, 9))
    assert node.take(do.Link) == []
    assert node.machine.view.expires == 0
    node.hear(1, beat(1, 3))
    node.hear(2, beat(2, 3))
    assert node.machine.view.expires == 0, "a neighbour may still send again what was lost"
    node.pass_deadline(3)
    assert node.take(do.Link) == [do.Link(4, anew=True, rest=True)]
    assert (node.machine.view.expires, node.machine.view.sign) == (9, other_sign)


def test_a_renewed_key_does_not_wait_for_a_slot_by_another_clock() -> None:
    """Its deadline comes when that slot really does, in an hour perhaps."""
    node = Lone((1,))
    node.give(on.LinksOpened(0, ("server-1",)))
    node.seal(90)
    node.give(on.KeyRenewed(node.view.seals(90) + 1, other_sign, 9))
    node.give(on.ClockAccepted(node.view.clock.opens(8) + SECOND // 2))
    assert node.machine.view.expires == 9


# -------------------------------------------------------------------------------------------------- clock and storage


def test_a_step_of_the_clock_is_booked_and_told_if_something_waits_for_it() -> None:
    """Nothing more may be paid before the ledger knows; and an operator has to know why nothing happens."""
    node = Lone(())
    node.live([90])
    node.told.clear()
    node.give(on.ClockSet(node.view.clock.opens(8), -82 * SECOND))
    assert node.take(do.BookClockStep) == [do.BookClockStep(node.view.clock.opens(90), -82 * SECOND)]
    assert node.machine.went_back == (node.view.clock.opens(8), 82 * SECOND)
    assert [(report.event, report.grave) for report in node.reports] == [("clock", True)]
    node.give(on.ClockSet(node.view.clock.opens(91), 83 * SECOND))
    assert node.machine.went_back is None
    assert len(node.reports) == 1


def test_a_payment_that_was_on_the_disk_after_all_counts() -> None:
    """Its commit was said to have failed. The next sample has a higher number than the machine thinks, and neighbours
    that remember that would expose a loss which is none."""
    node = Lone((1,))
    node.live([0, 1])
    assert node.machine.trust.counter == 2
    node.machine.handle(on.SampleStored(node.view.seals(1), 3))
    assert node.machine.trust.counter == 3
    node.hear(1, beat(1, 2, echo=3, ago=1), node.view.seals(2) - 1)
    node.end(2)
    assert node.machine.trust.lost_at is None
    assert node.machine.trust.counter == 4


def test_a_clock_that_could_not_be_accepted_changes_nothing() -> None:
    """Begun again in memory alone, a crash would find a later state, and slots would be told by two runs."""
    node = Lone((1,))
    node.live([0, 1])
    node.seal(90, COUNTS)
    before = node.machine.server.save()
    node.disk.full, node.disk.refuses = True, (do.StoreReturn,)
    node.give(on.ClockAccepted(node.view.clock.opens(8) + SECOND // 2))
    assert node.machine.exchanging == 90
    assert node.machine.server.save() == before
    assert "clock-accepted" not in node.events
    node.disk.full = False
    node.give(on.ClockAccepted(node.view.clock.opens(8) + SECOND // 2))
    assert node.machine.exchanging is None
    assert node.machine.server.slot == 7
    assert node.take(do.Answer) == [do.Answer("slots begin again.")]
