"""Bytes of any kind, and messages with any part of them changed: used or refused, and never anything else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcrowd.node.wire import CheckedMessage, MessageRefused, decode, encode, proven
from examples_support import examples
from node_support import DIGEST, fake_verify
from node_support_wire import NAMES, REGIONS, SENDER, SIGN, SLOT, body, info, packed, pieces, read, wrapped

VALID = {form: encode(body(info(form=form)), SIGN) for form in ("diagonal", "matrix")} | {"beat": encode(body(), SIGN)}
HEAD, REST, _ = pieces(VALID["beat"])


REASONS = (
    " malformed wrong-sender bad-signature other-configuration version wrong-slot wrong-length not-finite "
    "negative-information absurd"
).split(" ")


def check_heard(heard: CheckedMessage) -> None:
    assert (heard.body.server, heard.body.digest) == (SENDER, DIGEST)
    assert 0 <= heard.body.slot <= 2**62
    if heard.message is not None:
        assert all(np.isfinite(array).all() for array in heard.message.arrays().values())
        assert heard.message.info_vec.shape == (1, REGIONS)


def never_anything_else(payload: bytes, verify: Callable[..., bool]) -> None:
    """A message is used or refused; nothing else may come out of it."""
    for form in ("diagonal", "matrix"):
        try:
            heard = decode(
                payload,
                sender=SENDER,
                digest=DIGEST,
                regions=REGIONS,
                form=form,
                verify=verify,
                names=NAMES,
            )
        except MessageRefused as refused:
            reason = refused.reason
        else:
            reason = ""
            check_heard(heard)
        assert reason in REASONS


def anyone(number: int, signature: bytes, *parts: bytes) -> bool:
    """With signatures out of the way a changed message reaches the checks behind them."""
    return True


@given(st.binary(max_size=300))
def test_any_bytes_are_refused(payload: bytes) -> None:
    """Whatever a socket gives: a refusal, never another exception."""
    never_anything_else(payload, fake_verify)
    for head, rest in ((payload, REST), (HEAD, payload), (payload, payload)):
        never_anything_else(wrapped(head, rest), fake_verify)
    assert proven(payload, SENDER, fake_verify) is None


@pytest.mark.slow
@settings(max_examples=examples(150))
@given(
    st.sampled_from(sorted(VALID)),
    st.lists(
        st.tuples(st.integers(0, 700), st.integers(0, 255), st.sampled_from("set cut add drop".split())), max_size=4
    ),
    st.sampled_from([None, 0, 1]),
)
def test_a_mutated_message_is_refused_or_valid(
    kind: str, changes: list[tuple[int, int, str]], signed: int | None
) -> None:
    """Flipped, missing and added bytes anywhere; in head or rest also under a signature that holds."""
    parts = list(pieces(VALID[kind])[:2])
    raw = bytearray(VALID[kind] if signed is None else parts[signed])
    for anywhere, value, how in changes:
        place = anywhere % (len(raw) + 1)
        match how:
            case "set" if place < len(raw):
                raw[place] = value
            case "add":
                raw.insert(place, value)
            case "cut":
                del raw[place:]
            case "drop":
                del raw[place : place + 1 + value % 16]
    if signed is not None:
        parts[signed] = bytes(raw)
    payload = bytes(raw) if signed is None else wrapped(*parts)
    never_anything_else(payload, fake_verify)
    never_anything_else(payload, anyone)
    if signed is None and payload != VALID[kind]:
        with pytest.raises(MessageRefused):
            read(payload, form=kind if kind in ("diagonal", "matrix") else "diagonal")


PIECES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.binary(max_size=40) | st.text("é"),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.integers(-9, 9), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@settings(max_examples=examples(200))
@given(
    st.sampled_from(sorted(VALID)),
    st.dictionaries(st.integers(0, 10), PIECES, max_size=3),
    st.dictionaries(st.integers(0, 3), PIECES, max_size=2),
)
@pytest.mark.slow
def test_any_value_in_any_place_is_refused_or_valid(kind: str, body: dict[int, Any], record: dict[int, Any]) -> None:
    """Well-formed MessagePack with other values in some places, correctly signed: what a hostile neighbour sends."""
    fields = [field for part in pieces(VALID[kind])[:2] for field in msgspec.msgpack.decode(part)]
    for place, value in record.items() if fields[9] else ():
        fields[9][0][place] = value
    for place, value in body.items():
        fields[place] = value
    never_anything_else(packed(fields), anyone)


@settings(max_examples=examples(100))
@given(st.binary(min_size=24, max_size=24), st.binary(min_size=24, max_size=24), st.binary(min_size=24, max_size=24))
def test_any_numbers_are_refused_or_finite(info_vec: bytes, info_mat: bytes, prior: bytes) -> None:
    """Every float64 there is, denormal numbers and NaNs with any payload too, in a message that is signed well."""
    vectors = {name: np.frombuffer(raw)[None, :] for name, raw in (("info_vec", info_vec), ("info_mat", info_mat))}
    said = info(**vectors)
    never_anything_else(encode(body(said, prior=prior), SIGN), fake_verify)


@pytest.mark.slow
@settings(max_examples=examples(200))
@given(
    st.lists(st.tuples(st.integers(0, 150), st.integers(1, 255)), max_size=3),
    st.lists(PIECES, max_size=4),
    st.booleans(),
)
def test_what_a_neighbour_makes_of_a_proof_proves_nothing(
    changes: list[tuple[int, int]], parts: list[Any], other: bool
) -> None:
    """Any change of any byte, and anything else in its place: only what was signed is proven."""
    proof = bytearray(read(VALID["beat"]).proof)
    for place, value in changes:
        proof[place % len(proof)] ^= value
    made = msgspec.msgpack.encode(parts) if other else bytes(proof)
    assert proven(made, SENDER, fake_verify) == ((SLOT, 5) if made == read(VALID["beat"]).proof else None)
    proven(made, SENDER, anyone)  # and whatever is signed, nothing but an answer comes out of it
