"""What neighbours and others send a node: early, late, twice, contradictory, for somebody else, broken."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dpcrowd.node.machine import Machine, Revision
from dpcrowd.node.machine import instructions as do
from dpcrowd.node.machine import stimuli as on
from dpcrowd.node.machine.messages import check_message
from dpcrowd.node.wire import MessageRefused, record_of
from dpcrowd.privacy import Guarantee
from dpcrowd.schemes.messages import InfoMessages
from dpcrowd.schemes.registry import make_scheme
from dpcrowd.schemes.server import Server
from node_support import body_of, fake_sign
from node_support_lone import REGIONS, Lone, beat, sample
from schemes_support import bits, make_setting


def sealed(slot: int = 3, **how: Any) -> Lone:
    """A node with a slot in exchange."""
    node = Lone(**how)
    node.seal(slot)
    return node


# ------------------------------------------------------------------------------------------------ early and late


@pytest.mark.parametrize("when", ["in the exchange before", "between two exchanges", "before the first"])
def test_a_message_that_comes_early_waits_for_the_seal(when: str) -> None:
    """A neighbour's clock is a little ahead; refused, its data would be missing in every single slot."""
    node = Lone((1,))
    if when != "before the first":
        node.seal(3)
    if when == "between two exchanges":
        node.pass_deadline(3)
    node.hear(1, sample(1, 4, 70.0), node.view.seals(4) - 5)
    if when == "in the exchange before":
        node.pass_deadline(3)
    node.take(do.Publish)
    node.seal(4)
    assert node.reasons == []
    kinds = [type(told) for told in node.told]
    assert kinds.index(do.StoreSample) < kinds.index(do.Send) < kinds.index(do.StoreRelease) < kinds.index(do.Publish)
    on_time = Lone((1,))
    if when != "before the first":
        on_time.live([3])
    on_time.seal(4)
    on_time.hear(1, sample(1, 4, 70.0))
    assert bits(node.published[-1].estimate) == bits(on_time.published[-1].estimate)


def test_an_early_message_survives_the_seal_of_an_earlier_slot() -> None:
    """The node seals late: slot 5 was said while slot 4 is still to be sealed."""
    node = Lone((1,))
    node.live([3])
    node.hear(1, sample(1, 5), node.view.seals(5) - 5)
    node.live([4])
    node.seal(5)
    assert node.reasons == []
    assert node.published[-1].slot == 5


def test_an_older_early_message_does_not_take_the_place_of_a_newer() -> None:
    """Overtaken on its way: one is kept of each neighbour, that of the later slot."""
    node = Lone((1,))
    node.live([3])
    for slot in (5, 4):
        node.hear(1, sample(1, slot), node.view.seals(5) - 5)
    node.live([4])
    node.seal(5)
    assert node.machine.exchanging is None
    assert [told.heard for told in node.take(do.StoreRelease)] == [(), (), ("server-1",)]


def test_the_next_slot_is_not_yet_to_come_while_the_last_has_its_grace() -> None:
    """Slot 4 is closed and takes late check-ins: a message of slot 5 is more than a little ahead."""
    node = Lone((1,))
    node.live([3])
    node.hear(1, beat(1, 5), node.view.seals(4) - 1)
    assert node.reasons == ["wrong-slot"]
    node.hear(1, beat(1, 5), node.view.seals(4))
    assert node.reasons == ["wrong-slot"]


def test_what_is_not_from_the_neighbour_does_not_take_its_place() -> None:
    """An impostor with a minted certificate speaks first; kept unchecked, it would shut the neighbour out."""
    node = Lone((1,))
    node.live([3])
    forged = beat(1, 4)[:-1] + b"\x00"
    node.hear(1, forged, node.view.seals(4) - 9)
    assert node.reasons == ["bad-signature"]
    node.hear(1, sample(1, 4), node.view.seals(4) - 5)
    node.seal(4)
    assert node.reasons == ["bad-signature"]
    assert node.published[-1].slot == 4


def test_the_next_revision_is_read_when_it_is_there() -> None:
    """Neighbours change to it at the same slot; the first to seal speaks under a digest that we do not have yet."""
    node = Lone((1,))
    node.live([3])
    said = beat(1, 4, digest=bytes(16))
    node.hear(1, beat(1, 4), node.view.seals(4) - 9)  # from before it reloaded: no harm done
    node.hear(1, said, node.view.seals(4) - 5)
    assert node.reasons == []
    trust = node.machine.trust
    node.follow(4, digest=bytes(16))
    node.end(4)
    assert node.machine.view.digest == bytes(16)
    assert node.machine.trust is trust
    assert [told.heard for told in node.take(do.StoreRelease)][-1] == ("server-1",)


