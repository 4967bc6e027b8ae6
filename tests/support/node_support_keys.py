"""What the tests of keys share: a fixed time, and requests and certificates that our own tools refuse to make."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from dpcrowd.node.keys.authority import Authority, init_authority, sign_request
from dpcrowd.node.keys.files import NewFile, write_all
from dpcrowd.node.keys.identity import KeyFolder, request_key

__all__ = ["NOW", "authority_in", "odd_request", "pem_with_a_flipped_bit", "server_in"]

NOW = datetime(2026, 5, 1, 12, 0, 0, 250_000, tzinfo=UTC)


def authority_in(folder: Path, name: str = "dpcrowd authority", now: datetime = NOW) -> Authority:
    return init_authority(folder, now, name=name)


def server_in(
    folder: Path, authority: Authority, name: str = "clinic-a", *, days: int = 365, now: datetime = NOW
) -> KeyFolder:
    """A server whose request the authority has signed, with both certificates in its folder."""
    files = request_key(folder, name, ["localhost", "127.0.0.1"])
    signed = sign_request(authority, files.request.read_bytes(), now, days=days)
    root = authority.certificate.read_bytes()
    write_all([NewFile(files.certificate, signed.pem), NewFile(files.authority, root)], force=False)
    return files


def odd_request(
    *names: str, extensions: tuple[x509.ExtensionType, ...] = (), key: Ed25519PrivateKey | None = None
) -> bytes:
    """A request with any number of common names and any extensions."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name) for name in names])
    builder = x509.CertificateSigningRequestBuilder().subject_name(subject)
    for extension in extensions:
        builder = builder.add_extension(extension, critical=False)
    return builder.sign(key or Ed25519PrivateKey.generate(), None).public_bytes(Encoding.PEM)


def pem_with_a_flipped_bit(pem: bytes, *, at: bytes) -> bytes:
    """The same PEM with one bit changed where `at` stands in its DER (in the signature: at=b"")."""
    lines = pem.decode().strip().splitlines()
    der = bytearray(base64.b64decode("".join(lines[1:-1])))
    place = der.index(at) if at else len(der) - 20
    der[place] ^= 1
    return "\n".join([lines[0], base64.encodebytes(bytes(der)).decode().strip(), lines[-1], ""]).encode()
