"""The authority: what it signs, for whom, for how long, and what it remembers; and the whole trial in one step."""

from __future__ import annotations

import os
import stat
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509.oid import ExtendedKeyUsageOID

from dpcrowd.errors import BadInput
from dpcrowd.node.keys.authority import Authority, init_authority, sign_request
from dpcrowd.node.keys.checks import certificate_problems
from dpcrowd.node.keys.files import read_private_key
from dpcrowd.node.keys.requests import make_request
from dpcrowd.node.keys.signing import fingerprint, key_of_certificate, public_text
from dpcrowd.node.keys.trial import make_trial
from node_support_keys import NOW, authority_in

KEY = Ed25519PrivateKey.generate()
REQUEST = make_request(KEY, "clinic-a", ["a.example.org"])


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return authority_in(tmp_path / "ca")


def test_a_certificate_says_what_was_asked_and_nothing_more(authority: Authority) -> None:
    """Without this, a server could get a certificate that signs others, or one that TLS refuses at one end."""
    signed = sign_request(authority, REQUEST, NOW, days=30)
    made = x509.load_pem_x509_certificate(signed.pem)
    assert made.subject.rfc4514_string() == "CN=clinic-a"
    assert made.issuer.rfc4514_string() == "CN=dpcrowd authority"
    assert key_of_certificate(signed.pem) == public_text(KEY) == signed.key
    assert (signed.name, signed.hosts) == ("clinic-a", ("clinic-a", "a.example.org"))
    assert made.not_valid_after_utc == NOW.replace(microsecond=0) + timedelta(days=30) == signed.not_after
    assert timedelta(0) < NOW - made.not_valid_before_utc < timedelta(hours=2)
    held = {type(extension.value): extension for extension in made.extensions}
    assert held[x509.BasicConstraints].critical
    assert not held[x509.BasicConstraints].value.ca
    usage = held[x509.KeyUsage].value
    assert usage.digital_signature
    assert not usage.key_cert_sign
    assert not usage.crl_sign
    both = {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH}
    assert set(held[x509.ExtendedKeyUsage].value) == both
    made.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.certificate.read_bytes()))


def test_the_authority_signs_itself_and_may_have_no_child_authorities(authority: Authority) -> None:
    """Without the path length, whoever got one odd certificate could mint servers."""
    root = x509.load_pem_x509_certificate(authority.certificate.read_bytes())
    constraints = root.extensions.get_extension_for_class(x509.BasicConstraints)
    assert constraints.critical
    assert (constraints.value.ca, constraints.value.path_length) == (True, 0)
    usage = root.extensions.get_extension_for_class(x509.KeyUsage).value
    assert usage.key_cert_sign
    assert not usage.digital_signature
    root.verify_directly_issued_by(root)
    if os.name == "posix":
        assert stat.S_IMODE(authority.key.stat().st_mode) == 0o600


def test_the_name_that_the_signer_means_has_to_be_the_requests(authority: Authority) -> None:
    """Without this, a request for another server could be slipped in among many."""
    with pytest.raises(BadInput, match="'x' is for 'clinic-a', not for 'clinic-b'"):
        sign_request(authority, REQUEST, NOW, name="clinic-b", where="'x'")
    assert not list(authority.issued.glob("*"))
    assert sign_request(authority, REQUEST, NOW, name="clinic-a").name == "clinic-a"


def test_the_fingerprint_from_the_phone_decides(authority: Authority) -> None:
    """A request that was swapped on the way has the right name and the wrong key."""
    told = fingerprint(KEY)
    stranger = Ed25519PrivateKey.generate()
    swapped = make_request(stranger, "clinic-a")
    with pytest.raises(BadInput, match="does not have the given fingerprint") as refused:
        sign_request(authority, swapped, NOW, expected_fingerprint=told)
    assert fingerprint(stranger) not in str(refused.value), "it would be copied instead of asked for"
    for written in (told, told.upper().replace(" ", ":"), told.replace(" ", "")):
        sign_request(authority, REQUEST, NOW, expected_fingerprint=written)


