"""The layout of a message: its places, and between bytes and structures; nothing is believed yet."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import msgspec
import numpy as np
from msgspec.structs import astuple

from dpcrowd.arrays import Floats
from dpcrowd.schemes.messages import InfoMessages

__all__ = [
    "BODY",
    "UNREADABLE",
    "VERSION",
    "Body",
    "Envelope",
    "Record",
    "Refused",
    "Sign",
    "Verify",
    "body_of",
    "encode",
    "encoder",
    "envelopes",
    "hash_of",
    "heads",
    "most_bytes",
    "peek",
    "record_of",
    "same_words",
    "signed_parts",
    "written_after",
]

VERSION = 1

Sign = Callable[..., bytes]
"""sign(*parts) -> signature, for one network"""
Verify = Callable[..., bool]
"""verify(server number, signature, *parts) -> whether one of its pinned keys made it"""

BODY = b"dpcrowd message"
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


class Head(msgspec.Struct, array_like=True, frozen=True):
    version: int
    digest: bytes
    server: int
    slot: int
    round: int
    counter: int


class Body(Head, array_like=True, frozen=True):
    """What a node says in one slot and round.

    counter  how many samples its ledger has ever paid for
    heard    of each neighbour the highest counter that it said, and how many slots ago (smaller than the slot itself):
             whoever restored an old copy learns it from this
    prior    raw float64, empty without a record; prior_known: a byte a region
    proofs   of some of `heard`: what the neighbour itself signed
    since    of some of `heard`: how many slots ago the memory of the neighbour began, if that is longer; since 0.2
    expires  when the sender's certificate expires, in seconds since 1970; 0: it does not say
    after    whether it was written again after the exchange of its slot, while the next slot was open: then what it
             echoes was heard by then; since 0.2
    """

    heard: dict[int, tuple[int, int]]
    prior: bytes = b""
    prior_known: bytes = b""
    records: tuple[Record, ...] = ()
    proofs: dict[int, bytes] = {}
    since: dict[int, int] = {}
    expires: int = 0
    after: bool = False


class Rest(msgspec.Struct, array_like=True, frozen=True):
    heard: dict[int, tuple[int, int]]
    prior: bytes = b""
    prior_known: bytes = b""
    records: tuple[Record, ...] = ()
    proofs: dict[int, bytes] = {}
    since: dict[int, int] = {}
    expires: int = 0
    after: bool = False


class Envelope(msgspec.Struct, array_like=True, frozen=True):
    """Of a message; a proof has the hash in place of the rest."""

    head: bytes
    rest: bytes
    signature: bytes


# A few thousand arrays inside one another end the decoder's recursion: RecursionError is no error of msgspec's.
UNREADABLE = (msgspec.MsgspecError, RecursionError)
_IN_HEAD = len(Head.__struct_fields__)
encoder = msgspec.msgpack.Encoder()
envelopes = msgspec.msgpack.Decoder(Envelope)
heads = msgspec.msgpack.Decoder(Head)
rests = msgspec.msgpack.Decoder(Rest)


def record_of(message: InfoMessages, *, digest: bytes, origin: int, slot: int, sign: Sign) -> Record:
    """The own sample, signed."""
    info_vec, info_mat = _raw(message.info_vec), _raw(message.info_mat)
    return Record(origin, info_vec, info_mat, sign(*signed_parts(digest, origin, slot, info_vec, info_mat)))


def encode(body: Body, sign: Sign) -> bytes:
    """The payload that travels."""
    fields = astuple(body)
    head, rest = encoder.encode(fields[:_IN_HEAD]), encoder.encode(fields[_IN_HEAD:])
    return encoder.encode(Envelope(head, rest, sign(BODY, head, hash_of(rest))))


def hash_of(rest: bytes) -> bytes:
    return hashlib.sha256(rest).digest()


def body_of(envelope: Envelope) -> Body:
    return Body(*astuple(heads.decode(envelope.head)), *astuple(rests.decode(envelope.rest)))


def signed_parts(digest: bytes, origin: int, slot: int, info_vec: bytes, info_mat: bytes) -> tuple[bytes, ...]:
    return _RECORD, digest, origin.to_bytes(8, "little"), slot.to_bytes(8, "little"), info_vec, info_mat


def _raw(values: Floats) -> bytes:
    return np.ascontiguousarray(values, dtype="<f8").tobytes()


def most_bytes(servers: int, regions: int, form: str) -> int:
    """That a message of a network can have, with room for what later versions add."""
    vectors = 3 * 8 * regions + regions if form == "diagonal" else 2 * 8 * regions + 8 * regions**2 + regions
    return 2 * vectors + 512 * servers + 8192


def peek(payload: bytes) -> tuple[int, bytes]:
    """The slot that a payload says it is for, and under which configuration; nothing of it has been checked."""
    try:
        head = heads.decode(envelopes.decode(payload).head)
        return head.slot, head.digest
    except UNREADABLE:
        raise Refused("malformed", "not a message of dpcrowd.") from None


def written_after(payload: bytes) -> bool:
    """Whether a payload says that it was written after the exchange of its slot; nothing of it has been checked."""
    try:
        return rests.decode(envelopes.decode(payload).rest).after
    except UNREADABLE:
        return False


def same_words(payload: bytes, other: bytes) -> bool:
    """Whether two payloads that `peek` could read say the same of their slot.

    Whoever restarts tells its slot again, and may by then remember more of its neighbours than in the first telling.
    """
    try:
        return payload == other or _words(payload) == _words(other)
    except UNREADABLE:  # `peek` has read the head only
        return False


def _words(payload: bytes) -> tuple[object, ...]:
    body = body_of(envelopes.decode(payload))
    return body.slot, body.round, body.prior, body.prior_known, body.records
