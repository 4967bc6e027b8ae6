"""A message of server 1 in slot 7, and its reader: what the tests of the wire share."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from dpcrowd.node.wire import FORMAT_1, Body, CheckedMessage, Record, decode, record_of
from dpcrowd.schemes.messages import InfoMessages
from node_support import DIGEST, fake_sign, fake_verify

SENDER, SLOT, REGIONS = 1, 7, 3
NAMES = {number: f"server-{number}" for number in range(4)}
SIGN = fake_sign(SENDER)


def info(regions: int = REGIONS, form: str = "diagonal", **other: Any) -> InfoMessages:
    """A message with numbers that a rounding or a swapped byte would change."""
    vector = np.linspace(-0.1, 123456.789, regions)[None, :]
    info_mat = np.linspace(0.0, 1 / 3, regions)[None, :]
    if form == "matrix":
        half = np.linspace(0.01, 0.2, regions * regions).reshape(regions, regions)
        info_mat = (half @ half.T)[None]
    information = info_mat if form == "diagonal" else np.diagonal(info_mat, axis1=1, axis2=2)
    fields = {"info_vec": information * vector, "info_mat": info_mat, "prior": np.nextafter(vector, np.inf)}
    known = (np.arange(regions) % 2 == 0)[None, :] | (form == "matrix")  # full matrices: of all regions, or of none
    return InfoMessages(np.ones(1, dtype=np.bool_), **{**fields, "prior_known": known, **other})


def signed_record(message: InfoMessages, origin: int = SENDER, slot: int = SLOT, by: int | None = None) -> Record:
    return record_of(message, digest=DIGEST, origin=origin, slot=slot, sign=fake_sign(origin if by is None else by))


def body(message: InfoMessages | None = None, **other: Any) -> Body:
    """Of the sender in the open slot: a heartbeat, or with a sample."""
    fields: dict[str, Any] = {
        "version": FORMAT_1,
        "digest": DIGEST,
        "server": SENDER,
        "slot": SLOT,
        "round": 1,
        "counter": 5,
        "heard": {0: (1, 2)},
    }
    if message is not None:
        fields["prior"] = message.prior.astype("<f8").tobytes()
        fields["prior_known"] = message.prior_known.astype("u1").tobytes()
        fields["records"] = (signed_record(message),)
    return Body(**{**fields, **other})


def read(payload: bytes, *, regions: int = REGIONS, form: str = "diagonal") -> CheckedMessage:
    return decode(
        payload,
        sender=SENDER,
        digest=DIGEST,
        regions=regions,
        form=form,
        verify=fake_verify,
        names=NAMES,
    )


HEADED = 6  # places of a body that are in its head


def pieces(payload: bytes) -> tuple[bytes, bytes, bytes]:
    """Head, rest and signature."""
    head, rest, signature = msgspec.msgpack.decode(payload)
    return head, rest, signature


def signature(head: bytes, rest: bytes, by: int = SENDER) -> bytes:
    return fake_sign(by)(b"dpcrowd message", head, hashlib.sha256(rest).digest())


def proof_in(payload: bytes) -> bytes:
    """What whoever hears a message can show of it later."""
    head, rest, signed = pieces(payload)
    return msgspec.msgpack.encode([head, hashlib.sha256(rest).digest(), signed])


def wrapped(head: bytes, rest: bytes) -> bytes:
    """Any bytes as head and rest, signed."""
    return msgspec.msgpack.encode([head, rest, signature(head, rest)])


def packed(fields: Sequence[Any]) -> bytes:
    """Any values in the places of a body, signed."""
    return wrapped(msgspec.msgpack.encode(fields[:HEADED]), msgspec.msgpack.encode(fields[HEADED:]))
