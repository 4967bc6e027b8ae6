"""Who can vouch for a ledger: a neighbour that remembers the node from when its ledger was known to be complete."""

from __future__ import annotations

import hashlib

import msgspec
import pytest

from dpcrowd.node.machine import instructions as do
from dpcrowd.node.machine import stimuli as on
from dpcrowd.node.slots import SECOND
from node_support import Disk, FreshNoise, Network, Node, body_of, fake_sign, make_view
from node_support_lone import COUNTS, REGIONS, Lone, beat, lived, make_server, restarted, sample, seal_and_hear


def forgetful(slot: int, first: int, counter: int) -> tuple[int, bytes]:
    """Server 1 has lost its memory, or is new: it echoes what it has heard since its slot `first`."""
    return 1, beat(1, slot, echo=counter, ago=slot - first) if slot > first else beat(1, slot)


# ---------------------------------------------------------------------------------------- an echo of the own words


def test_an_old_copy_is_not_vouched_for_by_an_echo_of_its_own_words() -> None:
    """The neighbour knows nothing of five samples that were lost; it has heard of three, from the copy itself.

    Believed, it would let the copy spend the budget of those five a second time, and nobody would ever find out.
    """
    node = restarted(lived(3).disk, 8)
    for slot in range(8, 16):
        assert not seal_and_hear(node, slot, forgetful(slot, 8, 3))
    assert node.noise.drawn == []


@pytest.mark.parametrize("from_copy", [False, True], ids=["restarted", "put back again"])
def test_nor_by_an_echo_of_a_run_that_waited_in_vain(from_copy: bool) -> None:
    """An operator who sees that it does not sample restarts it, or restores the same backup: it was "heard before"."""
    copy = lived(3).disk
    node = restarted(copy.copy(), 8)
    for slot in range(8, 11):
        seal_and_hear(node, slot, forgetful(slot, 8, 3))
    again = restarted(copy if from_copy else node.disk, 12)
    for slot in range(12, 18):
        assert not seal_and_hear(again, slot, forgetful(slot, 8, 3))


def test_a_neighbour_that_remembers_from_before_vouches_beside_one_that_has_forgotten() -> None:
    """Otherwise the test above would pass with a node that never samples again."""
    node = restarted(lived(3).disk, 8)
    for slot in range(8, 12):
        assert not seal_and_hear(node, slot, forgetful(slot, 8, 3))
    assert not seal_and_hear(node, 12, forgetful(12, 8, 3), (2, beat(2, 12, echo=3, ago=10)))
    assert seal_and_hear(node, 13)


def test_who_came_while_the_ledger_was_complete_vouches_after_the_next_restart() -> None:
    """A neighbour is new once; what it hears from then on it remembers as well as the old ones."""
    node = lived(3)
    for slot in range(3, 8):
        seal_and_hear(node, slot, (1, beat(1, slot)))
    counter, last = node.disk.counter, max(node.disk.samples)
    node.restart(node.view.clock.opens(9))
    assert not seal_and_hear(node, 9, (1, beat(1, 9, echo=counter, ago=9 - last)))
    assert seal_and_hear(node, 10)


def test_slots_without_a_sample_count_too() -> None:
    """The budget is spent for a hundred slots, and in one of them a neighbour comes that knows nothing from before."""
    node = lived(3)
    for slot in range(3, 9):
        node.seal(slot, None)
        node.pass_deadline(slot)
    node.restart(node.view.clock.opens(10))
    assert not seal_and_hear(node, 10, (1, beat(1, 10, echo=3, ago=10 - 8)))
    assert seal_and_hear(node, 11)


def test_one_who_has_waited_is_complete_from_the_exchange_on_in_which_it_was_vouched_for() -> None:
    """Server 1, which heard it first while it waited, may vouch after that."""
    node = restarted(lived(3).disk, 8)
    for slot in range(8, 11):
        seal_and_hear(node, slot, forgetful(slot, 8, 3))
    node.seal(11, None)
    node.hear(2, beat(2, 11, echo=3, ago=9))
    node.pass_deadline(11)
    node.restart(node.view.clock.opens(13))
    assert not seal_and_hear(node, 13, forgetful(13, 8, 3))
    assert seal_and_hear(node, 14)