def test_another_revision_than_ours_is_refused_when_the_slot_is_sealed() -> None:
    """And it does not take the place of a message of our own revision."""
    node = Lone((1, 2))
    node.live([3])
    for number in (1, 2):
        node.hear(number, beat(number, 4, digest=bytes(16)), node.view.seals(4) - 9)
    node.hear(1, sample(1, 4), node.view.seals(4) - 5)
    node.seal(4)
    assert node.reasons == ["other-configuration"] * 2
    node.hear(2, beat(2, 4))
    assert [told.heard for told in node.take(do.StoreRelease)][-1] == ("server-1", "server-2")


@pytest.mark.parametrize(("slot", "reason"), [(3, "other-configuration"), (2, "late"), (9, "wrong-slot")])
def test_another_revision_in_its_own_time(slot: int, reason: str) -> None:
    """What is late after a change of the revision is late; only in our own slot is it a neighbour's mistake."""
    node = sealed(3)
    node.hear(1, beat(1, slot, counter=7, digest=bytes(16)))
    node.hear(2, beat(2, 3))
    node.hear(2, beat(2, slot, counter=7, digest=bytes(16), round=2))
    assert node.reasons == [reason] * 2
    node.pass_deadline(3)
    assert node.disk.heard == {"server-2": (3, 0)}


def test_a_contradiction_before_the_seal_is_refused() -> None:
    """Only one of two different early messages can be true; the first stays."""
    node = Lone((1,))
    node.live([3])
    for payload in (sample(1, 4, 70.0), sample(1, 4, 70.0), sample(1, 4, 90.0)):
        node.hear(1, payload, node.view.seals(4) - 5)
    assert node.reasons == ["replay"]
    node.seal(4)
    first = Lone((1,))
    first.live([3])
    first.seal(4)
    first.hear(1, sample(1, 4, 70.0))
    assert bits(node.published[-1].estimate) == bits(first.published[-1].estimate)


@pytest.mark.parametrize("slot", [5, 6, 1000, 2**62])
def test_a_slot_far_ahead_is_refused(slot: int) -> None:
    """A neighbour whose clock is wrong, or who wants its message to be kept for ever."""
    node = sealed(3)
    node.hear(1, beat(1, slot))
    assert node.reasons == ["wrong-slot"]
    assert f"slot {slot}, which is not open yet" in node.refused[0].text
    assert node.machine.exchanging == 3


@pytest.mark.parametrize("slot", [-1, -(2**63), 2**63, 2**64 - 1])
def test_what_is_no_slot_is_refused(slot: int) -> None:
    """No database could keep it, and no signature of a record covers it."""
    node = sealed(3)
    node.hear(1, beat(1, slot))
    node.hear(2, beat(2, slot, counter=9))
    assert node.reasons == ["wrong-slot"] * 2
    node.pass_deadline(3)
    assert node.disk.heard == {}


@pytest.mark.parametrize("slot", [2, 0])
def test_an_old_slot_is_late(slot: int) -> None:
    """Issue: late messages are used if the slot is still open, else counted and dropped."""
    node = sealed(3)
    node.hear(1, beat(1, slot))
    assert node.reasons == ["late"]
    assert node.refused[0].sender == "server-1"


def test_after_the_deadline_it_is_late() -> None:
    """The release is out; what comes now changes nothing any more."""
    node = sealed(3)
    node.pass_deadline(3)
    estimate = bits(node.published[0].estimate)
    node.hear(1, sample(1, 3))
    assert node.reasons == ["late"]
    assert len(node.published) == 1
    assert bits(node.published[0].estimate) == estimate


# ---------------------------------------------------------------------------------------- repeated, contradictory


def test_the_same_message_again_is_nothing() -> None:
    """Neighbours send again when a link comes up: counted twice, one sample would weigh as two."""
    node, once = sealed(links=(1, 2)), sealed(links=(1, 2))
    for _ in range(3):
        node.hear(1, sample(1, 3))
    once.hear(1, sample(1, 3))
    node.pass_deadline(3)
    once.pass_deadline(3)
    assert node.reasons == []
    assert bits(node.published[0].estimate) == bits(once.published[0].estimate)


