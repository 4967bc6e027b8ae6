"""A ledger that may be an old copy: no sample before a neighbour has said that nothing is lost."""

from __future__ import annotations

import pytest

from dpcrowd.errors import BadInput
from dpcrowd.node.machine import instructions as do
from dpcrowd.node.machine import stimuli as on
from dpcrowd.node.slots import SECOND
from node_support import Disk, body_of
from node_support_lone import COUNTS, Lone, beat, lived, restarted, sample, seal_and_hear

# --------------------------------------------------------------------------------------------------- a first start


def test_a_first_start_samples_once_a_neighbour_does_not_know_it() -> None:
    """An empty ledger and no neighbour that knows the node: nothing can be lost."""
    node = restarted(Disk(), 0)
    assert not seal_and_hear(node, 0)
    assert not seal_and_hear(node, 1, (1, beat(1, 1)))
    assert seal_and_hear(node, 2)


def test_a_loss_that_nobody_has_shown_cannot_be_confirmed() -> None:
    """A node that waits for its neighbours would be told that all is well, by whoever is impatient."""
    node = restarted(lived(5).disk, 5)
    assert not seal_and_hear(node, 5)
    with pytest.raises(BadInput, match="there is no loss to confirm"):
        node.give(on.LossConfirmed(node.view.seals(5)))
    assert not seal_and_hear(node, 6)


def test_a_loss_is_confirmed_in_the_middle_of_an_exchange_and_estimates_go_on() -> None:
    """A machine that began anew would drop the open slot, and with it what the neighbours have said in it."""
    node = restarted(lived(5).disk, 5)
    seal_and_hear(node, 5, (1, beat(1, 5, echo=9, ago=1, proven=True)))
    known = node.published[-1]
    node.seal(6)
    node.hear(1, sample(1, 6))
    node.give(on.LossConfirmed(node.view.seals(6) + 2))
    assert node.machine.exchanging == 6
    node.hear(2, beat(2, 6))
    (stored,) = [told for told in node.take(do.StoreRelease) if told.release.slot == 6]
    assert stored.heard == ("server-1", "server-2")
    assert (stored.release.variance < known.variance).all(), "what was known, and what was heard"
    assert seal_and_hear(node, 7)
    assert node.disk.counter == 10


def test_a_loss_that_could_not_be_booked_is_not_confirmed() -> None:
    """Sampled from without being on disk, the lost budget would be spent a second time after a crash."""
    node = restarted(lived(5).disk, 5)
    seal_and_hear(node, 5, (1, beat(1, 5, echo=9, proven=True)))
    node.disk.full, node.disk.refuses = True, (do.BookLoss,)
    node.give(on.LossConfirmed(node.view.seals(5)))
    assert not seal_and_hear(node, 6)
    assert (node.machine.trust.lost_at, node.disk.counter) == (9, 5)
    node.disk.full = False
    node.give(on.LossConfirmed(node.view.seals(6)))
    assert seal_and_hear(node, 7)


def test_an_emptied_folder_is_no_first_start() -> None:
    """Whoever deletes the data folder would get a new budget for the same window."""
    old = lived(5)
    node = restarted(Disk(), 5)
    assert not seal_and_hear(node, 5, (1, beat(1, 5, echo=old.disk.counter)))
    assert not seal_and_hear(node, 6, (2, beat(2, 6)), (1, beat(1, 6, echo=old.disk.counter, ago=2, proven=True)))
    assert node.events == ["ledger-rolled-back"]
    assert not seal_and_hear(node, 7, (1, beat(1, 7, echo=old.disk.counter, ago=3, proven=True)), (2, beat(2, 7)))
    assert not seal_and_hear(node, 8, (2, beat(2, 8)))
    assert not seal_and_hear(node, 9)
    assert node.events == ["ledger-rolled-back"], "said once"