def test_an_empty_ledger_begins_whatever_is_echoed_of_it() -> None:
    """A new network: the first messages are lost, and then all have heard of it, from itself."""
    node = restarted(Disk(), 0)
    for slot in range(3):
        assert not seal_and_hear(node, slot)
    assert not seal_and_hear(node, 3, forgetful(3, 0, 0))
    assert seal_and_hear(node, 4)


def test_a_restart_in_the_exchange_is_vouched_for_by_what_was_told_in_it() -> None:
    """All have heard the sample, fused, and say no more in this slot: its echo in the next one has to count.

    No slot after it was sealed yet, so nothing can be lost. Otherwise no echo would count until the operator comes.
    """
    node = Lone()
    node.live(range(4))
    node.seal(4)
    node.restart(node.view.seals(4) + SECOND // 4)
    node.pass_deadline(4)
    assert not seal_and_hear(node, 5, (1, beat(1, 5, echo=5, ago=1)))
    assert seal_and_hear(node, 6)


def test_after_time_was_lost_an_echo_of_later_words_does_not_vouch() -> None:
    """A snapshot of the process tells what it knew; whoever hears of it for the first time knows nothing else."""
    node = lived(3)
    node.give(on.TimeLost(node.view.clock.opens(8)))
    for slot in range(8, 12):
        assert not seal_and_hear(node, slot, forgetful(slot, 8, 3))
    assert not seal_and_hear(node, 12, (2, beat(2, 12, echo=3, ago=10)))
    assert seal_and_hear(node, 13)


def test_a_sample_that_was_told_just_before_time_was_lost_may_be_echoed() -> None:
    """It stood still inside the exchange. All neighbours remember that sample, and nobody anything older."""
    node = lived(3)
    node.seal(3)
    node.give(on.TimeLost(node.view.seals(3) + 1))
    node.pass_deadline(3)
    assert not seal_and_hear(node, 6, (1, beat(1, 6, echo=4, ago=3)))
    assert seal_and_hear(node, 7)


def test_if_nobody_remembers_the_operator_decides() -> None:
    """After the same two slots that others have to prove more; a node that nobody can help must not wait for ever."""
    node = restarted(lived(3).disk, 8)
    waiting = []
    for slot in range(8, 12):
        waiting.append(node.machine.trust.nobody_remembers)
        seal_and_hear(node, slot, forgetful(slot, 8, 3))
    assert waiting == [False, False, False, True]
    node.give(on.LossConfirmed(node.view.seals(11)))
    assert not node.machine.trust.nobody_remembers
    assert seal_and_hear(node, 12)


def test_if_nobody_speaks_the_operator_is_not_asked() -> None:
    """Neighbours that are down for a while will remember: it would cost a whole budget to decide without them."""
    node = restarted(lived(3).disk, 8)
    node.live(range(8, 20))
    assert not node.machine.trust.nobody_remembers
    assert node.machine.trust.lost_at is None


# ------------------------------------------------------------------------------------- how far a memory reaches back


def test_how_far_back_a_neighbour_is_remembered() -> None:
    """To its last sample that was heard, or the first word; not to a counter that rose because a sample was missed."""
    node = Lone((1,))
    seal_and_hear(node, 0, (1, beat(1, 0, counter=4)))
    seal_and_hear(node, 1, (1, beat(1, 1, counter=5)))
    assert node.disk.since == {"server-1": 0}
    seal_and_hear(node, 2, (1, sample(1, 2, counter=6)))
    seal_and_hear(node, 3, (1, beat(1, 3, counter=6)))
    assert node.disk.since == {"server-1": 2}
    node.seal(4)
    assert body_of(node.outbox[-1].payload).since == {}, "the echo says it: heartbeats stay small"
    node.hear(1, beat(1, 4, counter=8))
    assert node.disk.since == {"server-1": 2}
    node.restart(node.view.seals(5) - 1, vouched=True)
    node.seal(5)
    said = body_of(node.outbox[-1].payload)
    assert (said.heard, said.since) == ({1: (1, 8)}, {1: 3})


def pair() -> Network:
    """Two nodes that sample in every slot."""
    nodes = []
    for number in (0, 1):
        noise, other = FreshNoise(number), frozenset({1 - number})
        view = make_view(number, 2, lambda slot, other=other: other, regions=REGIONS)  # type: ignore[misc]
        nodes.append(Node(view, lambda number=number, noise=noise: make_server(noise, number=number)))  # type: ignore[misc]
    return Network(nodes)


@pytest.mark.parametrize("speaks_first", [0, 1])
def test_two_nodes_of_one_power_cut_vouch_for_each_other(speaks_first: int) -> None:
    """Each has told a sample that the other one has not stored; whoever is up first is heard by the other at once.

    The counter in that word is news to the other one. If it began its memory anew, neither could ever vouch.
    """
    network = pair()
    counts = [COUNTS, COUNTS]
    for slot in range(4):
        network.slot(slot, counts)  # type: ignore[arg-type]
    for node in network.nodes:
        node.give(on.SlotSealed(node.view.seals(4), 4, COUNTS))
        node.outbox.clear()
    first, second = network.nodes[speaks_first], network.nodes[1 - speaks_first]
    first.restart(first.view.clock.opens(7))
    first.give(on.SlotSealed(first.view.seals(7), 7, COUNTS))
    second.restart(second.view.seals(7) + 1)
    first.give(on.NeighbourUp(first.view.seals(7) + 2, second.view.names[second.view.me]))
    network.deliver()
    for slot in range(8, 11):
        network.slot(slot, counts)  # type: ignore[arg-type]
    assert [max(node.disk.samples) for node in network.nodes] == [10, 10]
    assert [node.reports[-1].event for node in network.nodes] == ["slots-missed"] * 2


def test_a_neighbour_of_version_0_1_vouches_by_the_slot_of_its_echo() -> None:
    """It does not say how far back it remembers: an echo of words of this run may be all that it knows."""
    for ago, vouches in ((10, True), (2, False)):
        node = restarted(lived(3).disk, 12)
        payload = beat(1, 12, echo=3, ago=ago)
        head, rest, _ = msgspec.msgpack.decode(payload)
        old = msgspec.msgpack.encode(msgspec.msgpack.decode(rest)[:5])
        signed = fake_sign(1)(b"dpcrowd message", head, hashlib.sha256(old).digest())
        seal_and_hear(node, 12, (1, msgspec.msgpack.encode([head, old, signed])))
        assert node.refused == []
        assert seal_and_hear(node, 13) == vouches


# ---------------------------------------------------------------------------------- an echo is stored before it is told


def test_what_came_after_the_last_release_is_stored_before_it_is_echoed() -> None:
    """A neighbour that was told "five" and one crash later "four" could come back with an old copy in between."""
    node = Lone((1,))
    node.live(range(3))
    node.hear(1, sample(1, 2, counter=5))
    node.hear(1, beat(1, 3, counter=6), node.view.seals(3) - 5)
    node.told.clear()
    node.seal(3)
    kinds = [type(told) for told in node.told]
    assert kinds.index(do.StoreSample) < kinds.index(do.StoreCounters) < kinds.index(do.Send)
    assert body_of(node.outbox[-1].payload).heard == {1: (0, 6)}
    node.take(do.StoreCounters)
    node.pass_deadline(3)
    node.seal(4)
    assert node.take(do.StoreCounters) == [], "a commit more only where there is something to store"


def test_what_cannot_be_stored_is_not_echoed() -> None:
    """The message leaves all the same, with what was stored before; once storing works the rest is echoed too."""
    node = Lone((1,))
    seal_and_hear(node, 0, (1, sample(1, 0, counter=4)))
    node.hear(1, sample(1, 0, counter=5))
    node.disk.full, node.disk.refuses = True, (do.StoreCounters,)
    node.seal(1)
    assert body_of(node.outbox[-1].payload).heard == {1: (1, 4)}
    assert len(body_of(node.outbox[-1].payload).records) == 1, "which is paid for"
    assert node.events == ["storage-failed"]
    node.give(on.NeighbourUp(node.view.seals(1) + 2, "server-1"))
    assert node.outbox[-1].payload == node.outbox[-2].payload
    node.pass_deadline(1)
    node.disk.full = False
    node.give(on.StorageRecovered(node.view.seals(1) + 3))
    node.seal(2)
    assert body_of(node.outbox[-1].payload).heard == {1: (2, 5)}
    assert node.disk.heard == {"server-1": (0, 5)}


def test_a_crash_forgets_nothing_that_was_echoed() -> None:
    """Killed right after the message has left: the next run echoes as much."""
    node = Lone((1,))
    node.live(range(2))
    node.hear(1, sample(1, 1, counter=5))
    node.seal(2)
    node.restart(node.view.clock.opens(3), vouched=True)
    node.seal(3)
    assert body_of(node.outbox[-1].payload).heard == {1: (2, 5)}
