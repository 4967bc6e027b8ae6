"""Certificate requests: the only thing that a server sends to the authority, and what the authority makes of it.

A request carries a name, hosts and a public key, and is signed by the private key that it is for: nobody can ask for
a certificate on a key that is not theirs. It comes from outside, so everything in it is checked before use.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding

from dpcrowd.errors import BadInput
from dpcrowd.node.keys.names import alternative_names, check_hosts, check_server_name, common_name, hosts_of, subject
from dpcrowd.node.keys.signing import PrivateKey, PublicKey, supported

__all__ = ["Request", "make_request", "read_request"]


@dataclass(frozen=True)
class Request:
    """What a request asks for: a certificate of this key, for this name at these hosts."""

    name: str
    hosts: tuple[str, ...]
    key: PublicKey


def make_request(key: PrivateKey, name: str, hosts: Sequence[str] = ()) -> bytes:
    """A request (PEM). The name is always among the hosts: in many small networks it is the machine's name too."""
    named = check_hosts([check_server_name(name), *hosts])
    builder = x509.CertificateSigningRequestBuilder().subject_name(subject(name))
    builder = builder.add_extension(alternative_names(named), critical=False)
    return builder.sign(key, None).public_bytes(Encoding.PEM)


def read_request(pem: bytes, where: str = "the request") -> Request:
    """A request that its own key has signed, and that asks for nothing but a name and hosts."""
    try:
        asked = x509.load_pem_x509_csr(pem)
        extensions = list(asked.extensions)
    except (ValueError, UnsupportedAlgorithm, x509.DuplicateExtension):
        raise BadInput(f"{where} is no certificate request (PEM), or is damaged; ask the sender again.") from None
    key = supported(asked, where)
    if not _signed_by_its_key(asked):
        raise BadInput(f"{where} was not signed by the key that it is for, or was changed since; ask the sender again.")
    # Taken over blindly, an extension could make the server an authority itself.
    if any(not isinstance(extension.value, x509.SubjectAlternativeName) for extension in extensions):
        raise BadInput(f"{where} asks for more than a name and hosts; have it made by 'dpcrowd keys request'.")
    return Request(check_server_name(common_name(asked, where)), hosts_of(asked, where), key)


def _signed_by_its_key(asked: x509.CertificateSigningRequest) -> bool:
    try:
        return asked.is_signature_valid
    except (ValueError, UnsupportedAlgorithm, InvalidSignature):
        return False
