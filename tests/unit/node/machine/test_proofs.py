"""A neighbour's word against the ledger needs proof: what stops a node, what does not, and when proofs are sent."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dpcrowd.node.machine import Machine, Revision
from dpcrowd.node.machine import stimuli as on
from dpcrowd.node.wire import proven
from node_support import body_of, fake_verify
from node_support_lone import Lone, beat, lived, proof, restarted, sample, seal_and_hear

# ---------------------------------------------------------------------------------------------- words without proof


def vouch(number: int, slot: int, node: Lone) -> tuple[int, bytes]:
    """Of an honest neighbour that has heard every sample before this slot."""
    told = [sampled for sampled in sorted(node.disk.samples) if sampled < slot]
    return number, beat(number, slot, echo=len(told), ago=slot - told[-1])


@pytest.mark.parametrize("order", [1, -1], ids=["claimed first", "vouched first"])
def test_a_word_costs_two_slots_after_a_start_and_no_more(order: int) -> None:
    """Without an end to it any neighbour could stop any other for good; without the wait an old copy would sample."""
    node = restarted(lived(5).disk, 5)
    sampled = []
    for slot in range(5, 12):
        node.seal(slot)
        for number, payload in [(1, beat(1, slot, echo=99)), vouch(2, slot, node)][::order]:
            node.hear(number, payload)
        node.pass_deadline(slot)
        sampled.append(slot in node.disk.samples)
    assert sampled == [False, False, False, True, True, True, True]
    assert node.events == ["unproven-echo"], "said once"
    assert "server-1" in node.reports[-1].text


def test_an_honest_word_holds_until_its_proof_is_there() -> None:
    """The lost run told slot 5 by a clock a little ahead: slot 6 comes without proof as well, slot 7 with it."""
    node = restarted(lived(3).disk, 5)
    for slot, shown in ((5, False), (6, False), (7, True)):
        honest = beat(1, slot, echo=6, ago=slot - 5, proven=shown)
        assert not seal_and_hear(node, slot, vouch(2, slot, node), (1, honest))
    assert not seal_and_hear(node, 8, vouch(2, 8, node))
    assert node.noise.drawn == []
    assert node.events == ["slots-missed", "ledger-rolled-back"]


def test_as_many_but_earlier_needs_proof_too() -> None:
    """A liar could otherwise date the last sample back, and stop a node that runs."""
    node = restarted(lived(4).disk, 5)
    for slot in range(5, 9):
        seal_and_hear(node, slot, vouch(2, slot, node))
    assert seal_and_hear(node, 9, (1, beat(1, 9, echo=node.disk.counter, ago=8)))
    assert seal_and_hear(node, 10)
    assert node.events == ["slots-missed", "unproven-echo"]


def test_a_silent_claimant_is_not_waited_for_longer() -> None:
    """It says its word and leaves: the exchange of the second slot after that ends without it."""
    node = restarted(lived(5).disk, 5)
    assert not seal_and_hear(node, 5, (1, beat(1, 5, echo=99)), vouch(2, 5, node))
    assert not seal_and_hear(node, 6)
    assert not seal_and_hear(node, 7)
    assert seal_and_hear(node, 8)


def test_a_node_that_runs_goes_on() -> None:
    """Words of any size, of neighbours that were silent at the start; each of them is reported once."""
    node = restarted(lived(5).disk, 5)
    for slot in (5, 6, 7):
        seal_and_hear(node, slot, vouch(2, slot, node))
    for slot in range(8, 14):
        assert seal_and_hear(node, slot, (1, beat(1, slot, echo=2**61, ago=-5)), (2, beat(2, slot, echo=50)))
    assert node.events == ["unproven-echo"] * 2


@pytest.mark.parametrize(
    "forged",
    [
        b"",
        b"nonsense",
        proof(4, 9, by=1),
        proof(4, 9)[:-1] + b"\0",
        proof(4, 5),
        proof(4, 9).replace(proof(4, 9)[3:27], proof(4, 8)[3:27]),
        sample(1, 4),
    ],
    ids=["nothing", "no proof", "by another", "forged", "of what is known", "another head", "a message"],
)
def test_what_proves_nothing_is_not_believed(forged: bytes) -> None:
    """Only the own signature under the higher counter can stop a node."""
    node = restarted(lived(5).disk, 5)
    for slot in (5, 6, 7):
        assert not seal_and_hear(node, slot, (1, beat(1, slot, echo=9, proofs={0: forged})), vouch(2, slot, node))
    assert seal_and_hear(node, 8, (1, beat(1, 8, echo=9, proofs={0: forged})), vouch(2, 8, node))
    assert node.events == ["unproven-echo"]


def test_a_proof_counts_at_any_time_and_from_anybody() -> None:
    """Of a node that is vouched for, of one who was not believed, and of an echo that hides it."""
    for echo in (9, 3):
        node = restarted(lived(5).disk, 5)
        for slot in range(5, 9):
            seal_and_hear(node, slot, (1, beat(1, slot, echo=9)), vouch(2, slot, node))
        assert seal_and_hear(node, 9, (1, beat(1, 9, echo=echo, proven=proof(4, 9))))
        assert not seal_and_hear(node, 10, vouch(2, 10, node))
        assert node.events == ["unproven-echo", "ledger-rolled-back"]
        assert node.machine.trust.lost_at == 9


def test_a_proof_of_an_earlier_number_and_revision_counts() -> None:
    """Servers are numbered anew with each revision, and nobody keeps the digests of all that ever were."""
    earlier = proof(4, 9, by=3)
    node = restarted(lived(5).disk, 5)
    keys = {0: 3}  # the key that was pinned for number 3 is now pinned for number 0
    view = replace(node.view, verify=lambda number, *signed: fake_verify(keys.get(number, number), *signed))
    node.machine = Machine(Revision(view, node.make), node.machine.server, counter=5)
    node.give(on.Started(node.view.clock.opens(5)))
    seal_and_hear(node, 5, (1, beat(1, 5, echo=9, proven=earlier)))
    assert node.events == ["ledger-rolled-back"]


def test_who_was_not_believed_does_not_vouch_and_the_operator_decides() -> None:
    """It may tell the truth: of a key that is pinned no longer nothing can be proven. Nobody else is there."""
    node = restarted(lived(5).disk, 5, links=(1,))
    for slot in (5, 6, 7, 8):
        assert not seal_and_hear(node, slot, (1, beat(1, slot, echo=70)))
    assert not seal_and_hear(node, 9, (1, beat(1, 9, echo=3)))
    assert not seal_and_hear(node, 10)
    assert node.machine.trust.lost_at == 70
    node.give(on.LossConfirmed(node.view.seals(10)))
    assert seal_and_hear(node, 11, (1, beat(1, 11, echo=70, ago=7)))
    assert node.disk.counter == 71
    assert node.events == ["unproven-echo", "loss-confirmed"]


def test_another_neighbour_that_comes_later_may_still_vouch() -> None:
    """What only the operator could decide before, somebody has now decided who remembers."""
    node = restarted(lived(5).disk, 5)
    for slot in (5, 6, 7, 8):
        assert not seal_and_hear(node, slot, (1, beat(1, slot, echo=70)))
    assert not seal_and_hear(node, 9, vouch(2, 9, node))
    assert node.machine.trust.lost_at is None
    assert seal_and_hear(node, 10)


def test_a_word_cannot_lock_the_counter() -> None:
    """Confirmed by an operator, 2^61 would leave no room to count on, and every echo of it would be refused."""
    node = restarted(lived(5).disk, 5, links=(1,))
    for slot in range(5, 9):
        seal_and_hear(node, slot, (1, beat(1, slot, echo=2**61)))
    node.give(on.LossConfirmed(node.view.seals(8)))
    assert seal_and_hear(node, 9, (1, beat(1, 9, echo=2**61)))
    assert seal_and_hear(node, 10)
    assert node.disk.counter < 2**50


# ------------------------------------------------------------------------------------------------ sending proofs


def proofs_in(node: Lone) -> dict[int, tuple[int, int] | None]:
    """What the node's last message proves to whom."""
    return {to: proven(shown, to, fake_verify) for to, shown in body_of(node.outbox[-1].payload).proofs.items()}


