"""When a message leaves: at a moment that does not depend on how many people were counted, before they are forgotten.

What takes time in proportion to the check-ins of a slot, forgetting them, comes after its message and its release.
"""

from __future__ import annotations

import numpy as np
import pytest

from dpcrowd.node.machine import instructions as do
from dpcrowd.node.machine import stimuli as on
from node_support import Disk
from node_support_lone import COUNTS, Lone, beat, sample

OFFSET = 25_000_000


def patient(*links: int, disk: Disk | None = None) -> Lone:
    """A node whose messages leave 25 ms after the seal."""
    return Lone(links, disk=disk, send_offset_ns=OFFSET)


def kinds(node: Lone) -> list[type]:
    return [type(told) for told in node.told]


@pytest.mark.parametrize("counts", [COUNTS, np.array([0, 0]), None], ids=["people", "nobody", "not there"])
def test_every_message_has_the_same_moment(counts: np.ndarray | None) -> None:
    """A sample, an empty one and a heartbeat: whichever left earlier would tell which it is, and of how many."""
    node = patient(1, 2)
    node.seal(3, counts)
    assert node.outbox == []
    (message,) = node.waiting
    assert message.at_ns == node.view.seals(3) + OFFSET == node.view.sends(3)
    assert message.to == ("server-1", "server-2")


def test_what_was_counted_is_paid_for_while_the_message_waits() -> None:
    """Storing takes a while; the moment of the message has to come after it, not the other way round."""
    node = patient(1)
    node.seal(3)
    assert kinds(node) == [do.StoreSample, do.Send, do.ScheduleDeadline]


def test_others_are_heard_while_the_message_waits_and_fused_after_it() -> None:
    """Clocks differ: a neighbour's message may come before the own one leaves.

    A release right after it would tell how long storing took. And check-ins are forgotten last, since that takes the
    longer the more there are.
    """
    node = patient(1, 2)
    node.seal(3)
    for number in (1, 2):
        node.hear(number, sample(number, 3))
    assert node.published == []
    node.told.clear()
    node.leave()
    assert kinds(node) == [do.StoreRelease, do.Publish, do.ForgetCheckIns]
    assert node.told[0].heard == ("server-1", "server-2")  # type: ignore[union-attr]


def test_who_speaks_later_is_waited_for() -> None:
    """The deadline counts from the seal, and a clock may be behind by more than the offset."""
    node = patient(1, 2)
    node.seal(3)
    node.leave()
    node.hear(1, beat(1, 3))
    assert node.published == []
    node.told.clear()
    node.hear(2, beat(2, 3), node.view.ends(3) - 1)
    assert kinds(node) == [do.StoreRelease, do.Publish, do.ForgetCheckIns]


def test_a_message_before_the_own_seal_still_waits_for_it() -> None:
    """A neighbour whose clock is ahead by more than the offset: heard with the seal, fused after the own message."""
    node = patient(1)
    node.seal(3)
    node.leave()
    node.pass_deadline(3)
    node.hear(1, sample(1, 4), node.view.seals(4) - 5)
    node.seal(4)
    assert len(node.published) == 1
    node.leave()
    assert [release.slot for release in node.published] == [3, 4]


def test_a_node_without_neighbours_releases_at_the_same_moment() -> None:
    """It sends nothing, but whoever reads its estimates has a clock as well."""
    node = patient()
    node.seal(3)
    assert node.published == []
    assert [(message.to, message.at_ns) for message in node.waiting] == [((), node.view.sends(3))]
    assert node.deadlines == {3: node.view.ends(3)}, "an exchange that waits for anything has an end"
    node.leave()
    assert len(node.published) == 1


def test_who_comes_up_gets_no_message_before_its_time() -> None:
    """It gets it with the others; after that, and while the exchange is open, at once."""
    node = patient(1, 2)
    node.seal(3)
    node.give(on.NeighbourUp(node.view.seals(3) + 1, "server-2"))
    assert (len(node.waiting), node.outbox) == (1, [])
    node.leave()
    node.give(on.NeighbourUp(node.view.sends(3) + 1, "server-2"))
    assert [(message.to, message.at_ns) for message in node.outbox[1:]] == [(("server-2",), None)]


def test_a_deadline_that_comes_first_does_not_hold_the_release_back() -> None:
    """Storing took longer than the whole exchange. Nothing is forgotten before the message has left."""
    node = patient(1)
    node.seal(3)
    node.told.clear()
    node.pass_deadline(3)
    assert kinds(node) == [do.StoreRelease, do.Publish]
    node.leave(node.view.ends(3) + 1)
    assert node.told[-1] == do.ForgetCheckIns(3)
    node.leave()
    assert kinds(node).count(do.ForgetCheckIns) == 1


def test_the_next_seal_does_not_wait_until_the_last_slot_is_forgotten() -> None:
    """A timer was late: the last slot is fused with the seal of the next, and both are forgotten after its message."""
    node = patient(1)
    node.seal(3)
    node.leave()
    node.told.clear()
    node.seal(4)
    assert kinds(node) == [do.StoreRelease, do.Publish, do.StoreSample, do.Send, do.ScheduleDeadline]
    node.leave()
    node.pass_deadline(4)
    assert node.told[-1] == do.ForgetCheckIns(4), "which includes those before it"


def test_after_a_crash_the_stored_message_leaves_at_its_moment_or_at_once() -> None:
    """A restart within the offset must not make it earlier; one after it has nothing to wait for."""
    node = patient(1)
    node.seal(3)
    first = node.waiting[0].payload
    node.restart(node.view.seals(3) + OFFSET // 2)
    assert [(message.payload, message.at_ns) for message in node.waiting] == [(first, node.view.sends(3))]
    node.restart(node.view.seals(3) + 2 * OFFSET)
    assert [(message.payload, message.at_ns) for message in node.outbox] == [(first, None)]
    node.hear(1, sample(1, 3), node.view.seals(3) + 3 * OFFSET)
    assert len(node.published) == 1


def test_a_draw_that_could_not_be_paid_leaves_as_a_heartbeat_at_the_same_moment() -> None:
    """A full disk is no reason to leave earlier, and the check-ins are forgotten all the same."""
    node = patient(1)
    node.disk.full, node.disk.refuses = True, (do.StoreSample,)
    node.seal(3)
    (message,) = node.waiting
    assert message.at_ns == node.view.sends(3)
    node.leave()
    node.pass_deadline(3)
    assert node.told[-1] == do.ForgetCheckIns(3)


def test_a_message_of_another_slot_that_left_changes_nothing() -> None:
    """A timer may be late by a whole slot."""
    node = patient(1)
    node.seal(3)
    node.hear(1, beat(1, 3))
    node.give(on.MessageSent(node.view.sends(3), 2))
    assert node.published == []