def test_what_one_has_proven_others_need_not() -> None:
    """Two remember the same; the second one leaves before it could send its proof, and is no liar for that."""
    node = restarted(lived(3).disk, 5)
    seal_and_hear(node, 5, (1, beat(1, 5, echo=5)), (2, beat(2, 5, echo=5)))
    seal_and_hear(node, 6, (1, beat(1, 6, echo=5, ago=2, proven=True)))
    seal_and_hear(node, 7, (1, beat(1, 7, echo=5, ago=3, proven=True)), (2, beat(2, 7, echo=4)))
    seal_and_hear(node, 8)
    assert node.events == ["slots-missed", "ledger-rolled-back"]


# ------------------------------------------------------------------------------------------------------- a restart


def test_a_restart_samples_when_its_counter_is_echoed() -> None:
    """The whole ledger is there, and a neighbour says so."""
    node = restarted(lived(5).disk, 5)
    assert not seal_and_hear(node, 5, (1, beat(1, 5, echo=5)))
    assert seal_and_hear(node, 6)
    assert node.events == []


def test_a_neighbour_that_knows_nothing_does_not_vouch() -> None:
    """It may have lost its own memory; a ledger with samples needs somebody who remembers them."""
    node = restarted(lived(5).disk, 5)
    assert not seal_and_hear(node, 5, (1, beat(1, 5)), (2, beat(2, 5)))
    assert not seal_and_hear(node, 6, (1, beat(1, 6)))
    assert not seal_and_hear(node, 7, (2, beat(2, 7, echo=4, ago=4)))
    assert seal_and_hear(node, 8), "one that missed the last sample vouches: it never heard more"


@pytest.mark.parametrize(
    "payload",
    [
        beat(1, 5, echo=5, digest=bytes(16)),
        beat(1, 5, echo=5)[:-1] + b"\0",
        beat(3, 5, echo=5),
        beat(1, 3, echo=5),
        beat(1, 99, echo=5),
    ],
    ids=["other configuration", "forged", "stranger", "late", "far ahead"],
)
def test_a_refused_message_vouches_for_nothing(payload: bytes) -> None:
    """Otherwise anybody could make a rolled-back node sample."""
    node = restarted(lived(5).disk, 5)
    assert not seal_and_hear(node, 5, (1, payload))
    assert len(node.refused) == 1
    assert not seal_and_hear(node, 6)


# ----------------------------------------------------------------------------------------------------- an old copy


@pytest.mark.parametrize("age", [1, 2, 4])
def test_an_old_copy_is_exposed(age: int) -> None:
    """Failure table: refuses to sample until the operator confirms, and goes on without samples."""
    node = restarted(lived(5 - age).disk, 5)
    assert not seal_and_hear(node, 5, (1, beat(1, 5, echo=5, proven=True)))
    assert node.events == ["slots-missed", "ledger-rolled-back"]
    text = node.reports[-1].text
    assert "server-1 remembers 5 samples" in text
    assert "No sample until the loss is confirmed" in text
    assert not seal_and_hear(node, 6, (2, beat(2, 6, echo=5 - age)))
    assert node.noise.drawn == []
    assert len(node.published) == 2
    node.give(on.LossConfirmed(node.view.seals(6)))
    assert seal_and_hear(node, 7)
    assert node.disk.counter == 6, "it counts on from what the neighbours remember, or the next echo is a loss again"
    assert seal_and_hear(node, 8, (1, beat(1, 8, echo=6)))
    assert node.events.count("ledger-rolled-back") == 1


