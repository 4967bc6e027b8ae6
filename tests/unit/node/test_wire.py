"""The message: the same bits at the other end, small when it says little, refused with a reason when it is wrong."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec import structs

from dpcrowd.network.costs import HEADER_BYTES, RECORD_BYTES, RELAYED_RECORD_BYTES, message_bytes
from dpcrowd.node import wire
from dpcrowd.node.wire import (
    FORMAT_1,
    VERSION,
    Body,
    CounterEcho,
    MessageRefused,
    Record,
    encode,
    peek,
    pilot_of,
    proof_digest,
    proven,
    record_of,
    same_content,
)
from dpcrowd.node.wire_records import Equivocation, SignedRecord
from dpcrowd.schemes.dpcrowd import DPCrowd
from dpcrowd.schemes.messages import InfoMessages
from node_support import DIGEST, fake_sign, fake_verify
from node_support_wire import (
    HEADED,
    REGIONS,
    SENDER,
    SIGN,
    SLOT,
    body,
    info,
    packed,
    pieces,
    proof_in,
    read,
    signature,
    signed_record,
    wrapped,
)
from schemes_support import bits

HEAD, REST, _ = pieces(encode(body(), SIGN))


def refusal(payload: bytes, **how: Any) -> MessageRefused:
    with pytest.raises(MessageRefused) as caught:
        read(payload, **how)
    assert "\n" not in str(caught.value)
    return caught.value


# ---------------------------------------------------------------------------------------------------- what arrives


@pytest.mark.parametrize("form", ["diagonal", "matrix"])
@pytest.mark.parametrize("regions", [1, 3, 51])
def test_every_bit_arrives(form: str, regions: int) -> None:
    """One lost bit, and a live network no longer computes what the simulator computes."""
    said = info(regions, form)
    sent = body(said, heard={0: (6, 2), 3: (5, 0)})
    heard = read(encode(sent, SIGN), regions=regions, form=form)
    assert heard.body == sent
    assert heard.message is not None
    for name, array in said.arrays().items():
        arrived = heard.message.arrays()[name]
        assert arrived.dtype == array.dtype, name
        assert bits(arrived) == bits(array), name


@pytest.mark.parametrize("version", [FORMAT_1, VERSION])
def test_every_field_of_a_body_arrives(version: int) -> None:
    """A field that is sent and not decoded would have its default at the other end, and nothing would say so."""
    changes: dict[str, Any] = {
        "heard": {0: CounterEcho(6, 2)},
        "proofs": {0: b"proof"},
        "since": {0: 9},
        "expires": 2_000_000_000,
        "after": True,
        "relayed": (SignedRecord(1, 7, 1, 5, None, b"\x02", bytes(64)),),
        "equivocations": (Equivocation(*[SignedRecord(2, 7, 1, 5, b"\x00", b"\x02", bytes(64))] * 2),),
        "asks": True,
        "state": b"state",
        "pilot": bytes(75),
        "version": version,
    }
    sent = body(info(), **changes)
    defaults = {field.name: field.default for field in structs.fields(Body) if field.default is not msgspec.NODEFAULT}
    defaults |= {field.name: {} for field in structs.fields(Body) if field.default_factory is not msgspec.NODEFAULT}
    unchanged = [name for name, default in defaults.items() if getattr(sent, name) == default]
    assert unchanged == [], "give every new field a value of its own here"
    arrived = msgspec.convert(
        [one for part in pieces(encode(sent, SIGN))[:2] for one in msgspec.msgpack.decode(part)], Body
    )
    for name in Body.__struct_fields__:
        assert getattr(arrived, name) == getattr(sent, name), name
    assert (arrived.heard[0].slots_ago, arrived.heard[0].counter) == (6, 2)


def test_a_message_without_a_pilot_is_as_long_as_it_was() -> None:
    """Version 0.1 reads messages of format 1 up to `after`; what later fields it would need nobody has written down."""
    rest = msgspec.msgpack.decode(pieces(encode(body(info(), state=b"state"), SIGN))[1])
    assert len(rest) == Body.__struct_fields__.index("relayed") - HEADED


def with_pilot(pilot: InfoMessages) -> bytes:
    return encode(body(info(), pilot=pilot_of(replace(info(), pilot=pilot))), SIGN)


def test_every_bit_of_a_pilot_arrives() -> None:
    """Its receivers' pilots would choose other slots than in the simulator."""
    pilot = info(info_vec=info().info_vec / 3.0, prior=np.array([[-1.0, 2.5, 1e-9]]))
    heard = read(with_pilot(pilot)).message
    assert heard is not None
    assert heard.pilot is not None
    for name, array in pilot.arrays().items():
        assert bits(heard.pilot.arrays()[name]) == bits(array), name
    assert read(encode(body(info()), SIGN)).message.pilot is None  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("reason", "changes"),
    [
        ("not-finite", {"prior": np.array([[1.0, np.nan, 1.0]])}),
        ("negative-information", {"info_mat": np.array([[1.0, -1e-9, 1.0]])}),
        ("absurd", {"info_vec": np.array([[1e30, 0.0, 0.0]])}),
    ],
)
def test_a_pilot_is_checked_like_a_sample(reason: str, changes: dict[str, Any]) -> None:
    """It steers when others sample, and whatever reaches a filter may end it."""
    refused = refusal(with_pilot(info(**changes)))
    assert refused.reason == reason
    assert "the pilot of server-1" in str(refused)