@pytest.mark.parametrize("mistyped", ["zz", "", "355e 4063", "g" * 32])
def test_a_mistyped_fingerprint_accuses_nobody(authority: Authority, mistyped: str) -> None:
    """Nor is the right one shown: it would be copied instead of asked for."""
    with pytest.raises(BadInput, match=r"mistyped: it has .*; allowed: 32 hexadecimal digits") as refused:
        sign_request(authority, REQUEST, NOW, expected_fingerprint=mistyped)
    assert fingerprint(KEY)[:4] not in str(refused.value)
    with pytest.raises(BadInput, match=r"mistyped: it has 27 characters"):
        sign_request(authority, REQUEST, NOW, expected_fingerprint=fingerprint(KEY).replace(" ", "")[:-5])


def test_every_certificate_is_kept_and_a_second_key_is_told(authority: Authority) -> None:
    """Without the list, nobody could see afterwards that two keys were given one name."""
    first = sign_request(authority, REQUEST, NOW)
    again = sign_request(authority, REQUEST, NOW)
    assert (first.earlier_keys, again.earlier_keys) == ((), ())
    other = sign_request(authority, make_request(Ed25519PrivateKey.generate(), "clinic-a"), NOW)
    assert other.earlier_keys == (public_text(KEY),)
    kept = {path.read_bytes() for path in authority.issued.glob("clinic-a-*.crt")}
    assert kept == {first.pem, again.pem, other.pem}


def test_one_server_cannot_get_what_makes_it_another(authority: Authority) -> None:
    """A host that is another server's name, or another server's key, would let one pass for the other."""
    sign_request(authority, REQUEST, NOW)
    with pytest.raises(BadInput, match="asks for the host 'clinic-a', which is another server's name"):
        sign_request(authority, make_request(Ed25519PrivateKey.generate(), "clinic-b", ["clinic-a"]), NOW)
    with pytest.raises(BadInput, match="has the key of 'clinic-a'"):
        sign_request(authority, make_request(KEY, "clinic-b"), NOW)
    sign_request(authority, make_request(Ed25519PrivateKey.generate(), "clinic-c", ["clinic-d"]), NOW)
    with pytest.raises(BadInput, match="a host in the certificate of 'clinic-c'"):
        sign_request(authority, make_request(Ed25519PrivateKey.generate(), "clinic-d"), NOW)
    own = make_request(read_private_key(authority.key), "clinic-e")
    with pytest.raises(BadInput, match="the authority's own key"):
        sign_request(authority, own, NOW)


def test_two_servers_may_share_a_machine(authority: Authority) -> None:
    """Several networks on one machine have the same host: that must not be taken for an attack."""
    for name in ("clinic-a", "clinic-b"):
        request = make_request(Ed25519PrivateKey.generate(), name, ["shared.example.org", "10.1.1.1"])
        assert "shared.example.org" in sign_request(authority, request, NOW).hosts


@pytest.mark.parametrize("days", [0, -1, 36_501])
def test_odd_lifetimes_are_refused(authority: Authority, days: int) -> None:
    """A certificate of no days would fail only when the network starts."""
    with pytest.raises(BadInput, match=rf"valid for {days} days; allowed: 1 to"):
        sign_request(authority, REQUEST, NOW, days=days)
    with pytest.raises(BadInput, match=rf"valid for {days} days; allowed: 1 to"):
        init_authority(authority.folder / "x", NOW, days=days)


def test_no_certificate_outlives_its_authority(tmp_path: Path) -> None:
    """TLS libraries do not look at the root's dates: a longer life would be a hidden one."""
    authority = init_authority(tmp_path, NOW, days=100)
    with pytest.raises(
        BadInput, match=r"101 days is longer than the authority's own certificate is valid; allowed: up to 100 days,"
    ):
        sign_request(authority, REQUEST, NOW, days=101)
    sign_request(authority, REQUEST, NOW, days=100)
    with pytest.raises(BadInput, match="allowed: up to 0"):
        sign_request(authority, REQUEST, NOW + timedelta(days=200), days=1)