def test_proofs_travel_only_where_they_may_be_needed() -> None:
    """They are as long as a heartbeat; but whoever was not heard may come back as an old copy of itself."""
    node = Lone()
    seal_and_hear(node, 0, (1, sample(1, 0, counter=7)), (2, sample(2, 0, counter=4)))
    assert proofs_in(node) == {}, "nothing is remembered yet"
    seal_and_hear(node, 1, (1, beat(1, 1, counter=7)), (2, sample(2, 1, counter=5)))
    assert proofs_in(node) == {}, "both were heard, and know what they said"
    seal_and_hear(node, 2, (1, beat(1, 2, counter=7)))
    assert proofs_in(node) == {}
    seal_and_hear(node, 3, (1, beat(1, 3, counter=6)))
    assert proofs_in(node) == {2: (1, 5)}, "server 2 was silent"
    seal_and_hear(node, 4, (1, beat(1, 4, counter=6)), (2, beat(2, 4, counter=5)))
    assert proofs_in(node) == {1: (0, 7), 2: (1, 5)}, "server 1 told less"
    seal_and_hear(node, 5, (1, beat(1, 5, counter=8)), (2, beat(2, 5, counter=5)))
    assert proofs_in(node) == {1: (0, 7)}
    seal_and_hear(node, 6)
    assert proofs_in(node) == {}, "and has confirmed its loss"
    node.restart(node.view.seals(7) - 1, vouched=True)
    node.seal(7)
    assert proofs_in(node) == {1: (5, 8), 2: (1, 5)}, "over our own restart, since nobody has been heard yet"