@pytest.mark.parametrize("pilot", [bytes(74), bytes(76), bytes(72) + b"\x02\x00\x00"], ids=["less", "more", "unknown"])
def test_a_pilot_of_another_length_is_refused(pilot: bytes) -> None:
    """Its numbers would be read at the wrong places."""
    assert refusal(encode(body(info(), pilot=pilot), SIGN)).reason == "wrong-length"


def test_full_matrices_have_no_pilot() -> None:
    """They do not learn; what is sent all the same is no part of the message."""
    payload = encode(body(info(form="matrix"), pilot=bytes(75)), SIGN)
    assert refusal(payload, form="matrix").reason == "wrong-length"


def test_a_pilot_may_not_change_within_a_slot() -> None:
    """A server that says two things of one slot is caught by the pilot, too."""
    one, other = with_pilot(info()), with_pilot(info(prior=np.array([[7.0, 8.0, 9.0]])))
    assert same_content(one, one)
    assert same_content(one, encode(body(info()), SIGN)), "an earlier build has sent the same sample without one"
    assert not same_content(one, other)


@pytest.mark.parametrize("form", ["diagonal", "matrix"])
@pytest.mark.parametrize("regions", [1, 6, 51])
def test_the_simulator_counts_bytes_as_they_are_sent(form: Any, regions: int) -> None:
    """Bytes of the schemes are compared by these sizes: signatures left out, a scheme with small messages would win."""
    heard = dict.fromkeys(range(5), (200, 1))
    said = body(info(regions, form), heard=heard, slot=5000, counter=300, server=40, expires=1_800_000_000)
    counted = message_bytes(DPCrowd().value_bytes(regions, form))
    assert abs(len(encode(said, SIGN)) - counted) <= 5
    values = counted - HEADER_BYTES - RECORD_BYTES
    alone = body(heard=heard, slot=5000, counter=300, server=40, expires=1_800_000_000)
    assert abs(len(encode(alone, SIGN)) - HEADER_BYTES) <= 5, "a packet without a record"
    assert len(said.records[0].info_vec + said.records[0].info_mat + said.prior + said.prior_known) == values


@pytest.mark.parametrize("slot", [5000, 10**9])
def test_a_record_that_is_passed_on_fits_into_its_bytes(slot: int) -> None:
    """As the layout of relay has it: origin, slot, epsilon, hops, groups, integers and the origin's signature."""
    record = (40_000, slot, 10**9, 3, None, b"", bytes(64))  # None, one byte: every region is by itself
    assert RELAYED_RECORD_BYTES - 10 <= len(msgspec.msgpack.encode(record)) <= RELAYED_RECORD_BYTES <= 150


def test_a_heartbeat_has_no_message() -> None:
    """Silence must not become a measurement of 0."""
    heard = read(encode(body(), SIGN))
    assert heard.message is None
    assert (heard.body.counter, heard.body.heard) == (5, {0: (1, 2)})


def test_a_heartbeat_is_small() -> None:
    """Ten neighbours, slots of a second for a year, a sample in each: still under 200 bytes."""
    late = 366 * 86_400
    heard = {40 + n: (1, late) for n in range(10)}
    largest = body(server=49, slot=late, counter=late, heard=heard, expires=2_000_000_000)
    assert len(encode(largest, SIGN)) < 200


