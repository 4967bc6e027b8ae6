"""The public facts of a key file, which may be shown to anybody: of a private key, only the public half."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from cryptography import x509

from dpcrowd.errors import BadInput
from dpcrowd.node.keys.names import common_name, hosts_of
from dpcrowd.node.keys.requests import read_request
from dpcrowd.node.keys.signing import fingerprint, load_private_key, public_text, supported_key

__all__ = ["Description", "describe"]

Kind = Literal["authority", "certificate", "request", "private key"]


@dataclass(frozen=True)
class Description:
    """The facts of a file; None for what its kind does not have."""

    kind: Kind
    key: str
    fingerprint: str
    name: str | None = None
    hosts: tuple[str, ...] = ()
    issuer: str | None = None
    not_before: datetime | None = None
    not_after: datetime | None = None
    serial: str | None = None


def describe(pem: bytes, where: str, passphrase: bytes | None = None) -> Description:
    """Return the facts of a PEM file of any of our kinds, without saying whether they can be trusted."""
    if b"-----BEGIN CERTIFICATE-----" in pem:
        return _certificate(pem, where)
    if b"-----BEGIN CERTIFICATE REQUEST-----" in pem or b"-----BEGIN NEW CERTIFICATE REQUEST-----" in pem:
        request = read_request(pem, where)
        return Description("request", public_text(request.key), fingerprint(request.key), request.name, request.hosts)
    if b"PRIVATE KEY-----" in pem:
        text = public_text(load_private_key(pem, where, passphrase))
        return Description("private key", text, fingerprint(text))
    raise BadInput(f"{where} is not a PEM certificate, request or private key.")


def _certificate(pem: bytes, where: str) -> Description:
    try:
        certificate = x509.load_pem_x509_certificate(pem)
        constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
        issuer = certificate.issuer.rfc4514_string().removeprefix("CN=")
    except (ValueError, x509.ExtensionNotFound, x509.DuplicateExtension):
        raise BadInput(f"{where} is a damaged certificate, or was not made by 'dpcrowd keys'.") from None
    text = public_text(supported_key(certificate, where))
    return Description(
        "authority" if constraints.ca else "certificate",
        text,
        fingerprint(text),
        common_name(certificate, where),
        hosts_of(certificate, where),
        issuer,
        certificate.not_valid_before_utc,
        certificate.not_valid_after_utc,
        f"{certificate.serial_number:x}",
    )
