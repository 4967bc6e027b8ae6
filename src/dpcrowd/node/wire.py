"""The message that a node sends its neighbours once a slot and round, as bytes and back, and what is checked first.

A payload is MessagePack: [head, rest, signature]. Head and rest are arrays whose places have fixed meanings; later
versions may add places at their ends, which earlier ones ignore, so that version N talks to N - 1. Vectors are raw
little-endian float64. Servers are named by their number in the configuration whose digest the head carries.

Two signatures. The sender signs its head and a hash of the rest: Zenoh authenticates the name of a neighbour by its
certificate, which any authority could mint; the signature is checked against the key that network.toml pins. The origin
of a record signs (digest, origin, slot, vectors), so that a record may be handed on in later rounds and still be known
as its own. The network's id is signed with both (`keys.words`): no word of one network counts in another.

A proof of "I said counter c in slot s" is (head, hash of the rest, signature): about 140 bytes of any message, which
whoever said it can check with its own pinned keys. Nothing else in it has to be known any more: neither the digest of a
revision that is over nor the number that the server had in it. It is the key, which one server has, that says who.

A message without a record is the heartbeat: under 200 bytes, and nobody waits for a silent server. Only what proves
something to a neighbour that seems to have lost it, or was not heard of in the last slot, comes on top.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec
import numpy as np
from msgspec.structs import astuple
from numpy.typing import NDArray

from dpcrowd.schemes.messages import InfoMessages

__all__ = [
    "VERSION",
    "Body",
    "Heard",
    "Record",
    "Refused",
    "decode",
    "encode",
    "info_messages",
    "peek",
    "proof_digest",
    "proven",
    "record_of",
    "same_words",
]

VERSION = 1
DIGEST_BYTES = 16
SIGNATURE_BYTES = 64
MOST_RECORDS = 10_000
MOST_HEAD_BYTES = 256
"""Heads are kept and told again as proofs, whatever a later version adds to them."""
MOST_SLOTS = MOST_SAMPLES = 1 << 62
"""Nothing reaches them; numbers beyond could neither be stored nor counted on from."""
LARGEST, LEAST_INFORMATION, MOST_INFORMATION = 1e24, 1e-60, 1e100
"""Counts stay below 2^52 and epsilon above 1e-9: nothing honest is beyond these, and nothing within them overflows."""

Floats = NDArray[np.float64]
Sign = Callable[..., bytes]
"""sign(*parts) -> signature, for one network"""
Verify = Callable[..., bool]
"""verify(server number, signature, *parts) -> whether one of its pinned keys made it"""

_BODY = b"dpcrowd message"
_RECORD = b"dpcrowd record"


class Refused(Exception):
    """A message that is not used: `reason` is one of a few words that are counted, the text explains."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class Record(msgspec.Struct, array_like=True, frozen=True):
    """One server's noisy sample of a slot, as information."""

    origin: int
    info_vec: bytes
    info_mat: bytes
    signature: bytes


class _Head(msgspec.Struct, array_like=True, frozen=True):
    version: int
    digest: bytes
    server: int
    slot: int
    round: int
    counter: int


class Body(_Head, array_like=True, frozen=True):
    """What a node says in one slot and round.

    counter  how many samples its ledger has ever paid for
    heard    of each neighbour the highest counter that it said, and how many slots ago (smaller than the slot itself):
             whoever restored an old copy learns it from this
    prior    raw float64, empty without a record; prior_known: a byte a region
    proofs   of some of `heard`: what the neighbour itself signed
    """

    heard: dict[int, tuple[int, int]]
    prior: bytes = b""
    prior_known: bytes = b""
    records: tuple[Record, ...] = ()
    proofs: dict[int, bytes] = {}


class _Rest(msgspec.Struct, array_like=True, frozen=True):
    heard: dict[int, tuple[int, int]]
    prior: bytes = b""
    prior_known: bytes = b""
    records: tuple[Record, ...] = ()
    proofs: dict[int, bytes] = {}


class _Envelope(msgspec.Struct, array_like=True, frozen=True):
    """Of a message; a proof has the hash in place of the rest."""

    head: bytes
    rest: bytes
    signature: bytes


@dataclass(frozen=True)
class Heard:
    """A message that was checked: who said it, and what a scheme can use of it (None: a heartbeat).

    proof  that its sender has said this counter in this slot
    """

    body: Body
    message: InfoMessages | None
    proof: bytes