# ----------------------------------------------------------------------------------------------------------- proofs


@pytest.mark.parametrize("message", [None, info(51)], ids=["heartbeat", "sample"])
def test_every_message_is_a_small_proof_of_its_counter(message: InfoMessages | None) -> None:
    """Kept, and shown to its sender later: to believe the rest of the network it needs no more than its own key."""
    late = 366 * 86_400
    said = body(message, slot=SLOT, counter=late)
    heard = read(encode(said, SIGN), regions=51)
    assert len(heard.proof) < 150
    assert heard.proof == proof_in(encode(said, SIGN))
    assert proven(heard.proof, SENDER, fake_verify) == (SLOT, late)
    assert proof_digest(heard.proof) == DIGEST


def test_a_proof_is_of_its_sender_only() -> None:
    """Whoever holds another key has not said it; nor has anybody in a network whose id is signed with it."""
    proof = read(encode(body(), SIGN)).proof
    assert proven(proof, 2, fake_verify) is None
    assert proven(proof, SENDER, lambda number, *signed: fake_verify(number, signed[0], b"id", *signed[1:])) is None


@pytest.mark.parametrize("place", range(3))
def test_no_part_of_a_proof_can_be_changed(place: int) -> None:
    """Head, hash or signature of another message: none of them goes with the two others."""
    parts, others = (
        msgspec.msgpack.decode(read(encode(body(counter=counter, heard={}, records=()), SIGN)).proof)
        for counter in (5, 6)
    )
    if place == 1:
        others[1] = bytes(32)
    parts[place] = others[place]
    assert proven(msgspec.msgpack.encode(parts), SENDER, fake_verify) is None


def test_a_message_is_no_proof_and_a_proof_no_message() -> None:
    """Both have three parts: the rest is not its hash."""
    payload = encode(body(), SIGN)
    assert proven(payload, SENDER, fake_verify) is None
    assert refusal(read(payload).proof).reason == "bad-signature"


@pytest.mark.parametrize(
    "raw", [b"", b"nonsense", b"\x91" * 100_000, encode(body(), SIGN)[:-1], b"\x93\xc4\0\xc4\0\xc4\0"]
)
def test_what_is_no_proof_proves_nothing(raw: bytes) -> None:
    """It comes from a neighbour, who may send anything in its place."""
    assert proven(raw, SENDER, lambda *_: True) is None
    assert proof_digest(raw) is None


@pytest.mark.parametrize("change", [{"counter": -1}, {"counter": 2**63}, {"slot": -1}, {"slot": 2**63}])
def test_a_proof_of_what_cannot_be_proves_nothing(change: dict[str, int]) -> None:
    """Not even the own key can make a counter that no ledger holds."""
    head, rest, _ = pieces(encode(body(**change), SIGN))
    made = [head, hashlib.sha256(rest).digest(), signature(head, rest)]
    assert proven(msgspec.msgpack.encode(made), SENDER, fake_verify) is None


def test_a_long_head_is_refused() -> None:
    """Heads are kept on disk and told again in every slot: a neighbour must not make them as long as it likes."""
    head, rest, _ = pieces(encode(body(), SIGN))
    fields = msgspec.msgpack.decode(head)
    assert read(wrapped(msgspec.msgpack.encode([*fields, bytes(200)]), rest)).body == body()
    assert refusal(wrapped(msgspec.msgpack.encode([*fields, bytes(300)]), rest)).reason == "malformed"


def test_proofs_arrive() -> None:
    """Of those neighbours that may need one."""
    shown = read(encode(body(), SIGN)).proof
    assert read(encode(body(proofs={0: shown, 3: b"x"}), SIGN)).body.proofs == {0: shown, 3: b"x"}


def test_when_a_certificate_expires_arrives_and_disturbs_no_earlier_version() -> None:
    """Version 0.1.0 reads five fields after the head, and must not refuse a sixth; nor must we miss it in its words."""

    class Before(msgspec.Struct, array_like=True):
        heard: dict[int, tuple[int, int]]
        prior: bytes = b""
        prior_known: bytes = b""
        records: tuple[Record, ...] = ()
        proofs: dict[int, bytes] = {}

    payload = encode(body(expires=2_000_000_000), SIGN)
    assert read(payload).body.expires == 2_000_000_000
    head, rest, _ = pieces(payload)
    old = msgspec.msgpack.decode(rest, type=Before)
    assert old.heard == body().heard
    assert read(wrapped(head, msgspec.msgpack.encode(old))).body.expires == 0


