"""A disk that is full, and crashes at any moment: no price that is not on disk is ever paid with a message."""

from __future__ import annotations

from typing import Any

import pytest

from dpcrowd.node.machine import instructions as do
from dpcrowd.node.machine import stimuli as on
from dpcrowd.node.slots import SECOND
from node_support import WRITING, Crashed, body_of
from node_support_lone import Lone, beat, sample
from schemes_support import bits

both_neighbours = pytest.mark.parametrize("links", [(1, 2), (1,), ()], ids=["two", "one", "none"])


def unsampled(links: Any, *, early: bool) -> Lone:
    """The same node, which has no counts in slot 4: what a thrown away draw must look like."""
    node = Lone(links)
    node.live(range(4))
    if early:
        speak_early(node, links)
    node.seal(4, None)
    return node


def speak_early(node: Lone, links: Any) -> None:
    for number in links:
        node.hear(number, sample(number, 4, 30.0 * number), node.view.seals(4) - 5)


# --------------------------------------------------------------------------------------------- StoreSample fails


@pytest.mark.parametrize("refuses", [(do.StoreSample,), WRITING], ids=["the sample", "everything"])
@pytest.mark.parametrize("early", [False, True], ids=["in time", "early"])
@both_neighbours
def test_a_draw_that_cannot_be_paid_is_thrown_away(links: Any, early: bool, refuses: Any) -> None:
    """Failure table, disk full: stops sampling; estimates, messages and counter are those of a node that never drew.

    Early messages are the hard case: the slot was already fused, with the draw, in the same answer.
    """
    node = Lone(links)
    node.live(range(4))
    if early:
        speak_early(node, links)
    sent, counter = len(node.outbox), node.machine.trust.counter
    node.disk.full, node.disk.refuses = True, refuses
    node.seal(4)
    assert node.noise.drawn == [0, 1, 2, 3, 4], "it did draw"
    assert sorted(node.disk.samples) == [0, 1, 2, 3]
    assert node.machine.trust.counter == counter == node.disk.counter
    for message in node.outbox[sent:]:
        assert body_of(message.payload).records == (), "and said nothing of it"
        assert body_of(message.payload).counter == counter
    assert len(node.outbox) == sent + bool(links)
    plain = unsampled(links, early=early)
    assert node.machine.exchanging == plain.machine.exchanging
    for player in (node, plain):
        for number in () if early else links:
            player.hear(number, sample(number, 4, 30.0 * number))
    assert [release.slot for release in node.published] == list(range(5))
    assert not node.published[4].sampled
    assert node.published[4].nano == 0
    assert bits(node.published[4].estimate) == bits(plain.published[4].estimate)
    assert bits(node.published[4].variance) == bits(plain.published[4].variance)
    assert "storage-failed" in node.events
    if refuses == (do.StoreSample,):
        assert do.ForgetCheckIns(4) in node.take(do.ForgetCheckIns), "raw check-ins do not outlive the slot"
    assert node.machine.server.save() == plain.machine.server.save()


def test_the_thrown_away_draw_is_not_sent_to_a_neighbour_that_comes_up() -> None:
    """The message that is kept for them must be the heartbeat."""
    node = Lone()
    node.disk.full = True
    node.seal(0)
    node.give(on.NeighbourUp(node.view.seals(0) + 9, "server-1"))
    assert [body_of(message.payload).records for message in node.outbox] == [(), ()]


def test_no_sample_until_the_disk_is_mended() -> None:
    """It cannot pay: it does not even draw; once mended it goes on with the budget it has."""
    node = Lone()
    node.disk.full = True
    node.live(range(3))
    assert node.noise.drawn == [0]
    node.disk.full = False
    node.live([3])
    assert node.noise.drawn == [0]
    node.give(on.StorageRecovered(node.view.seals(3)))
    node.live([4])
    assert node.noise.drawn == [0, 4]
    assert node.disk.counter == 1
    assert len(node.published) == 5, "releases were told all the time"


# ------------------------------------------------------------------------------------ something else fails first


@pytest.mark.parametrize("heard", [(), (1,)], ids=["silent", "one spoke"])
def test_a_failure_before_the_payment_stops_the_payment(heard: tuple[int, ...]) -> None:
    """The timer was late: the answer to a seal begins with the release of the slot before, and that cannot be stored.

    So the sample behind it is not stored either. Kept in memory it would be sent to the next neighbour that comes up,
    and published, without ever having been paid for.
    """
    node = Lone()
    node.live([0])
    node.seal(1)
    for number in heard:
        node.hear(number, sample(number, 1))
    node.disk.full = True
    node.seal(2, late=SECOND)
    assert [release.slot for release in node.published] == [0, 1], "what could not be kept is told all the same"
    assert sorted(node.disk.samples) == [0, 1]
    assert node.machine.trust.counter == 2
    node.give(on.NeighbourUp(node.view.seals(2) + 9, "server-1"))
    assert [body_of(message.payload).records for message in node.outbox[-2:]] == [(), ()]
    node.pass_deadline(2)
    assert not node.published[2].sampled
    assert node.machine.server.open_sample() is None