# A few thousand arrays inside one another end the decoder's recursion: RecursionError is no error of msgspec's.
_UNREADABLE = (msgspec.MsgspecError, RecursionError)
_IN_HEAD = len(_Head.__struct_fields__)
_encoder = msgspec.msgpack.Encoder()
_envelopes = msgspec.msgpack.Decoder(_Envelope)
_heads = msgspec.msgpack.Decoder(_Head)
_rests = msgspec.msgpack.Decoder(_Rest)


def record_of(message: InfoMessages, *, digest: bytes, origin: int, slot: int, sign: Sign) -> Record:
    """The own sample, signed."""
    info_vec, info_mat = _raw(message.info_vec), _raw(message.info_mat)
    return Record(origin, info_vec, info_mat, sign(*_signed(digest, origin, slot, info_vec, info_mat)))


def encode(body: Body, sign: Sign) -> bytes:
    """The payload that travels."""
    fields = astuple(body)
    head, rest = _encoder.encode(fields[:_IN_HEAD]), _encoder.encode(fields[_IN_HEAD:])
    return _encoder.encode(_Envelope(head, rest, sign(_BODY, head, _hash(rest))))


def _hash(rest: bytes) -> bytes:
    return hashlib.sha256(rest).digest()


def _body(envelope: _Envelope) -> Body:
    return Body(*astuple(_heads.decode(envelope.head)), *astuple(_rests.decode(envelope.rest)))


def decode(
    payload: bytes,
    *,
    sender: int,
    digest: bytes,
    slot: int,
    regions: int,
    form: str,
    verify: Verify,
    names: Mapping[int, str],
) -> Heard:
    """Check a payload from the neighbour `sender` for the open slot; `Refused` says what is wrong with it."""
    try:
        envelope = _envelopes.decode(payload)
        body = _body(envelope)
    except _UNREADABLE:
        raise Refused("malformed", f"{names[sender]} sent something that is not a message of dpcrowd.") from None
    who = names[sender]
    if body.server != sender:
        said = names.get(body.server, f"number {body.server}")
        raise Refused("wrong-sender", f"{who} sent a message in the name of {said}.")
    rest_hash = _hash(envelope.rest)
    if not verify(sender, envelope.signature, _BODY, envelope.head, rest_hash):
        raise Refused("bad-signature", f"a message of {who} is not signed by a key that network.toml pins for it.")
    if body.digest != digest:
        raise Refused(
            "other-configuration",
            f"{who} runs another configuration: {body.digest.hex()[:32]}, here {digest.hex()}. Compare network.toml.",
        )
    if not VERSION - 1 <= body.version <= VERSION + 1:
        raise Refused("version", f"{who} speaks version {body.version}; this node speaks {VERSION} and its neighbours.")
    if body.slot != slot or not 0 <= slot <= MOST_SLOTS:
        raise Refused("wrong-slot", f"{who} sent slot {body.slot} while slot {slot} is open.")
    counters = [body.counter, *(2 * counter for _, counter in body.heard.values())]  # an echo may be counted on from
    if body.round < 1 or min(counters) < 0 or max(counters) > MOST_SAMPLES or len(body.records) > MOST_RECORDS:
        raise Refused("malformed", f"{who} sent a round, counter or number of records that cannot be.")
    if len(envelope.head) > MOST_HEAD_BYTES:
        raise Refused("malformed", f"{who} sent a head of {len(envelope.head)} bytes; allowed: {MOST_HEAD_BYTES}.")
    proof = _encoder.encode(_Envelope(envelope.head, rest_hash, envelope.signature))
    return Heard(body, info_messages(body, digest, regions, form, verify, names), proof)


def proven(proof: bytes, server: int, verify: Verify) -> tuple[int, int] | None:
    """The (slot, counter) that a proof shows to have been said by whoever holds this server's keys; None: nothing."""
    try:
        said = _envelopes.decode(proof)
        head = _heads.decode(said.head)
    except _UNREADABLE:
        return None
    if not verify(server, said.signature, _BODY, said.head, said.rest):
        return None
    possible = 0 <= head.slot <= MOST_SLOTS and 0 <= head.counter <= MOST_SAMPLES
    return (head.slot, head.counter) if possible else None


