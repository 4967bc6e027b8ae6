"""Signatures over parts, for any parts: what was signed is what is verified, and nothing else is."""

from __future__ import annotations

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from dpcrowd.errors import BadInput
from dpcrowd.node.keys.signing import _joined, parse_public, public_text, sign, verify

PARTS = st.lists(st.binary(max_size=12), max_size=4).map(tuple)
KEYS = st.binary(min_size=32, max_size=32).map(Ed25519PrivateKey.from_private_bytes)


@given(first=PARTS, second=PARTS)
def test_two_sequences_of_parts_never_give_the_same_bytes(first: tuple[bytes, ...], second: tuple[bytes, ...]) -> None:
    """Without this, a signature over one message would hold for another one."""
    assert (_joined(first) == _joined(second)) == (first == second)


@given(parts=PARTS, split=st.integers(0, 40), which=st.integers(0, 3))
def test_moving_a_border_changes_the_bytes(parts: tuple[bytes, ...], split: int, which: int) -> None:
    """The hardest case for the encoding: the same bytes in a row, cut elsewhere."""
    whole = b"".join(parts)
    cut = (*parts[:which], b"".join(parts[which:])[:split], b"".join(parts[which:])[split:])
    assert b"".join(cut) == whole
    assert (_joined(cut) == _joined(parts)) == (cut == parts)


@given(key=KEYS, other=KEYS, parts=PARTS, changed=PARTS)
def test_only_the_signer_and_the_signed_pass(
    key: Ed25519PrivateKey, other: Ed25519PrivateKey, parts: tuple[bytes, ...], changed: tuple[bytes, ...]
) -> None:
    """For any key and any message: the pin of the signer accepts it, any other pin and any other message do not."""
    signature = sign(key, *parts)
    assert verify([public_text(key)], signature, *parts)
    assert verify([public_text(key)], signature, *changed) == (changed == parts)
    assert verify([public_text(other)], signature, *parts) == (public_text(key) == public_text(other))


@given(signature=st.binary(max_size=80), parts=PARTS)
def test_no_bytes_from_outside_raise(signature: bytes, parts: tuple[bytes, ...]) -> None:
    """A signature field may hold anything: the answer is no, never an exception in a running node."""
    assert not verify([public_text(Ed25519PrivateKey.from_private_bytes(bytes(32)))], signature, *parts)


@given(text=st.one_of(st.text(), st.text().map("ed25519:".__add__), st.binary(max_size=40).map(repr)))
def test_any_text_is_a_key_or_refused(text: str) -> None:
    """A pin is a key with exactly this text, or one line that says why not."""
    refused = None
    try:
        assert public_text(parse_public(text)) == text
    except BadInput as error:
        refused = str(error)
    assert refused is None or "\n" not in refused
