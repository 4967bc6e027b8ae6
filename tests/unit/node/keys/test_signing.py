"""Signatures and the text of keys: what is pinned, what is refused, what is never shown."""

from __future__ import annotations

import base64

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dpcrowd.errors import BadInput
from dpcrowd.node.keys.files import private_pem
from dpcrowd.node.keys.signing import (
    fingerprint,
    key_of_certificate,
    load_private_key,
    parse_public,
    public_text,
    sign,
    verify,
)

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
OTHER = Ed25519PrivateKey.from_private_bytes(bytes(range(1, 33)))
PIN, OTHER_PIN = public_text(KEY), public_text(OTHER)
PARTS = (b"digest", b"", b"\x00\x01", b"vectors" * 1000)


def test_a_signature_holds_for_its_key_and_parts_alone() -> None:
    """Without this, anybody could write records in a neighbour's name, or change them on the way."""
    signature = sign(KEY, *PARTS)
    assert len(signature) == 64
    assert verify([PIN], signature, *PARTS)
    assert not verify([OTHER_PIN], signature, *PARTS)
    assert not verify([], signature, *PARTS)
    for position, part in enumerate(PARTS):
        changed = [*PARTS]
        changed[position] = part[:-1] + b"!"
        assert not verify([PIN], signature, *changed)
    for byte in (0, 31, 32, 63):
        bent = bytearray(signature)
        bent[byte] ^= 1
        assert not verify([PIN], bytes(bent), *PARTS)


@pytest.mark.parametrize("length", [0, 63, 65, 128])
def test_a_signature_of_another_length_is_false_not_an_error(length: int) -> None:
    """Bytes from the network of any length must not raise inside a running node."""
    assert not verify([PIN], bytes(length), *PARTS)


def test_while_a_key_is_renewed_either_of_two_pins_is_good() -> None:
    """Without the overlap, a renewal would cut a server off until everybody has changed at once."""
    for key in (KEY, OTHER):
        assert verify([PIN, OTHER_PIN], sign(key, b"x"), b"x")
        assert verify(iter([PIN, OTHER_PIN]), sign(key, b"x"), b"x")


@pytest.mark.parametrize(
    "other", [(b"ab", b"c"), (b"a", b"bc"), (b"abc",), (b"abc", b""), (b"", b"abc"), (b"a", b"b", b"c"), ()]
)
def test_other_cuts_of_the_same_bytes_have_other_signatures(other: tuple[bytes, ...]) -> None:
    """Without lengths in front, bytes could be moved from one field of a message into the next."""
    cuts = [(b"ab", b"c"), (b"a", b"bc"), (b"abc",), (b"abc", b""), (b"", b"abc"), (b"a", b"b", b"c"), ()]
    for cut in cuts:
        assert verify([PIN], sign(KEY, *cut), *other) == (cut == other)


def test_a_signature_of_bare_bytes_is_none_of_ours() -> None:
    """The key also signs TLS handshakes and requests: such a signature must not pass for that of a message."""
    for text in (b"", b"x", (1).to_bytes(8, "little") * 2 + b"x"):
        assert not verify([PIN], KEY.sign(text), b"x")
        assert not verify([PIN], KEY.sign(text))


def test_texts_of_keys_go_there_and_back() -> None:
    """Without this, the line that `show` prints would not be the one that a node understands."""
    assert PIN.startswith("ed25519:")
    assert public_text(parse_public(PIN)) == PIN == public_text(KEY.public_key())
    assert PIN != OTHER_PIN


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "does not begin with 'ed25519:'"),
        ("rsa:AAAA", "does not begin with 'ed25519:'"),
        (PIN.removeprefix("ed25519:"), "does not begin with 'ed25519:'"),
        ("Ed25519:" + PIN[8:], "does not begin with"),
        ("ed25519:" + PIN[9:], "not base64"),
        ("ed25519:****" + PIN[12:], "not base64"),
        (PIN + "\n", "not base64"),
        ("ed25519:ä", "not base64"),
        ("ed25519:" + base64.b64encode(bytes(31)).decode(), "has 31 bytes; allowed: 32"),
        ("ed25519:" + base64.b64encode(bytes(33)).decode(), "has 33 bytes; allowed: 32"),
        ("ed25519:", "has 0 bytes"),
        ("ed25519:" + "A" * 42 + "B=", "stray bits"),
        ("x" * 10_000, "..."),
        ("\x1b[2J", "'\\x1b[2J'"),
    ],
)
def test_a_wrong_pin_is_refused_in_one_line(text: str, says: str) -> None:
    """A mistyped pin would otherwise show only as a neighbour whose messages are all refused."""
    with pytest.raises(BadInput) as caught:
        parse_public(text)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 250


def test_fingerprints_can_be_read_out() -> None:
    """People compare these by phone: eight groups of four, the same from every form of one key."""
    groups = fingerprint(KEY).split(" ")
    assert [len(group) for group in groups] == [4] * 8
    assert set("".join(groups)) <= set("0123456789abcdef")
    assert fingerprint(KEY) == fingerprint(KEY.public_key()) == fingerprint(PIN)
    assert fingerprint(KEY) != fingerprint(OTHER)


def test_a_private_key_is_loaded_with_and_without_a_passphrase() -> None:
    """Without this, an authority could not protect its key, or would be told the wrong reason."""
    plain, protected = private_pem(KEY), private_pem(KEY, b"secret words")
    assert public_text(load_private_key(plain)) == PIN
    assert public_text(load_private_key(protected, "ca.key", b"secret words")) == PIN
    for pem, passphrase, says in (
        (protected, None, "protected by a passphrase"),
        (plain, b"secret words", "not protected by a passphrase"),
        (protected, b"wrong", "wrong passphrase"),
        (b"", None, "is not a PEM private key"),
        (plain[:60], None, "is not a PEM private key"),
    ):
        with pytest.raises(BadInput, match=says) as caught:
            load_private_key(pem, "ca.key", passphrase)
        assert str(caught.value).startswith("ca.key ")
        assert "secret" not in str(caught.value)
        assert caught.value.__cause__ is None


def test_keys_of_another_kind_are_refused_by_name() -> None:
    """A P-256 key would start, and then no message of it could be signed or checked."""
    pem = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    with pytest.raises(BadInput, match=r"is not an ed25519 key"):
        load_private_key(pem)


def test_what_is_no_certificate_has_no_key() -> None:
    """A wrong path in node.toml must give a sentence, not a traceback of the parser."""
    with pytest.raises(BadInput, match="x is not a PEM certificate"):
        key_of_certificate(private_pem(KEY), "x")