def test_the_same_message_after_the_release_is_nothing_either() -> None:
    """It was used: counted as late it would look like a neighbour whose clock is behind."""
    node = sealed(links=(1,))
    node.hear(1, sample(1, 3))
    node.hear(1, sample(1, 3))
    assert node.reasons == []
    node.hear(1, sample(1, 3, 99.0))
    assert node.reasons == ["late"]
    assert len(node.published) == 1


def test_the_same_words_of_a_restarted_neighbour_are_nothing() -> None:
    """It remembers more of others than before the crash; that is no second message, and it is no liar."""
    node = sealed()
    node.hear(1, sample(1, 3))
    node.hear(1, sample(1, 3, heard={2: (1, 9)}))
    assert node.reasons == []


@pytest.mark.parametrize("second", [sample(1, 3, 90.0), beat(1, 3, counter=1)], ids=["other values", "no values"])
def test_a_second_different_message_is_refused(second: bytes) -> None:
    """One slot, one draw: a server that says two things of one slot is broken or replayed."""
    node, once = sealed(), sealed()
    for player in (node, once):
        player.hear(1, sample(1, 3, 70.0))
    node.hear(1, second)
    assert node.reasons == ["replay"]
    for player in (node, once):
        player.pass_deadline(3)
    assert bits(node.published[0].estimate) == bits(once.published[0].estimate)


def test_a_message_of_another_slot_cannot_be_replayed() -> None:
    """Yesterday's sample under today's header: its origin has signed the slot."""
    node = sealed(3)
    old = body_of(sample(1, 2))
    node.hear(1, beat(1, 3, prior=old.prior, prior_known=old.prior_known, records=old.records))
    assert node.reasons == ["bad-signature"]


# -------------------------------------------------------------------------------------------- strangers and others


@pytest.mark.parametrize("name", ["mallory", "server-4", "server-0", "", "server-99"])
def test_a_stranger_is_refused(name: str) -> None:
    """Not in the network, not a neighbour, or ourselves: nothing of it is used, also before any slot is sealed."""
    node = Lone((1, 2))
    for _ in range(2):
        node.give(on.MessageArrived(node.view.seals(0) + 1, name, beat(4, 0)))
        node.seal(0)
    assert node.reasons == ["not-a-neighbour"] * 2
    assert node.machine.exchanging == 0
    node.give(on.NeighbourUp(node.view.seals(0) + 1, name))
    assert len(node.outbox) == 1, "and nothing is sent to it"


@pytest.mark.parametrize("early", [False, True])
def test_who_is_a_neighbour_only_later_is_refused_now(early: bool) -> None:
    """Links have times: a neighbour of slot 4 has no say in slot 3, nor one of slot 3 in slot 4."""
    node = Lone(lambda slot: frozenset({1} if slot <= 3 else {2}))
    node.seal(3)
    if early:
        node.hear(1, sample(1, 4))
        node.pass_deadline(3)
        node.seal(4)
    else:
        node.hear(2, sample(2, 3))
    assert node.reasons == ["not-a-neighbour"]


def test_a_neighbour_cannot_speak_for_another() -> None:
    """Server 2 hands on server 1's own message: one hop only."""
    node = sealed()
    node.hear(2, sample(1, 3))
    assert node.reasons == ["wrong-sender"]
    node.hear(1, sample(1, 3))
    assert node.reasons == ["wrong-sender"]


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"", "malformed"),
        (b"\x91" * 5_000, "malformed"),
        (b"\x91" * 100_000, "wrong-length"),
        (beat(1, 3, digest=bytes(16)), "other-configuration"),
        (beat(1, 3, version=9), "version"),
        (sample(1, 3, float("nan")), "not-finite"),
        (sample(1, 3, 1e300), "absurd"),
        (sample(1, 3, prior=b"short"), "wrong-length"),
    ],
)
def test_a_refused_message_is_counted_and_the_node_goes_on(payload: bytes, reason: str) -> None:
    """Failure table: refused by name and reason, the slot stays open, and a good message is still taken."""
    node = sealed()
    node.hear(1, payload)
    (refused,) = node.refused
    assert (refused.slot, refused.sender, refused.reason) == (3, "server-1", reason)
    assert node.machine.exchanging == 3
    node.hear(1, sample(1, 3))
    node.hear(2, beat(2, 3))
    assert node.reasons == [reason]
    assert np.isfinite(node.published[0].estimate).all()