def proof_digest(proof: bytes) -> bytes | None:
    """The configuration under which a proof was said, by what it says itself; None if it is none."""
    try:
        return _heads.decode(_envelopes.decode(proof).head).digest
    except _UNREADABLE:
        return None


def info_messages(
    body: Body, digest: bytes, regions: int, form: str, verify: Verify, names: Mapping[int, str]
) -> InfoMessages | None:
    """The sender's own record as the scheme's message; None if it has none."""
    who = names[body.server]
    if not body.records:
        return None
    own = [record for record in body.records if record.origin == body.server]
    if len(own) != 1 or len(body.records) != 1:
        raise Refused("malformed", f"{who} sent {len(body.records)} records in round {body.round}; allowed: its own.")
    record = own[0]
    shape = (1, regions) if form == "diagonal" else (1, regions, regions)
    info_vec = _floats(record.info_vec, (1, regions), who, "info_vec")
    info_mat = _floats(record.info_mat, shape, who, "info_mat")
    prior = _floats(body.prior, (1, regions), who, "prior")
    if len(body.prior_known) != regions or not set(body.prior_known) <= {0, 1}:
        raise Refused("wrong-length", f"{who} sent prior_known of {len(body.prior_known)} bytes; allowed: {regions}.")
    parts = _signed(digest, record.origin, body.slot, record.info_vec, record.info_mat)
    if not verify(record.origin, record.signature, *parts):
        raise Refused("bad-signature", f"a record of {who} is not signed by a key that network.toml pins for it.")
    if form == "diagonal" and (info_mat < 0).any():
        raise Refused("negative-information", f"{who} sent an info_mat below 0: no measurement has that.")
    _check_magnitudes(info_vec, info_mat, prior, who)
    known = np.frombuffer(body.prior_known, dtype=np.uint8).astype(np.bool_)[None, :]
    return InfoMessages(np.ones(1, dtype=np.bool_), info_vec, info_mat, prior, known)


def _signed(digest: bytes, origin: int, slot: int, info_vec: bytes, info_mat: bytes) -> tuple[bytes, ...]:
    return _RECORD, digest, origin.to_bytes(8, "little"), slot.to_bytes(8, "little"), info_vec, info_mat


def _raw(values: Floats) -> bytes:
    return np.ascontiguousarray(values, dtype="<f8").tobytes()


def _floats(raw: bytes, shape: tuple[int, ...], who: str, name: str) -> Floats:
    size = int(np.prod(shape))
    if len(raw) != 8 * size:
        raise Refused("wrong-length", f"{who} sent {name} of {len(raw)} bytes; allowed: {8 * size}.")
    values = np.frombuffer(raw, dtype="<f8").astype(np.float64).reshape(shape)
    if not np.isfinite(values).all():
        raise Refused("not-finite", f"{who} sent {name} with NaN or infinity; allowed: finite numbers.")
    return values


def _check_magnitudes(info_vec: Floats, info_mat: Floats, prior: Floats, who: str) -> None:
    """Finite is not enough: 1e308 times anything is infinite, and one neighbour would end everybody's filter."""
    information = np.abs(info_mat if info_mat.ndim == 2 else np.diagonal(info_mat, axis1=1, axis2=2))
    absurd = (information < LEAST_INFORMATION) & (information != 0.0)
    absurd |= (np.abs(prior) > LARGEST) | (np.abs(info_vec) > LARGEST * np.minimum(information, MOST_INFORMATION))
    if absurd.any() or (np.abs(info_mat) > MOST_INFORMATION).any():
        raise Refused("absurd", f"{who} sent numbers that no count of people and no epsilon can give.")


def peek(payload: bytes) -> tuple[int, bytes]:
    """The slot that a payload says it is for, and under which configuration; nothing of it has been checked."""
    try:
        body = _body(_envelopes.decode(payload))
        return body.slot, body.digest
    except _UNREADABLE:
        raise Refused("malformed", "not a message of dpcrowd.") from None


def same_words(payload: bytes, other: bytes) -> bool:
    """Whether two payloads that `peek` could read say the same of their slot.

    Whoever restarts tells its slot again, and may by then remember more of its neighbours than in the first telling.
    """
    return payload == other or _words(payload) == _words(other)


def _words(payload: bytes) -> tuple[object, ...]:
    body = _body(_envelopes.decode(payload))
    return body.slot, body.round, body.prior, body.prior_known, body.records
