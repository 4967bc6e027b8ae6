"""Requests come from outside: what they may ask for, and what the authority refuses."""

from __future__ import annotations

import base64

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding

from dpcrowd.errors import BadInput
from dpcrowd.node.keys.names import check_hosts, check_server_name, subject
from dpcrowd.node.keys.requests import make_request, read_request
from dpcrowd.node.keys.signing import public_text
from node_support_keys import odd_request, pem_with_a_flipped_bit

KEY = Ed25519PrivateKey.generate()


def test_a_request_says_name_hosts_and_key() -> None:
    """Without this, the authority would sign something else than the server asked for."""
    asked = read_request(make_request(KEY, "clinic-a", ["A.Example.org", "10.0.0.7", "[2001:DB8::1]", "10.0.0.7"]))
    assert asked.name == "clinic-a"
    assert asked.hosts == ("clinic-a", "a.example.org", "10.0.0.7", "2001:db8::1")
    assert public_text(asked.key) == public_text(KEY)


@pytest.mark.parametrize("at", [b"clinic-a", b"host-b", b""], ids=["name", "host", "signature"])
def test_a_request_that_was_changed_on_the_way_is_refused(at: bytes) -> None:
    """Without the check, a post office could put its own name or host into somebody's request."""
    changed = pem_with_a_flipped_bit(make_request(KEY, "clinic-a", ["host-b"]), at=at)
    with pytest.raises(BadInput, match="was changed since"):
        read_request(changed)


def test_a_request_for_somebody_elses_key_is_refused() -> None:
    """A request carries its key's own signature: the key of another server cannot be put under one's own name."""
    other = Ed25519PrivateKey.generate().public_key().public_bytes_raw()
    mine = KEY.public_key().public_bytes_raw()
    lines = make_request(KEY, "clinic-a").decode().strip().splitlines()
    der = base64.b64decode("".join(lines[1:-1])).replace(mine, other)
    forged = "\n".join([lines[0], base64.encodebytes(der).decode().strip(), lines[-1], ""]).encode()
    with pytest.raises(BadInput, match="is not signed by its own key"):
        read_request(forged)


@pytest.mark.parametrize(
    ("request_pem", "says"),
    [
        (b"", "is not a PEM certificate request"),
        (
            b"-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n",
            "is not a PEM certificate request",
        ),
        (odd_request(), "has 0 common names"),
        (odd_request("clinic-a", "clinic-b"), "has 2 common names"),
        (odd_request("Clinic A"), "the server name 'Clinic A' is not allowed"),
        (odd_request("\x1b[31m"), r"the server name '\\x1b\[31m' is not allowed"),
        (odd_request("ca"), "cannot be called 'ca'"),
        (odd_request("a", extensions=(x509.BasicConstraints(True, None),)), "asks for more than a name and hosts"),
        (
            odd_request("a", extensions=(x509.SubjectAlternativeName([x509.DNSName("*.org")]),)),
            r"'\*.org' is not allowed",
        ),
        (
            odd_request("a", extensions=(x509.SubjectAlternativeName([x509.RFC822Name("a@b.org")]),)),
            "neither a host name",
        ),
    ],
)
def test_odd_requests_are_refused(request_pem: bytes, says: str) -> None:
    """A request that became an authority's certificate, or one with two names, would break the whole network."""
    with pytest.raises(BadInput, match=says) as caught:
        read_request(request_pem, "'x.csr'")
    assert "\n" not in str(caught.value)


def test_a_key_of_another_kind_is_refused() -> None:
    """Its certificate would be made, but the server could sign no message."""
    builder = x509.CertificateSigningRequestBuilder().subject_name(subject("clinic-a"))
    pem = builder.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256()).public_bytes(Encoding.PEM)
    with pytest.raises(BadInput, match="does not have an ed25519 key"):
        read_request(pem)


@pytest.mark.parametrize("name", ["a", "clinic-a", "0", "a" * 63, "a--b"])
def test_names_that_are_allowed(name: str) -> None:
    """Without this, the rule could shut out names that network.toml allows."""
    assert check_server_name(name) == name


@pytest.mark.parametrize("name", ["", "A", "-a", "a-", "a.b", "a b", "a/b", "../x", "ä", "a" * 64, "a\n", "ca"])
def test_names_that_are_not(name: str) -> None:
    """A name is part of file names and of Zenoh's key expressions: separators and wildcards must not get in."""
    with pytest.raises(BadInput):
        check_server_name(name)


@pytest.mark.parametrize(
    "host",
    ["", "*", "*.example.org", "a..b", ".a", "a.", "host:7447", "10.0.0", "10.0.0.0/8", "a b", "x" * 64, "1.2.3.4.5"],
)
def test_hosts_that_are_not_allowed(host: str) -> None:
    """A wildcard or a mistyped address would become a certificate that is too wide, or that no link accepts."""
    with pytest.raises(BadInput, match="is not allowed"):
        check_hosts([host])