def test_what_was_written_before_the_loss_does_not_vouch() -> None:
    """A neighbour wrote its message of slot 4 before it heard ours, and sends it again when we come up.

    We sampled slot 4, told it, and were put back to a copy of before. An echo of 4 samples in a message of slot 4 is
    true and says nothing on slot 4 itself. Believed, the node samples again with a budget that is already spent; and
    with that sample its counter is as high as what the neighbours remember, so that nobody would ever find out.
    """
    copy = lived(4).disk
    node = Lone(disk=copy)
    node.restart(node.view.seals(4) + SECOND // 4)
    node.hear(1, beat(1, 4, echo=4), node.view.seals(4) + SECOND // 3)
    assert not node.machine.trust.may_sample
    assert not seal_and_hear(node, 4, (1, beat(1, 4, echo=4))), "the shell may still hold the check-ins of slot 4"
    assert not seal_and_hear(node, 5, (1, beat(1, 5, echo=5)))
    assert not seal_and_hear(node, 6, (1, beat(1, 6, echo=5, ago=2, proven=True)))
    assert "ledger-rolled-back" in node.events
    assert node.noise.drawn == []


def test_who_is_quick_to_vouch_does_not_silence_the_others() -> None:
    """A message that comes before our seal would vouch at once, and the copy sample before an honest one has spoken."""
    node = restarted(lived(3).disk, 5)
    node.hear(2, beat(2, 5, echo=3), node.view.seals(5) - 5)
    assert not seal_and_hear(node, 5, (1, beat(1, 5, echo=5)))
    assert not seal_and_hear(node, 6, (1, beat(1, 6, echo=5, ago=2, proven=True)), (2, beat(2, 6, echo=3)))
    assert "ledger-rolled-back" in node.events
    assert node.noise.drawn == []


def test_a_restart_in_the_exchange_is_vouched_for_in_it() -> None:
    """With slots of a day it must not cost the next day's sample."""
    crashed = Lone()
    crashed.live(range(4))
    crashed.seal(4)
    crashed.restart(crashed.view.seals(4) + SECOND // 4)
    crashed.hear(1, beat(1, 4, echo=4))
    crashed.pass_deadline(4)
    assert seal_and_hear(crashed, 5)


def test_a_loss_that_was_caught_up_with_is_still_found() -> None:
    """Vouched for by a neighbour that had missed it, the node samples; then one comes back that knows better.

    It remembers a fifth sample by slot 4; here the fifth was paid in slot 6. The counter alone would fit.
    """
    node = restarted(lived(4).disk, 5)
    assert not seal_and_hear(node, 5, (2, beat(2, 5, echo=4, ago=2)))
    assert seal_and_hear(node, 6)
    assert node.disk.counter == 5
    seal_and_hear(node, 7, (1, beat(1, 7, echo=5, ago=3, proven=True)))
    assert "ledger-rolled-back" in node.events
    assert not seal_and_hear(node, 8)


def test_honest_echoes_never_show_a_loss() -> None:
    """A neighbour that hears every message, some late: a false alarm would stop a healthy node until somebody comes."""
    node = Lone((1,))
    remembered = (0, 0)
    for slot in range(12):
        node.seal(slot, None if slot % 3 == 1 else COUNTS)
        said = body_of(node.outbox[-1].payload)
        first, counter = remembered
        node.hear(1, beat(1, slot, echo=counter, ago=slot - first))
        if slot % 4 != 2 and said.counter > counter:  # it missed some of them
            remembered = slot, said.counter
    assert node.events == []
    assert len(node.disk.samples) == 8


def test_an_operator_who_confirms_too_early_is_asked_again() -> None:
    """The first neighbour remembered 3, a second one remembers 5: that is another loss."""
    node = restarted(lived(2).disk, 5)
    seal_and_hear(node, 5, (1, beat(1, 5, echo=3, proven=True)))
    node.give(on.LossConfirmed(node.view.seals(5)))
    assert seal_and_hear(node, 6)
    seal_and_hear(node, 7, (2, beat(2, 7, echo=9, proven=True)))
    assert node.events.count("ledger-rolled-back") == 2
    assert not seal_and_hear(node, 8)
    node.give(on.LossConfirmed(node.view.seals(8)))
    assert seal_and_hear(node, 9, (2, beat(2, 9, echo=9, ago=5, proven=True)))
    assert node.events.count("ledger-rolled-back") == 2, "and once confirmed it is no loss any more"


def test_a_sample_that_was_not_paid_is_not_counted_against_the_neighbours() -> None:
    """After a full disk their memory must still fit: a false alarm would stop the node until somebody comes."""
    node = Lone((1,))
    for slot in range(4):
        seal_and_hear(node, slot, (1, beat(1, slot, echo=slot)))
    node.disk.full = True
    assert not seal_and_hear(node, 4, (1, beat(1, 4, echo=4, ago=1)))
    node.disk.full = False
    node.give(on.StorageRecovered(node.view.seals(4)))
    assert seal_and_hear(node, 5, (1, beat(1, 5, echo=4, ago=2)))
    seal_and_hear(node, 6, (1, beat(1, 6, echo=5, ago=1)))
    assert node.events == ["storage-failed", "storage-failed", "storage-mended"]


# ----------------------------------------------------------------------------------------------- neighbours' memory


def test_a_neighbours_counter_is_remembered_and_echoed_for_ever() -> None:
    """We are its memory: the highest that it ever said, over our own restarts too."""
    node = Lone()
    seal_and_hear(node, 0, (1, sample(1, 0, counter=7)), (2, beat(2, 0)))
    seal_and_hear(node, 1, (1, beat(1, 1, counter=3)), (2, beat(2, 1)))
    assert node.disk.heard == {"server-1": (0, 7), "server-2": (0, 0)}
    node.restart(node.view.seals(2) - 1, vouched=True)
    node.seal(2)
    assert body_of(node.outbox[-1].payload).heard == {1: (2, 7), 2: (2, 0)}


@pytest.mark.parametrize(
    "payload",
    [sample(1, 0, counter=8), sample(1, 9, counter=8), sample(1, 2, counter=8)],
    ids=["late", "far ahead", "the second of its slot"],
)
def test_what_cannot_be_used_is_remembered_all_the_same(payload: bytes) -> None:
    """It was sent, so it is spent; forgotten here, its sender could lose it and no neighbour would expose it.

    Far ahead is the clock that jumped: put right again, and the folder put back too, the slot would be drawn twice.
    """
    node = Lone()
    node.live([0, 1])
    node.seal(2)
    node.hear(1, beat(1, 2, counter=7))
    node.hear(1, payload)
    assert len(node.refused) == 1
    node.pass_deadline(2)
    assert node.disk.heard["server-1"][1] == 8


def test_what_comes_too_late_is_still_checked() -> None:
    """And its counter is echoed from the next slot on."""
    node = Lone()
    node.live([0, 1])
    node.hear(1, sample(1, 1, counter=8))
    assert [refused.reason for refused in node.refused] == ["late"]
    node.hear(1, beat(1, 0, counter=99)[:-1] + b"\0")
    assert [refused.reason for refused in node.refused] == ["late", "bad-signature"]
    node.seal(2)
    assert body_of(node.outbox[-1].payload).heard == {1: (1, 8)}
    assert node.disk.heard == {"server-1": (1, 8)}


def test_only_the_slots_neighbours_are_echoed() -> None:
    """Others need not know whom we talk to, and heartbeats stay small."""
    node = Lone(lambda slot: frozenset({1, 2} if slot == 0 else {2}))
    seal_and_hear(node, 0, (1, beat(1, 0, counter=7)), (2, beat(2, 0, counter=5)))
    node.seal(1)
    assert body_of(node.outbox[-1].payload).heard == {2: (1, 5)}


def test_a_counter_is_remembered_once() -> None:
    """Every memory is a write to the disk: not in every slot of a silent neighbour."""
    node = Lone((1,))
    for slot in range(5):
        seal_and_hear(node, slot, (1, beat(1, slot, counter=2)))
    assert [len(told.counters) for told in node.take(do.StoreRelease)] == [1, 0, 0, 0, 0]


def test_refused_messages_leave_no_memory() -> None:
    """An impostor could otherwise make us echo a counter that stops the honest server."""
    node = Lone()
    node.seal(0)
    node.hear(1, beat(1, 0, counter=99)[:-1] + b"\0")
    node.hear(2, beat(1, 0, counter=99))
    node.hear(1, beat(1, 0, counter=2**63))
    node.pass_deadline(0)
    assert node.disk.heard == {}