def test_a_matrix_that_no_measurement_has_is_absurd() -> None:
    """Negative along some direction: the fused covariance would not be one."""
    lone = Lone((1,), with_account=False)
    setting = make_setting(1, REGIONS, Guarantee.window(4, 2.0), form="matrix")
    server = Server(
        make_scheme("dpcrowd-plus"), setting, lone.noise, number=0, share=0.5, max_degree=3, allow_simulated_noise=True
    )
    view = replace(lone.view, form="matrix")
    lone.machine = Machine(Revision(view, lone.make_server), server, vouched=True)
    lone.seal(3)
    known = np.ones((1, REGIONS), dtype=np.bool_)
    crooked = np.array([[[0.1, 0.5], [0.5, 0.1]]])
    said = InfoMessages(known[:, 0], np.ones((1, REGIONS)), crooked, np.ones((1, REGIONS)), known)
    record = record_of(said, digest=lone.view.digest, origin=1, slot=3, sign=fake_sign(1))
    lone.hear(1, beat(1, 3, prior=said.prior.tobytes(), prior_known=b"\1\1", records=(record,)))
    assert lone.reasons == ["absurd"]
    assert "server-1" in lone.refused[0].text
    assert lone.machine.exchanging == 3


# ------------------------------------------------------------------------------------------- neighbours that come up


def test_a_neighbour_that_comes_up_gets_the_message_again() -> None:
    """A put before the peer has subscribed is lost: sent again, the very same bytes, to this neighbour alone."""
    node = sealed()
    (first,) = node.outbox
    node.give(on.NeighbourUp(node.view.seals(3) + 9, "server-2"))
    assert node.outbox[1:] == [do.Send(3, first.payload, ("server-2",))]
    node.give(on.NeighbourDown(node.view.seals(3) + 10, "server-2"))
    assert len(node.outbox) == 2
    assert node.machine.exchanging == 3


@pytest.mark.parametrize("moment", ["before", "after"])
def test_outside_an_exchange_nothing_is_sent_again(moment: str) -> None:
    """Before the seal there is nothing to say; after the release the slot is over."""
    node = Lone()
    if moment == "after":
        node.live([3])
        node.outbox.clear()
    node.give(on.NeighbourUp(node.view.seals(3) + 9, "server-2"))
    assert node.outbox == []


def test_neighbours_say_when_their_certificates_expire() -> None:
    """Nothing else tells a server that is dialled: its transport knows names, and no dates."""
    node = Lone()
    node.give(on.KeyRenewed(0, node.view.sign, 1_900_000_000))
    assert node.take(do.Link) == [do.Link(0, anew=True, rest=True)]
    node.seal(0)
    (sent,) = node.take(do.Send)
    assert body_of(sent.payload).expires == 1_900_000_000
    node.hear(1, beat(1, 0, expires=1_800_000_000))
    node.hear(2, beat(2, 0))  # of a version that does not say
    assert node.machine.expires == {"server-1": 1_800_000_000}
    node.seal(1)
    node.hear(1, beat(1, 1, expires=1_850_000_000))
    node.hear(2, beat(1, 1, expires=1))  # somebody else's words
    assert node.machine.expires == {"server-1": 1_850_000_000}
    names = (node.view.names[0], *reversed(node.view.names[1:]))
    node.follow(2, names=names)
    node.end(2)
    assert node.machine.view.names == names
    assert node.machine.expires == {"server-1": 1_850_000_000}, "a revision may number servers anew"


def test_an_estimate_made_from_coarse_samples_is_not_absurd() -> None:
    """At a small epsilon honest estimates lie far beyond the population; without allowance they would be refused."""
    payload = sample(1, 3, 50.0, prior=np.full((1, REGIONS), 500.0).tobytes())
    view = replace(Lone((1,)).view, population=10, coarsest=30.0)
    assert check_message(view, 1, payload).body.slot == 3
    with pytest.raises(MessageRefused) as refused:
        check_message(replace(view, coarsest=0.0), 1, payload)
    assert refused.value.reason == "absurd"
    node = sealed()
    node.machine.revision = replace(node.machine.revision, view=view)
    node.hear(1, payload)
    assert node.reasons == []