@pytest.mark.parametrize("fails", WRITING, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("early", [False, True], ids=["in time", "early"])
@both_neighbours
def test_whatever_cannot_be_written_the_slot_goes_on(links: Any, early: bool, fails: type) -> None:
    """Told to the neighbours, with a deadline, fused and published: a full disk is no reason to fall silent."""
    node = Lone(links)
    node.live(range(4))
    if early:
        speak_early(node, links)
    node.told.clear()
    node.disk.full, node.disk.refuses = True, (fails,)
    node.seal(4)
    told = [type(instruction) for instruction in node.told]
    assert told.count(do.Send) == bool(links)
    assert told.count(do.ScheduleDeadline) == bool(links)
    for number in () if early else links:
        node.hear(number, sample(number, 4))
    assert [release.slot for release in node.published] == list(range(5))
    assert node.machine.exchanging is None


def test_a_release_that_cannot_be_stored_is_published_once() -> None:
    """It could not be kept, but it can be told; and the sample before it stays paid."""
    node = Lone()
    node.seal(0)
    node.disk.full = True
    node.hear(1, sample(1, 0))
    node.hear(2, beat(2, 0))
    assert [release.slot for release in node.published] == [0]
    assert sorted(node.disk.samples) == [0]
    assert node.machine.trust.counter == 1
    assert node.events == ["storage-failed"]


# -------------------------------------------------------------------------------------------------------- crashes


def test_a_crash_before_the_commit_has_spent_nothing_and_told_nothing() -> None:
    """Failure table, first line: at restart the slot has no sample."""
    node = Lone()
    node.live([0])
    node.outbox.clear()
    node.crash_in = 0
    with pytest.raises(Crashed):
        node.seal(1)
    assert node.outbox == []
    node.restart(node.view.seals(1) + 1, vouched=True)
    assert node.outbox == []
    assert sorted(node.disk.samples) == [0]
    assert node.machine.server.slot == 0
    assert node.machine.trust.counter == 1


@pytest.mark.parametrize("done", [1, 2, 3], ids=["stored", "sent", "scheduled"])
def test_a_crash_after_the_commit_sends_the_same_values_again(done: int) -> None:
    """Failure table, second line: never draws again; before and after it was sent the first time."""
    node, whole = Lone(), Lone()
    for player in (node, whole):
        player.live([0])
        player.outbox.clear()
    node.crash_in = done
    with pytest.raises(Crashed):
        node.live([1])
    node.restart(node.view.seals(1) + 1)
    whole.seal(1)
    assert node.noise.drawn == [0, 1]
    assert [message.payload for message in node.outbox] == [message.payload for message in whole.outbox]
    assert node.deadlines == {1: node.view.ends(1)}
    for player in (node, whole):
        player.hear(1, sample(1, 1))
        player.pass_deadline(1)
    assert bits(node.published[-1].estimate) == bits(whole.published[-1].estimate)


@both_neighbours
def test_after_its_deadline_a_resumed_slot_is_only_fused(links: Any) -> None:
    """Nobody waits for it any more: nothing is sent, the own values are fused, the release is stored."""
    node = Lone(links)
    node.live([0])
    node.crash_in = 1
    with pytest.raises(Crashed):
        node.seal(1)
    assert sorted(node.disk.samples) == [0, 1]
    node.restart(node.view.ends(1) + 5 * SECOND)
    assert node.outbox == []
    assert node.machine.exchanging is None
    assert node.published[-1].slot == 1
    assert node.published[-1].sampled
    assert node.disk.releases.keys() == {0, 1}


def test_a_crash_in_the_middle_of_a_failure_is_no_way_around_the_ledger() -> None:
    """Full disk and crash together: the new run has neither the draw nor a reason to say anything."""
    for done in range(4):
        node = Lone()
        node.live([0])
        node.outbox.clear()
        node.disk.full = True
        node.crash_in = done
        with pytest.raises(Crashed):
            node.live([1])
        assert all(body_of(message.payload).records == () for message in node.outbox)
        node.disk.full = False
        node.restart(node.view.seals(1) + 9, vouched=True)
        assert node.outbox == []
        assert node.machine.server.slot == 0


def test_a_crash_before_the_release_forgets_who_spoke_but_not_the_sample() -> None:
    """Neighbours are asked again by coming up; the own sample comes from the disk."""
    node = Lone()
    node.seal(0)
    node.hear(1, sample(1, 0))
    node.restart(node.view.seals(0) + 99)
    assert node.machine.exchanging == 0
    node.hear(1, sample(1, 0))
    node.hear(2, beat(2, 0))
    assert node.published[-1].slot == 0
    assert node.noise.drawn == [0]
