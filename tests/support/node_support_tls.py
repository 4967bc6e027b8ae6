"""Certificates for tests of the transport: an authority that mints what a test asks for, also what it should not.

Made with `cryptography` alone, so that a fault in `dpcrowd.node.keys` cannot hide a fault of the transport.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

Key = ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey

__all__ = ["Authority", "CertificateFiles"]


@dataclass(frozen=True)
class CertificateFiles:
    """Where one server's key and certificate and its authority's certificate lie."""

    key: Path
    certificate: Path
    ca: Path


def _new_key(kind: str) -> Key:
    return ed25519.Ed25519PrivateKey.generate() if kind == "ed25519" else ec.generate_private_key(ec.SECP256R1())


def _digest(key: Key) -> hashes.SHA256 | None:
    return None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256()  # Ed25519 brings its own


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


class Authority:
    """A certificate authority whose files lie in one folder."""

    def __init__(self, folder: Path, *, kind: str = "ed25519", name: str = "test authority") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.kind, self._minted = folder, kind, 0
        self.key = _new_key(kind)
        now = dt.datetime.now(dt.UTC)
        self.certificate = (
            x509.CertificateBuilder()
            .subject_name(_name(name))
            .issuer_name(_name(name))
            .public_key(self.key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(days=1))
            .not_valid_after(now + dt.timedelta(days=30))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(self.key, _digest(self.key))
        )
        self.path = folder / "ca.pem"
        self.path.write_bytes(self.certificate.public_bytes(serialization.Encoding.PEM))

    def mint(
        self, common_name: str, *, valid: tuple[float, float] = (-1.0, 30.0), host: str = "127.0.0.1"
    ) -> CertificateFiles:
        """A new key and certificate for a name at an address, valid from and until so many days from now.

        Asked twice for one name it makes two keys: what a dishonest or careless authority can do.
        """
        self._minted += 1
        key = _new_key(self.kind)
        now = dt.datetime.now(dt.UTC)
        alternatives = x509.SubjectAlternativeName(
            [x509.DNSName(common_name), x509.IPAddress(ipaddress.ip_address(host))]
        )
        certificate = (
            x509.CertificateBuilder()
            .subject_name(_name(common_name))
            .issuer_name(self.certificate.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + dt.timedelta(days=valid[0]))
            .not_valid_after(now + dt.timedelta(days=valid[1]))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(alternatives, critical=False)
            .add_extension(
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
                critical=False,
            )
            .sign(self.key, _digest(self.key))
        )
        stem = f"{common_name}-{self._minted}"
        key_path, certificate_path = self.folder / f"{stem}.key", self.folder / f"{stem}.pem"
        key_path.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        certificate_path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        return CertificateFiles(key_path, certificate_path, self.path)