def test_a_message_of_1000_regions_costs_its_vectors_and_little_more() -> None:
    """Design: vectors travel as raw float64; packed as numbers they would be larger and much slower to read."""
    assert len(encode(body(info(1000)), SIGN)) < 3 * 8 * 1000 + 1000 + 400


def test_the_slot_can_be_seen_first() -> None:
    """A message that came early is kept by its slot, before anything of it is checked."""
    assert peek(encode(body(), SIGN)) == (SLOT, DIGEST)
    with pytest.raises(MessageRefused, match="not a message of dpcrowd") as caught:
        peek(b"nonsense")
    assert caught.value.reason == "malformed"


@pytest.mark.parametrize("version", [VERSION - 1, VERSION, VERSION + 1])
def test_versions_beside_ours_are_understood(version: int) -> None:
    """Otherwise a network could only be updated all at once."""
    heard = read(encode(body(info(), version=version), SIGN))
    assert heard.message is not None


@pytest.mark.parametrize("message", [None, info()], ids=["heartbeat", "sample"])
def test_what_a_later_version_adds_is_ignored(message: InfoMessages | None) -> None:
    """The next version may add places at the ends of head, rest and envelope; this one must still read them."""
    plain = body(message, version=VERSION + 1)
    head, rest, _ = pieces(encode(plain, SIGN))
    more = {"new": [1.5, None, "text"]}, b"more"
    parts = msgspec.msgpack.decode(head), msgspec.msgpack.decode(rest)
    parts[1].extend(structs.astuple(plain)[len(parts[0]) + len(parts[1]) :])  # empty ones are not sent
    longer = [msgspec.msgpack.encode([*part, *more]) for part in parts]
    for payload in (wrapped(*longer), msgspec.msgpack.encode([*longer, signature(*longer), 1, {}])):
        heard = read(payload)
        assert heard.body == plain
        assert (heard.message is None) == (message is None)


def test_words_are_compared_without_what_was_heard() -> None:
    """A node that restarts tells the same slot again, but its memory of others may have grown: no contradiction."""
    first = encode(body(info()), SIGN)
    assert same_content(first, first)
    assert same_content(first, encode(body(info(), heard={}, counter=6), SIGN))
    other = info(info_vec=info().info_vec * 1.01)
    assert not same_content(first, encode(body(other), SIGN))
    assert not same_content(first, encode(body(), SIGN))
    assert not same_content(first, encode(body(info(), prior=bytes(24)), SIGN))


# -------------------------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\x00",
        b"nonsense",
        encode(body(), SIGN)[:-1],
        encode(body(), SIGN) + b"\x00",
        wrapped(b"", b""),
        wrapped(HEAD, b""),
        wrapped(b"", REST),
        packed([1, DIGEST]),
        wrapped(msgspec.msgpack.encode({"version": 1}), REST),
        packed([1, DIGEST, 1, float(SLOT), 1, 0, {}]),
        packed([1, DIGEST, 1, SLOT, 1, 0]),
        packed([1, DIGEST, 1, SLOT, 1, 0, {"0": [1, 2]}]),
        packed([1, DIGEST, 1, SLOT, 1, 0, {0: [1]}]),
        packed([1, DIGEST, 1, SLOT, 1, 0, {}, b"", b"", [], {0: "text"}]),
        wrapped(HEAD, b"\x91\xdf\xff\xff\xff\xff"),
        wrapped(HEAD, REST[:-2] + b"\xdd\xff\xff\xff\xff"),
        msgspec.msgpack.encode([HEAD, REST, "text"]),
        msgspec.msgpack.encode([HEAD + REST, signature(HEAD, REST)]),
    ],
)
def test_what_is_no_message_is_refused(payload: bytes) -> None:
    """Half a message, other types, a list that claims four thousand million entries."""
    assert refusal(payload).reason == "malformed"


