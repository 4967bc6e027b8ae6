"""The numbers in a message: of the right length, finite, and such as counts of people can give."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dpcrowd.arrays import Floats
from dpcrowd.node.wire.format import Body, Refused, Verify, signed_parts
from dpcrowd.schemes.messages import InfoMessages

__all__ = ["info_messages"]

LARGEST, LEAST_INFORMATION, MOST_INFORMATION = 1e24, 1e-60, 1e100
"""Counts stay below 2^52 and epsilon above 1e-9: nothing honest is beyond these, and nothing within them overflows."""


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
    parts = signed_parts(digest, record.origin, body.slot, record.info_vec, record.info_mat)
    if not verify(record.origin, record.signature, *parts):
        raise Refused("bad-signature", f"a record of {who} is not signed by a key that network.toml pins for it.")
    if form == "diagonal" and (info_mat < 0).any():
        raise Refused("negative-information", f"{who} sent an info_mat below 0: no measurement has that.")
    _check_magnitudes(info_vec, info_mat, prior, who)
    known = np.frombuffer(body.prior_known, dtype=np.uint8).astype(np.bool_)[None, :]
    return InfoMessages(np.ones(1, dtype=np.bool_), info_vec, info_mat, prior, known)


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