def test_a_protected_authority_needs_its_passphrase(tmp_path: Path) -> None:
    """Without the passphrase a stolen folder would mint servers."""
    authority = init_authority(tmp_path, NOW, passphrase=b"words")
    assert b"ENCRYPTED" in authority.key.read_bytes()
    with pytest.raises(BadInput, match="protected by a passphrase"):
        sign_request(authority, REQUEST, NOW)
    with pytest.raises(BadInput, match="wrong passphrase"):
        sign_request(authority, REQUEST, NOW, passphrase=b"word")
    assert sign_request(authority, REQUEST, NOW, passphrase=b"words").name == "clinic-a"


def test_an_authority_is_never_replaced_by_accident(authority: Authority) -> None:
    """A second init-ca in one folder would make every certificate of the network worthless."""
    before = authority.key.read_bytes()
    with pytest.raises(BadInput, match="exists and is not replaced"):
        init_authority(authority.folder, NOW)
    assert authority.key.read_bytes() == before
    sign_request(authority, REQUEST, NOW)
    authority.key.unlink()
    authority.certificate.unlink()
    with pytest.raises(BadInput, match="an authority whose key is missing"):
        init_authority(authority.folder, NOW)
    init_authority(authority.folder, NOW, force=True)


def test_folders_that_are_no_authority_say_so(tmp_path: Path, authority: Authority) -> None:
    """Each damage has its own sentence, none a traceback."""
    with pytest.raises(BadInput, match=r"there is no private key at .*ca.key"):
        sign_request(Authority(tmp_path / "nowhere"), REQUEST, NOW)
    other = authority_in(tmp_path / "other")
    certificate = authority.certificate.read_bytes()
    authority.certificate.write_bytes(other.certificate.read_bytes())
    with pytest.raises(BadInput, match="mixes two authorities"):
        sign_request(authority, REQUEST, NOW)
    authority.certificate.write_bytes(b"x")
    with pytest.raises(BadInput, match="is not a PEM certificate"):
        sign_request(authority, REQUEST, NOW)
    authority.certificate.write_bytes(certificate)
    authority.issued.mkdir()
    (authority.issued / "x-1.crt").write_bytes(b"x")
    with pytest.raises(BadInput, match="a copy of an issued certificate, is damaged"):
        sign_request(authority, REQUEST, NOW)
    (authority.issued / "x-1.crt").unlink()
    (authority.issued / "x-1.crt").mkdir()
    with pytest.raises(BadInput, match=r"cannot read the certificate .*x-1.crt': Is a directory"):
        sign_request(authority, REQUEST, NOW)  # a file that cannot be read is not a damaged one
    for name in ("", "x" * 65, "a\x1b"):
        with pytest.raises(BadInput, match="printable"):
            init_authority(tmp_path / "new", NOW, name=name)


def test_a_trial_is_complete(tmp_path: Path) -> None:
    """Without this, the demo's servers could not speak to each other."""
    made = make_trial(tmp_path / "t", ["a", "b", "c"], NOW)
    assert list(made) == ["a", "b", "c"]
    held = {public_text(read_private_key(files.key)) for files in made.values()}
    assert len(held) == 3
    for name, files in made.items():
        certificate, root = files.certificate.read_bytes(), files.authority.read_bytes()
        key = public_text(read_private_key(files.key))
        for host in ("localhost", "127.0.0.1", "::1"):
            assert certificate_problems(certificate, root, name=name, now=NOW, key=key, pins=[key], host=host) == []


@pytest.mark.parametrize(
    ("servers", "says"),
    [
        ([], "at least one server"),
        (["a", "b", "a"], "'a' is named twice"),
        (["a", "ca"], "'ca'"),
        (["a", ""], "not allowed"),
    ],
)
def test_a_wrong_trial_leaves_nothing_behind(tmp_path: Path, servers: list[str], says: str) -> None:
    """Half a trial would be in the way of the corrected command."""
    with pytest.raises(BadInput, match=says):
        make_trial(tmp_path / "t", servers, NOW)
    assert not (tmp_path / "t").exists()


def test_a_trial_does_not_touch_what_is_there(tmp_path: Path) -> None:
    """A trial in the folder of a real server must not replace its key."""
    (tmp_path / "b").mkdir()
    with pytest.raises(BadInput, match="b' exists"):
        make_trial(tmp_path, ["a", "b"], NOW)
    assert [path.name for path in tmp_path.iterdir()] == ["b"]