def test_arrays_without_end_do_not_exhaust_the_decoder() -> None:
    """100 kB of opening brackets where a later version may add something once raised RecursionError in the node."""
    deep = b"\x91" * 100_000 + b"\xc0"
    in_head, in_rest = b"\x97" + HEAD[1:] + deep, b"\x96" + REST[1:] + deep
    envelope = b"\x94" + msgspec.msgpack.encode([HEAD, REST, b""])[1:] + deep
    for payload in (wrapped(in_head, REST), wrapped(HEAD, in_rest), envelope):
        assert refusal(payload).reason == "malformed"
    for payload in (wrapped(in_head, REST), envelope):
        with pytest.raises(MessageRefused):
            peek(payload)
    assert not same_content(wrapped(HEAD, in_rest), wrapped(HEAD, REST))


@pytest.mark.parametrize(
    ("change", "reason", "text"),
    [
        ({"server": 2}, "wrong-sender", "server-1 sent a message in the name of server-2."),
        ({"server": 99}, "wrong-sender", "in the name of number 99."),
        ({"server": -1}, "wrong-sender", "in the name of number -1."),
        ({"version": VERSION + 2}, "version", f"version {VERSION + 2}"),
        ({"version": VERSION - 2}, "version", f"version {VERSION - 2}"),
        ({"slot": -1}, "wrong-slot", "slot -1; allowed: 0 to"),
        ({"slot": 2**64 - 1}, "wrong-slot", "slot 18446744073709551615; allowed: 0 to"),
        ({"round": 0}, "malformed", "cannot be"),
        ({"counter": -1}, "malformed", "cannot be"),
        ({"counter": 2**63}, "malformed", "cannot be"),
        ({"heard": {0: (1, 2**64 - 1)}}, "malformed", "cannot be"),
        ({"heard": {0: (1, -1)}}, "malformed", "cannot be"),
    ],
)
def test_a_wrong_header_is_refused(change: dict[str, Any], reason: str, text: str) -> None:
    """Each of them, used, would count one server's data as another's, twice, or for another slot."""
    for message in (None, info()):
        caught = refusal(encode(body(message, **change), SIGN))
        assert caught.reason == reason
        assert text in str(caught)


def test_another_configuration_is_named_with_both_digests() -> None:
    """The operators of both have to see which file differs."""
    other = bytes(range(100, 116))
    caught = refusal(encode(body(info(), digest=other), SIGN))
    assert caught.reason == "other-configuration"
    for part in ("server-1", other.hex(), DIGEST.hex()):
        assert part in str(caught)


def test_a_very_long_digest_is_not_repeated_in_full() -> None:
    """A refusal is logged: a neighbour must not be able to write megabytes there."""
    assert len(str(refusal(encode(body(digest=bytes(10**6)), SIGN)))) < 300


@pytest.mark.parametrize("message", [None, info()], ids=["heartbeat", "sample"])
def test_a_body_that_another_key_signed_is_refused(message: InfoMessages | None) -> None:
    """The authority could mint a certificate for any name; only the pinned key says who speaks."""
    for forged in (encode(body(message), fake_sign(2)), encode(body(message), lambda *_: bytes(64))):
        assert refusal(forged).reason == "bad-signature"


def test_a_signature_does_not_carry_over_to_another_body() -> None:
    """A good signature of one message under the words of another, or half of them."""
    one, other = pieces(encode(body(info()), SIGN)), pieces(encode(body(counter=6), SIGN))
    for head, rest, signed in ((0, 0, 1), (1, 0, 0), (0, 1, 0)):
        mixed = [(one, other)[of][place] for place, of in enumerate((head, rest, signed))]
        assert refusal(msgspec.msgpack.encode(mixed)).reason == "bad-signature"


def test_a_signed_body_does_not_make_its_record_true() -> None:
    """A record is signed by its origin over digest, origin, slot and vectors: not even the sender may alter it."""
    said, other = info(), info(info_vec=info().info_vec * 0.5)
    good = signed_record(said)
    forged = [
        signed_record(said, by=2),
        signed_record(said, slot=SLOT - 1),
        Record(SENDER, signed_record(other).info_vec, good.info_mat, good.signature),
        Record(SENDER, good.info_vec, signed_record(info(info_mat=said.info_mat * 2)).info_mat, good.signature),
        Record(SENDER, good.info_vec, good.info_mat, good.signature[:-1]),
        record_of(said, digest=bytes(16), origin=SENDER, slot=SLOT, sign=SIGN),
    ]
    for record in forged:
        caught = refusal(encode(body(said, records=(record,)), SIGN))
        assert caught.reason == "bad-signature"
        assert "a record of server-1" in str(caught)


