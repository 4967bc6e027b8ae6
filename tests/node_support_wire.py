"""A message of server 1 in slot 7, and its reader: what the tests of the wire share."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from dpcrowd.node.wire import VERSION, Body, Heard, Record, decode, record_of
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
    known = (np.arange(regions) % 2 == 0)[None, :]
    return InfoMessages(np.ones(1, dtype=np.bool_), **{**fields, "prior_known": known, **other})


def signed_record(message: InfoMessages, origin: int = SENDER, slot: int = SLOT, by: int | None = None) -> Record:
    return record_of(message, digest=DIGEST, origin=origin, slot=slot, sign=fake_sign(origin if by is None else by))


def body(message: InfoMessages | None = None, **other: Any) -> Body:
    """Of the sender in the open slot: a heartbeat, or with a sample."""
    fields: dict[str, Any] = {
        "version": VERSION,
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


def read(payload: bytes, *, regions: int = REGIONS, form: str = "diagonal") -> Heard:
    return decode(
        payload,
        sender=SENDER,
        digest=DIGEST,
        slot=SLOT,
        regions=regions,
        form=form,
        verify=fake_verify,
        names=NAMES,
    )


def wrapped(raw: bytes) -> bytes:
    """Any bytes as a body, signed."""
    return msgspec.msgpack.encode([raw, SIGN(b"dpcrowd message", raw)])
