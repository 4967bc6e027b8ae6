"""Certificate requests: the only thing that a server sends to the authority, and how the authority checks it.

A request contains a name, hosts and a public key, and is signed by the corresponding private key: nobody can request a
certificate for a key that is not theirs. It comes from outside, so everything in it is checked before use.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding

from dpcrowd.errors import BadInput
from dpcrowd.node.keys.names import alternative_names, check_hosts, check_server_name, common_name, hosts_of, subject
from dpcrowd.node.keys.signing import PrivateKey, PublicKey, supported_key

__all__ = ["Request", "make_request", "read_request"]


@dataclass(frozen=True)
class Request:
    """The content of a request: a certificate is wanted for this key, with this name and these hosts."""

    name: str
    hosts: tuple[str, ...]
    key: PublicKey


def make_request(key: PrivateKey, name: str, hosts: Sequence[str] = ()) -> bytes:
    """Return a request (PEM). The name is always one of the hosts: in small networks it is often the machine's name."""
    all_hosts = check_hosts([check_server_name(name), *hosts])
    builder = x509.CertificateSigningRequestBuilder().subject_name(subject(name))
    builder = builder.add_extension(alternative_names(all_hosts), critical=False)
    return builder.sign(key, None).public_bytes(Encoding.PEM)


def read_request(pem: bytes, where: str = "the request") -> Request:
    """Return the content of a request; refuse one that its own key has not signed, or that asks for anything else."""
    try:
        request = x509.load_pem_x509_csr(pem)
        extensions = list(request.extensions)
    except (ValueError, UnsupportedAlgorithm, x509.DuplicateExtension):
        raise BadInput(
            f"{where} is not a PEM certificate request, or is damaged; ask the sender for it again."
        ) from None
    key = supported_key(request, where)
    if not _signed_by_own_key(request):
        raise BadInput(f"{where} is not signed by its own key, or was changed since; ask the sender for it again.")
    # If any extension were accepted, it could make the server an authority itself.
    if any(not isinstance(extension.value, x509.SubjectAlternativeName) for extension in extensions):
        raise BadInput(
            f"{where} asks for more than a name and hosts; allowed: a request made by 'dpcrowd keys request'."
        )
    return Request(check_server_name(common_name(request, where)), hosts_of(request, where), key)


def _signed_by_own_key(request: x509.CertificateSigningRequest) -> bool:
    try:
        return request.is_signature_valid
    except (ValueError, UnsupportedAlgorithm, InvalidSignature):
        return False