def test_as_many_with_a_new_sample_among_them_are_fewer() -> None:
    """The copy has caught up with what we remember: the counter alone would fit."""
    node = Lone((1,))
    seal_and_hear(node, 0, (1, sample(1, 0, counter=7)))
    seal_and_hear(node, 1, (1, sample(1, 1, counter=7)))
    node.seal(2)
    assert proofs_in(node) == {1: (0, 7)}


@pytest.mark.parametrize("last", [7, 6])
def test_of_two_words_of_a_slot_the_lesser_counts(last: int) -> None:
    """An earlier run's words may arrive after the later run's, or two runs may speak at once."""
    node = Lone((1,))
    seal_and_hear(node, 0, (1, beat(1, 0, counter=13 - last)), (1, beat(1, 0, counter=last)))
    node.seal(1)
    assert proofs_in(node) == {1: (0, 7)}


def test_a_word_of_a_slot_far_ahead_does_not_count_as_the_last_one() -> None:
    """Its clock jumped; put right, and the folder put back too, it has to be shown what it said."""
    node = Lone((1,))
    seal_and_hear(node, 0, (1, beat(1, 99, counter=7)))
    seal_and_hear(node, 1, (1, beat(1, 1, counter=6)))
    node.seal(2)
    assert proofs_in(node) == {1: (99, 7)}


def test_a_proof_is_renewed_once_a_revision() -> None:
    """A server that has spent its budget tells one counter for years; the key that signed it is replaced meanwhile.

    The slot in which it was first said stays, and a later sample under the same counter renews nothing.
    """
    node = Lone((1,))
    seal_and_hear(node, 0, (1, beat(1, 0, counter=7)))
    node.follow(1, digest=bytes(16))
    node.end(1)
    node.hear(1, sample(1, 1, counter=7, digest=bytes(16)))
    assert node.disk.proofs["server-1"] == proof(0, 7, by=1)
    for slot in (2, 3):
        seal_and_hear(node, slot, (1, beat(1, slot, counter=7, digest=bytes(16))))
    assert node.disk.heard == {"server-1": (0, 7)}
    assert proven(node.disk.proofs["server-1"], 1, fake_verify) == (2, 7)
