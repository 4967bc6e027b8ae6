"""The message that a node sends its neighbours once a slot and round, as bytes and back, and what is checked first.

A payload is MessagePack: [body, signature]. The body is an array whose places have fixed meanings; later versions may
add places at its end, which earlier ones ignore, so that version N talks to N - 1. Vectors are raw little-endian
float64. Servers are named by their number in the configuration whose digest the body carries.

Two signatures. The sender signs the whole body: Zenoh authenticates the name of a neighbour by its certificate, which
any authority could mint; the signature is checked against the key that network.toml pins. The origin of a record
signs (digest, origin, slot, vectors), so that a record may be handed on in later rounds and still be known as its own.

A message without a record is the heartbeat: under 200 bytes, and nobody waits for a silent server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec
import numpy as np
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
    "record_of",
    "same_words",
]

VERSION = 1
DIGEST_BYTES = 16
SIGNATURE_BYTES = 64
MOST_RECORDS = 10_000
MOST_SLOTS = MOST_SAMPLES = 1 << 62
"""Nothing reaches them; numbers beyond could neither be stored nor counted on from."""
LARGEST, LEAST_INFORMATION, MOST_INFORMATION = 1e24, 1e-60, 1e100
"""Counts stay below 2^52 and epsilon above 1e-9: nothing honest is beyond these, and nothing within them overflows."""

Floats = NDArray[np.float64]
Sign = Callable[..., bytes]
"""sign(*parts) -> signature"""
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


class Body(msgspec.Struct, array_like=True, frozen=True):
    """What a node says in one slot and round.

    counter  how many samples its ledger has ever paid for
    heard    of each neighbour the highest counter that it said, and how many slots ago (smaller than the slot itself):
             whoever restored an old copy learns it from this
    prior    raw float64, empty without a record; prior_known: a byte a region
    """

    version: int
    digest: bytes
    server: int
    slot: int
    round: int
    counter: int
    heard: dict[int, tuple[int, int]]
    prior: bytes = b""
    prior_known: bytes = b""
    records: tuple[Record, ...] = ()


class _Envelope(msgspec.Struct, array_like=True, frozen=True):
    body: bytes
    signature: bytes


@dataclass(frozen=True)
class Heard:
    """A message that was checked: who said it, and what a scheme can use of it (None: a heartbeat)."""

    body: Body
    message: InfoMessages | None


# A few thousand arrays inside one another end the decoder's recursion: RecursionError is no error of msgspec's.
_UNREADABLE = (msgspec.MsgspecError, RecursionError)
_encoder = msgspec.msgpack.Encoder()
_envelopes = msgspec.msgpack.Decoder(_Envelope)
_bodies = msgspec.msgpack.Decoder(Body)


def record_of(message: InfoMessages, *, digest: bytes, origin: int, slot: int, sign: Sign) -> Record:
    """The own sample, signed."""
    info_vec, info_mat = _raw(message.info_vec), _raw(message.info_mat)
    return Record(origin, info_vec, info_mat, sign(*_signed(digest, origin, slot, info_vec, info_mat)))


def encode(body: Body, sign: Sign) -> bytes:
    """The payload that travels."""
    raw = _encoder.encode(body)
    return _encoder.encode(_Envelope(raw, sign(_BODY, raw)))


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
        body = _bodies.decode(envelope.body)
    except _UNREADABLE:
        raise Refused("malformed", f"{names[sender]} sent something that is not a message of dpcrowd.") from None
    who = names[sender]
    if body.server != sender:
        said = names.get(body.server, f"number {body.server}")
        raise Refused("wrong-sender", f"{who} sent a message in the name of {said}.")
    if not verify(sender, envelope.signature, _BODY, envelope.body):
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
    return Heard(body, info_messages(body, digest, regions, form, verify, names))


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
        body = _bodies.decode(_envelopes.decode(payload).body)
        return body.slot, body.digest
    except _UNREADABLE:
        raise Refused("malformed", "not a message of dpcrowd.") from None


def same_words(payload: bytes, other: bytes) -> bool:
    """Whether two payloads that `peek` could read say the same of their slot.

    Whoever restarts tells its slot again, and may by then remember more of its neighbours than in the first telling.
    """
    return payload == other or _words(payload) == _words(other)


def _words(payload: bytes) -> tuple[object, ...]:
    body = _bodies.decode(_envelopes.decode(payload).body)
    return body.slot, body.round, body.prior, body.prior_known, body.records
