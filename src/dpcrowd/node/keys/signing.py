"""Keys and signatures by Ed25519 (RFC 8032); `pins` parses keys that are written as text.

A server has one key pair. TLS uses it to prove who is at the other end of a link; `sign` uses it for messages, so that
a neighbour can check who wrote them, whichever way they came. `network.toml` pins the public half as text,
"ed25519:BASE64". Nothing here reads a file, a clock or a random number: the same key and parts give the same 64 bytes.

`signer` and `verifier` belong to one network: the network's id is signed with every message. One key may serve in
several networks, and a message of one of them, a ledger's counter for instance, must prove nothing in another. The
digest of a revision would not do instead of the id: it changes, but a proof of an earlier revision has to stay valid.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from dpcrowd.errors import BadInput
from dpcrowd.node.keys.pins import ALGORITHM, key_text, read_key

__all__ = [
    "PrivateKey",
    "PublicKey",
    "fingerprint",
    "key_of_certificate",
    "load_private_key",
    "parse_public",
    "public_text",
    "read_certificate",
    "read_signed",
    "sign",
    "signed_text",
    "signer",
    "supported_key",
    "verifier",
    "verify",
    "verify_text",
]

PrivateKey = Ed25519PrivateKey
PublicKey = Ed25519PublicKey

# TLS 1.3 signs texts that begin with 64 spaces, certificates and requests are DER that begins with 0x30: with this
# prefix no signature of one kind can pass for one of another kind, although all are made by the same key.
_CONTEXT = b"dpcrowd signed parts, version 1\0"
_NETWORK = b"dpcrowd network"


def sign(key: PrivateKey, *parts: bytes) -> bytes:
    """Return the signature (64 bytes) over a sequence of parts; the same bytes, divided otherwise, give another one."""
    return key.sign(_joined(parts))


def verify(pinned_keys: Iterable[str], signature: bytes, *parts: bytes) -> bool:
    """Whether one of the pinned keys ("ed25519:BASE64"; two while one is renewed) has signed exactly these parts."""
    return verify_text(pinned_keys, signature, _joined(parts))


def verify_text(pinned_keys: Iterable[str], signature: bytes, text: bytes) -> bool:
    """Whether one of the pinned keys has signed these bytes, which `signed_text` returns."""
    for pinned in pinned_keys:
        try:
            parse_public(pinned).verify(signature, text)
        except InvalidSignature:
            continue
        return True
    return False


def signer(network_id: str, key: PrivateKey) -> Callable[..., bytes]:
    """Return a function sign(*parts) that returns a signature for one network."""
    prefix = _NETWORK, network_id.encode()
    return lambda *parts: sign(key, *prefix, *parts)


def verifier(network_id: str, pins: Sequence[Sequence[str]]) -> Callable[..., bool]:
    """Return a function verify(server number, signature, *parts) for one network, whose pins are in server order.

    It returns whether one of the server's pinned keys made the signature.
    """
    prefix = _NETWORK, network_id.encode()

    def check(number: int, signature: bytes, *parts: bytes) -> bool:
        return 0 <= number < len(pins) and verify(pins[number], signature, *prefix, *parts)

    return check


def signed_text(network_id: str, *parts: bytes) -> bytes:
    """Return the bytes that `signer` signs: for people who check a signature without this program."""
    return _joined((_NETWORK, network_id.encode(), *parts))


def read_signed(text: bytes) -> tuple[str, tuple[bytes, ...]]:
    """Return the network's id and the parts that were signed for it; `BadInput` refuses any other bytes."""
    parts, place = list[bytes](), len(_CONTEXT) + 8
    while place < len(text):
        start = place + 8
        end = start + int.from_bytes(text[place:start], "little")
        parts.append(text[start:end])
        place = end
    if _joined(tuple(parts)) != text or parts[:1] != [_NETWORK] or len(parts) < 2:
        raise BadInput("these bytes were not signed for a network of dpcrowd.")
    return parts[1].decode(errors="replace"), tuple(parts[2:])


def _joined(parts: tuple[bytes, ...]) -> bytes:
    """Return the parts after their number and lengths: no two different sequences give the same bytes."""
    pieces = [_CONTEXT, len(parts).to_bytes(8, "little")]
    for part in parts:
        pieces += (len(part).to_bytes(8, "little"), part)
    return b"".join(pieces)


def public_text(key: PrivateKey | PublicKey) -> str:
    """Return the public key as `network.toml` pins it: "ed25519:BASE64"."""
    return key_text(_raw(key))


@lru_cache(maxsize=4096)
def parse_public(text: str) -> PublicKey:
    """Return the key that a pinned text stands for; see `pins`."""
    return Ed25519PublicKey.from_public_bytes(read_key(text))


def fingerprint(key: PrivateKey | PublicKey | str) -> str:
    """Return 128 bits of the SHA-256 of a public key in eight groups of four digits, to be read out by phone."""
    raw = _raw(parse_public(key) if isinstance(key, str) else key)
    digits = hashlib.sha256(raw).hexdigest()[:32]
    return " ".join(digits[start : start + 4] for start in range(0, len(digits), 4))


def load_private_key(pem: bytes, where: str = "the key", passphrase: bytes | None = None) -> PrivateKey:
    """Return the private key of a PEM text; `where` names it in errors, which never quote the text itself."""
    try:
        key = serialization.load_pem_private_key(pem, passphrase)
    except TypeError:
        if passphrase is None:
            fix = "give --passphrase-file for an authority's key; a server's key must not have a passphrase"
            raise BadInput(f"{where} is protected by a passphrase; {fix}.") from None
        raise BadInput(f"{where} is not protected by a passphrase, but one was given; leave it out.") from None
    except (ValueError, UnsupportedAlgorithm):
        wrong = "is not a PEM private key" if passphrase is None else "cannot be opened: wrong passphrase, or damaged"
        raise BadInput(f"{where} {wrong}; make keys with 'dpcrowd keys request' (or init-ca).") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise BadInput(f"{where} is not an {ALGORITHM} key; make one with 'dpcrowd keys request'.")
    return key


def key_of_certificate(pem: bytes, where: str = "the certificate") -> str:
    """Return the public key ("ed25519:BASE64") of a PEM certificate, without checking who signed it."""
    return public_text(supported_key(read_certificate(pem, where), where))


def read_certificate(pem: bytes, where: str) -> x509.Certificate:
    """Return the first certificate of a PEM text, with any kind of key; `where` names it in errors."""
    try:
        return x509.load_pem_x509_certificate(pem)
    except ValueError:
        raise BadInput(f"{where} is not a PEM certificate.") from None


def supported_key(holder: x509.Certificate | x509.CertificateSigningRequest, where: str) -> PublicKey:
    """Return the public key in a certificate or request; refuse one that is not Ed25519."""
    try:
        key = holder.public_key()
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PublicKey):
        raise BadInput(f"{where} does not have an {ALGORITHM} key; make one with 'dpcrowd keys request'.")
    return key


def _raw(key: PrivateKey | PublicKey) -> bytes:
    public = key.public_key() if isinstance(key, Ed25519PrivateKey) else key
    return public.public_bytes_raw()
