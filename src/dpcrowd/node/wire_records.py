"""Records as they travel in messages of format 2: their layout, what their origin signs, and proofs of equivocation.

A record is one server's sample of a slot, and any server may pass it on:

    [origin, slot, hops, nano, groups, values, signature]

Values are integers, one per region or per group of regions, as zigzag varints (LEB128): 1 to 3 bytes each instead of 32
bytes of information vectors. Everything else takes less than 100 bytes. The origin is a number in the configuration
that is valid in the record's slot, and its signature covers the digest of that configuration and all fields but `hops`,
which every forwarder changes. So a forwarder can drop a record, but neither forge nor alter one.

There is one encoding of each record: varints without leading zeros, exactly as many as there are groups, nothing after
them. An honest server refuses everything else, and so never passes it on; whoever sends it is at fault.

Two records of one origin and slot with different content, both signed, prove that the origin has said one thing to some
servers and another to others (`Equivocation`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import numpy as np

from dpcrowd.arrays import Floats, Ints
from dpcrowd.errors import BadInput

__all__ = [
    "MOST_BESIDES",
    "Equivocation",
    "RecordValues",
    "SignedRecord",
    "most_record_bytes",
    "pack",
    "pack_integers",
    "read_values",
    "same_sample",
    "sign_record",
    "signed_parts",
    "unpack_integers",
    "unpack_proof",
    "unpack_record",
]

MOST_BESIDES = 150
"""Bytes of a record besides its integers."""

_RECORD = b"dpcrowd record 2"
_LARGEST = 1 << 53
_MOST_VARINT_BYTES = 8
_MOST_GROUP_BYTES = 3  # of how far before a region the lowest of its group is
_SIGNATURE = 64


class SignedRecord(msgspec.Struct, array_like=True, frozen=True):
    """One server's sample of a slot, as it travels.

    hops    how many links it has travelled, including the one to the receiver; 0: the origin's own copy
    nano    nano-epsilon that it has cost
    groups  None: every region by itself; otherwise, for each region, how far before it the lowest of its group is
    values  the noisy integers, one per group
    """

    origin: int
    slot: int
    hops: int
    nano: int
    groups: bytes | None
    values: bytes
    signature: bytes


class Equivocation(msgspec.Struct, array_like=True, frozen=True):
    """The proof that an origin has signed two different records for one slot; `first` has the smaller bytes."""

    first: SignedRecord
    second: SignedRecord


@dataclass(frozen=True, eq=False)
class RecordValues:
    """What a record holds: noisy counts (d,), at the lowest region of each group, and the groups (d,)."""

    noisy: Floats
    groups: Ints

    @property
    def is_grouped(self) -> bool:
        """Whether some regions share one draw."""
        return bool((self.groups != np.arange(len(self.groups))).any())


_encoder = msgspec.msgpack.Encoder()
_records = msgspec.msgpack.Decoder(SignedRecord)
_proofs = msgspec.msgpack.Decoder(Equivocation)


def pack(what: SignedRecord | Equivocation) -> bytes:
    """Return the bytes of a record or proof, as they are stored."""
    return _encoder.encode(what)


def unpack_record(stored: bytes) -> SignedRecord:
    """Return the record that was stored."""
    return _records.decode(stored)


def unpack_proof(stored: bytes) -> Equivocation:
    """Return the proof that was stored; `BadInput`: these bytes are not a proof."""
    try:
        return _proofs.decode(stored)
    except msgspec.MsgspecError as error:
        raise BadInput(f"this is not a proof of equivocation: {error}.") from None


def sign_record(
    noisy: Floats,
    *,
    digest: bytes,
    origin: int,
    slot: int,
    nano: int,
    sign: Callable[..., bytes],
    groups: Ints | None = None,
) -> SignedRecord:
    """Return the own sample of a slot, (d,) integers, as a signed record.

    groups  (d,) the lowest region of each region's group, at which `noisy` has the group's sum; None: no groups
    """
    own = np.arange(len(noisy), dtype=np.int64)
    packed = None
    if groups is not None and (groups != own).any():
        packed, noisy = _pack_unsigned(own - groups), noisy[groups == own]
    record = SignedRecord(origin, slot, 0, nano, packed, pack_integers(noisy.astype(np.int64)), b"")
    return msgspec.structs.replace(record, signature=sign(*signed_parts(record, digest)))


def signed_parts(record: SignedRecord, digest: bytes) -> tuple[bytes, ...]:
    """Return what the origin of a record signs; the digest is that of the configuration valid in its slot."""
    numbers = (record.origin, record.slot, record.nano)
    return _RECORD, digest, *(number.to_bytes(8, "little") for number in numbers), record.groups or b"", record.values


def same_sample(record: SignedRecord, other: SignedRecord) -> bool:
    """Whether two records of one origin and slot say the same; they may have travelled differently."""
    return (record.nano, record.groups, record.values) == (other.nano, other.groups, other.values)


def read_values(record: SignedRecord, regions: int) -> RecordValues:
    """Return what a record holds; `BadInput` says what is wrong with its layout."""
    fields = (
        ("origin", record.origin, 0),
        ("slot", record.slot, 0),
        ("hops", record.hops, 1),
        ("nano", record.nano, 1),
    )
    for name, value, least in fields:
        if not least <= value <= _LARGEST:
            raise BadInput(f"a record with {name} {value}; allowed: {least} to 2^53.")
    if len(record.signature) != _SIGNATURE:
        raise BadInput(f"a record with a signature of {len(record.signature)} bytes; allowed: {_SIGNATURE}.")
    own = np.arange(regions, dtype=np.int64)
    groups = own
    if record.groups is not None:
        groups = own - _unsigned(record.groups, regions)
        if (groups < 0).any() or (groups[np.maximum(groups, 0)] != groups).any() or (groups == own).all():
            raise BadInput("a record with groups of regions that are not named by their lowest region.")
    first = np.flatnonzero(groups == own)
    noisy = np.zeros(regions)
    noisy[first] = unpack_integers(record.values, len(first))
    return RecordValues(noisy, groups)


def most_record_bytes(regions: int) -> int:
    """Return an upper bound on the bytes of a record."""
    return MOST_BESIDES + (_MOST_VARINT_BYTES + _MOST_GROUP_BYTES) * regions


# ------------------------------------------------------------------------------------------------------------- varints


def pack_integers(values: Ints) -> bytes:
    """Return integers of at most 2^53 as zigzag varints."""
    if (np.abs(values) > _LARGEST).any():
        raise BadInput(f"a record holds integers of at most 2^53; given {int(np.abs(values).max())}.")
    return _pack_unsigned((values << 1) ^ (values >> 63))


def _pack_unsigned(values: Ints) -> bytes:
    septets = values.astype(np.uint64)[:, None] >> (7 * np.arange(_MOST_VARINT_BYTES, dtype=np.uint64))
    used = septets > 0
    used[:, 0] = True
    more = np.zeros_like(used)
    more[:, :-1] = used[:, 1:]
    return ((septets & np.uint64(0x7F)) | (more * np.uint64(0x80)))[used].astype(np.uint8).tobytes()


def unpack_integers(packed: bytes, number: int) -> Ints:
    """Return exactly this many integers; `BadInput` refuses any bytes that `pack_integers` does not make."""
    zigzag = _unsigned(packed, number)
    values = (zigzag >> 1) ^ -(zigzag & 1)
    if (np.abs(values) > _LARGEST).any():
        raise BadInput("a record with integers beyond 2^53.")
    return values


def _unsigned(packed: bytes, number: int) -> Ints:
    octets = np.frombuffer(packed, dtype=np.uint8)
    ends = np.flatnonzero(octets < 0x80)
    if len(ends) != number or (len(octets) and ends[-1:] != len(octets) - 1):
        raise BadInput(f"a record with {len(ends)} integers; allowed: {number}.")
    starts = np.concatenate(([0], ends[:-1] + 1))
    lengths = ends - starts + 1
    if lengths.max(initial=0) > _MOST_VARINT_BYTES or ((lengths > 1) & (octets[ends] == 0)).any():
        raise BadInput("a record with an integer that is longer than it needs to be.")
    shifts = 7 * (np.arange(len(octets)) - np.repeat(starts, lengths))
    return np.add.reduceat((octets & 0x7F).astype(np.int64) << shifts, starts) if number else np.zeros(0, np.int64)
