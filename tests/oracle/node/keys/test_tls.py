"""Our keys and certificates held against others' code: OpenSSL's TLS at both ends, and the vectors of RFC 8032."""

from __future__ import annotations

import hashlib
import ipaddress
import ssl
import struct
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dpcrowd.node.keys.authority import Authority
from dpcrowd.node.keys.identity import KeyFolder
from dpcrowd.node.keys.signing import fingerprint, key_of_certificate, public_text, sign
from node_support_keys import authority_in, server_in


def context(side: int, files: KeyFolder, root: Path) -> ssl.SSLContext:
    made = ssl.SSLContext(side)
    made.minimum_version = ssl.TLSVersion.TLSv1_3
    made.load_cert_chain(files.certificate, files.key)
    made.load_verify_locations(root)
    made.verify_mode = ssl.CERT_REQUIRED
    # What newer Python versions ask for: key identifiers, critical constraints and the like have to be right.
    made.verify_flags |= ssl.VERIFY_X509_STRICT
    return made


def handshake(server: KeyFolder, client: KeyFolder, *, host: str, roots: tuple[Path, Path]) -> bytes:
    """Mutual TLS 1.3 in memory; returns the client's certificate (DER) as the server sees it."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        context(ssl.PROTOCOL_TLS_CLIENT, client, roots[1]).wrap_bio(to_client, to_server, server_hostname=host),
        context(ssl.PROTOCOL_TLS_SERVER, server, roots[0]).wrap_bio(to_server, to_client, server_side=True),
    )
    waiting = set(ends)
    for _ in range(10):
        for end in tuple(waiting):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            waiting.discard(end)
    assert not waiting
    seen = ends[1].getpeercert(binary_form=True)
    assert seen is not None
    return seen


@pytest.fixture
def now() -> datetime:
    return datetime.now(UTC)  # OpenSSL takes the machine's clock and no other


@pytest.fixture
def authority(tmp_path: Path, now: datetime) -> Authority:
    return authority_in(tmp_path / "ca", now=now)


@pytest.fixture
def pair(tmp_path: Path, authority: Authority, now: datetime) -> tuple[KeyFolder, KeyFolder]:
    first = server_in(tmp_path / "a", authority, "clinic-a", now=now)
    return first, server_in(tmp_path / "b", authority, "clinic-b", now=now)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "clinic-a"])
def test_two_servers_shake_hands(pair: tuple[KeyFolder, KeyFolder], host: str) -> None:
    """Without this, the certificates could be well-formed and still useless for mutual TLS, at either end."""
    server, client = pair
    seen = handshake(server, client, host=host, roots=(server.authority, client.authority))
    pem = ssl.DER_cert_to_PEM_cert(seen).encode()
    assert key_of_certificate(pem) == key_of_certificate(client.certificate.read_bytes())


def test_tls_refuses_another_host(pair: tuple[KeyFolder, KeyFolder]) -> None:
    """The hosts of a request are what TLS checks; a certificate for all hosts would pass here."""
    server, client = pair
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        handshake(server, client, host="clinic-b", roots=(server.authority, client.authority))


def test_tls_refuses_another_authority_at_both_ends(pair: tuple[KeyFolder, KeyFolder], tmp_path: Path) -> None:
    """An authority of the same name that somebody else has made opens no link."""
    server, client = pair
    other = authority_in(tmp_path / "other", now=datetime.now(UTC)).certificate
    for roots in ((other, client.authority), (server.authority, other)):
        with pytest.raises(ssl.SSLCertVerificationError):
            handshake(server, client, host="localhost", roots=roots)


@pytest.mark.parametrize(("age", "says"), [(timedelta(days=11), "expired"), (timedelta(hours=-3), "not yet valid")])
def test_tls_refuses_other_times(tmp_path: Path, now: datetime, age: timedelta, says: str) -> None:
    """The dates that we write are the dates that TLS reads."""
    authority = authority_in(tmp_path / "ca", now=now - timedelta(days=20))
    good = server_in(tmp_path / "a", authority, "clinic-a", now=now)
    bad = server_in(tmp_path / "b", authority, "clinic-b", days=10, now=now - age)
    for server, client in ((good, bad), (bad, good)):
        with pytest.raises(ssl.SSLCertVerificationError, match=says):
            handshake(server, client, host="localhost", roots=(server.authority, client.authority))


def test_a_server_cannot_play_the_authority(tmp_path: Path, authority: Authority, now: datetime) -> None:
    """A server that signs a certificate with its own key must get nobody in."""
    a = server_in(tmp_path / "a", authority, "clinic-a", now=now)
    false = Authority(tmp_path / "false")
    false.folder.mkdir()
    false.key.write_bytes(a.key.read_bytes())
    false.certificate.write_bytes(a.certificate.read_bytes())
    forged = server_in(tmp_path / "b", false, "clinic-b", days=30, now=now)
    forged.certificate.write_bytes(forged.certificate.read_bytes() + a.certificate.read_bytes())  # with its chain
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(forged, a, host="localhost", roots=(a.authority, a.authority))


def test_the_encoding_of_parts_is_what_the_docs_say() -> None:
    """Another implementation has to be able to check our signatures: docs/keys.md gives these bytes."""
    key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(SECRET))
    text = (
        b"dpcrowd signed parts, version 1\0"
        + struct.pack("<Q", 2)
        + struct.pack("<Q", 2)
        + b"ab"
        + struct.pack("<Q", 0)
    )
    assert sign(key, b"ab", b"") == key.sign(text)


SECRET = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60"  # RFC 8032, 7.1, test 1
PUBLIC = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"


def test_text_and_fingerprint_are_those_of_the_standard_key() -> None:
    """A pin must be the key as every other Ed25519 library writes it, or nobody could check it with another tool."""
    key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(SECRET))
    assert public_text(key) == "ed25519:11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo="
    digest = hashlib.sha256(bytes.fromhex(PUBLIC)).hexdigest()
    assert fingerprint(key).replace(" ", "") == digest[:32]


def test_hosts_are_written_as_names_and_addresses(pair: tuple[KeyFolder, KeyFolder]) -> None:
    """An address that was written as a name would be refused by every TLS library."""
    certificate = x509.load_pem_x509_certificate(pair[0].certificate.read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["clinic-a", "localhost"]
    assert names.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address("127.0.0.1")]