def test_a_record_is_signed_with_where_it_belongs() -> None:
    """Each part alone makes another signature, also where two servers were to share a key."""
    signed = []
    for digest, origin, slot in ((DIGEST, 1, 7), (bytes(16), 1, 7), (DIGEST, 2, 7), (DIGEST, 1, 8)):
        record_of(info(), digest=digest, origin=origin, slot=slot, sign=lambda *parts: signed.append(parts) or b"")  # type: ignore[func-returns-value]
    assert len(set(signed)) == 4


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"records": "info_vec"}, "info_vec"),
        ({"records": "info_mat"}, "info_mat"),
        ({"prior": bytes(16)}, "prior"),
        ({"prior": b""}, "prior"),
        ({"prior_known": b"\1\1"}, "prior_known"),
        ({"prior_known": b""}, "prior_known"),
        ({"prior_known": b"\1\1\2"}, "prior_known"),
    ],
)
def test_another_length_is_refused(change: dict[str, Any], name: str) -> None:
    """A shorter vector would be broadcast or read beyond its end."""
    if "records" in change:
        cut = {name: getattr(info(), name)[:, :-1]}
        change = {"records": (signed_record(info(**cut)),)}
    caught = refusal(encode(body(info(), **change), SIGN))
    assert caught.reason == "wrong-length"
    assert f"server-1 sent {name} of" in str(caught)


def test_a_diagonal_is_no_matrix() -> None:
    """Two nodes with different forms must not fuse one another's numbers."""
    assert refusal(encode(body(info()), SIGN), form="matrix").reason == "wrong-length"
    assert refusal(encode(body(info(form="matrix")), SIGN)).reason == "wrong-length"


@pytest.mark.parametrize("form", ["diagonal", "matrix"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["info_vec", "info_mat", "prior"])
def test_what_is_not_finite_is_refused(name: str, value: float, form: str) -> None:
    """One NaN is in every estimate of the whole network a few slots later."""
    said = info(form=form)
    getattr(said, name)[..., -1] = value
    caught = refusal(encode(body(said), SIGN), form=form)
    assert caught.reason == "not-finite"
    assert name in str(caught)


def test_negative_information_is_refused() -> None:
    """It would make an estimate less certain than before, or its variance negative."""
    assert refusal(encode(body(info(info_mat=np.array([[0.1, -1e-9, 0.1]]))), SIGN)).reason == "negative-information"
    heard = read(encode(body(info(info_mat=np.array([[0.1, -0.0, 0.1]]), info_vec=np.zeros((1, 3)))), SIGN))
    assert heard.message is not None


@pytest.mark.parametrize("form", ["diagonal", "matrix"])
@pytest.mark.parametrize(
    ("vector", "information", "prior"),
    [(1e308, 1.0, 0.0), (1.0, 1e308, 0.0), (1.0, 1.0, 1e308), (1.0, 0.0, 0.0), (0.0, 5e-324, 0.0), (1e25, 1.0, 0.0)],
)
def test_numbers_that_would_overflow_are_refused(vector: float, information: float, prior: float, form: str) -> None:
    """Finite, and yet a product with them is infinite: one broken neighbour would end everybody's filter."""
    mat = np.full((1, REGIONS), information) if form == "diagonal" else np.eye(REGIONS)[None] * information
    said = info(info_vec=np.full((1, REGIONS), vector), info_mat=mat, prior=np.full((1, REGIONS), prior))
    caught = refusal(encode(body(said), SIGN), form=form)
    assert caught.reason == "absurd"
    assert str(caught).startswith("server-1 sent ")


def test_only_the_own_record_is_taken() -> None:
    """One hop: a record of somebody else, or one twice, would be counted without the neighbour in between."""
    own, other = signed_record(info()), signed_record(info(), origin=2)
    for records in [(other,), (own, own), (own, other), (other, own)]:
        caught = refusal(encode(body(info(), records=records), SIGN))
        assert caught.reason == "malformed"
        assert "allowed: its own" in str(caught)


def test_too_many_records_are_refused_before_they_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Verifying ten thousand signatures takes longer than a slot."""
    monkeypatch.setattr(wire, "_MOST_RECORDS", 3)
    small = Record(2, b"", b"", b"")
    assert "number of records" in str(refusal(encode(body(records=(small,) * 4), SIGN)))
    assert "4 records" not in str(refusal(encode(body(records=(small,) * 3), SIGN)))
