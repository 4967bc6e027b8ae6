"""Whether a certificate will work: each reason why not is found, named and given a fix."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from dpcrowd.node.keys.authority import Authority
from dpcrowd.node.keys.checks import Problem, certificate_problems, expiry_of, https_problem, key_file_problem
from dpcrowd.node.keys.files import read_private_key
from dpcrowd.node.keys.identity import KeyFolder, new_private_key
from dpcrowd.node.keys.names import subject
from dpcrowd.node.keys.signing import public_text
from dpcrowd.node.keys.trial import make_trial
from node_support_keys import NOW, authority_in, pem_with_a_flipped_bit, server_in


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return authority_in(tmp_path / "ca")


@pytest.fixture
def server(tmp_path: Path, authority: Authority) -> KeyFolder:
    return server_in(tmp_path / "a", authority, days=90)


def problems(server: KeyFolder, **changes: object) -> list[Problem]:
    settings: dict[str, object] = {"name": "clinic-a", "now": NOW, "key": public_text(read_private_key(server.key))}
    certificate = changes.pop("certificate", server.certificate.read_bytes())
    root = changes.pop("authority", server.authority.read_bytes())
    return certificate_problems(certificate, root, **{**settings, **changes})  # type: ignore[arg-type]


def only(found: list[Problem]) -> str:
    assert len(found) == 1, found
    assert found[0].fix
    assert "\n" not in found[0].what + found[0].fix
    return found[0].what


def test_a_good_certificate_has_no_problems(server: KeyFolder) -> None:
    """A check that cries at healthy certificates is soon ignored."""
    key = public_text(read_private_key(server.key))
    assert problems(server, pins=["ed25519:other", key], host="LOCALHOST") == []


def test_the_wrong_authority(server: KeyFolder, tmp_path: Path) -> None:
    """An authority of the same name but another key is another authority."""
    for name in ("dpcrowd authority", "another"):
        other = authority_in(tmp_path / name, name)
        assert "was not signed by this authority" in only(problems(server, authority=other.certificate.read_bytes()))


def test_a_server_is_no_authority(server: KeyFolder) -> None:
    """node.toml's `ca` pointing at a server's certificate, or its certificate at the authority's, must be told."""
    own = server.certificate.read_bytes()
    assert "is not the certificate of an authority" in only(problems(server, authority=own))
    root = server.authority.read_bytes()
    told = [problem.what for problem in problems(server, certificate=root)]
    assert "the certificate is the authority's own." in told


@pytest.mark.parametrize(
    ("after", "says"),
    [
        (timedelta(days=90), "expired on 2026-07-30 12:00 UTC"),
        (timedelta(days=89, hours=23), None),
        (timedelta(hours=-2), "valid only from 2026-05-01 11:00 UTC"),
        (timedelta(minutes=-30), None),
    ],
)
def test_dates(server: KeyFolder, after: timedelta, says: str | None) -> None:
    """TLS would only say that the handshake failed; an early clock is another reason than an old certificate."""
    found = problems(server, now=NOW + after)
    if says is None:
        assert found == []
    else:
        assert says in only(found)


def test_another_name(server: KeyFolder) -> None:
    """A neighbour lets a server in by the name in its certificate."""
    assert only(problems(server, name="clinic-b")) == "the certificate is for 'clinic-a', not for 'clinic-b'."


@pytest.mark.parametrize("at", [b"clinic-a", b"localhost", b""], ids=["name", "host", "signature"])
def test_a_changed_certificate(server: KeyFolder, at: bytes) -> None:
    """One flipped bit anywhere has to be seen."""
    bent = pem_with_a_flipped_bit(server.certificate.read_bytes(), at=at)
    told = [problem.what for problem in problems(server, certificate=bent)]
    assert "the certificate was not signed by this authority, or was changed since." in told


def test_another_key(server: KeyFolder) -> None:
    """The certificate of the old key beside the new one is the usual slip of a renewal."""
    assert "does not belong to the private key" in only(problems(server, key=public_text(new_private_key())))


def test_a_key_that_is_not_pinned(server: KeyFolder) -> None:
    """An authority can mint the name, not the key: this is what the pins are for."""
    told = only(problems(server, pins=[public_text(new_private_key())]))
    assert told.startswith("network.toml does not pin the certificate's key ed25519:")


def test_another_host(server: KeyFolder) -> None:
    """The side that connects checks the host of the endpoint; the reason would be lost in the TLS library."""
    told = only(problems(server, host="10.9.9.9"))
    assert told == "the certificate is for the hosts clinic-a, localhost, 127.0.0.1, but the endpoint is at '10.9.9.9'."


def test_a_certificate_for_one_end_only(server: KeyFolder, authority: Authority) -> None:
    """Certificates from elsewhere are often for web servers alone: such a server could accept links, not make them."""
    root = x509.load_pem_x509_certificate(authority.certificate.read_bytes())
    builder = x509.CertificateBuilder().subject_name(subject("clinic-a")).issuer_name(root.subject)
    builder = builder.public_key(read_private_key(server.key).public_key()).serial_number(7)
    builder = builder.not_valid_before(NOW - timedelta(1)).not_valid_after(NOW + timedelta(1))
    usage = x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.SERVER_AUTH])
    for made in (builder, builder.add_extension(usage, critical=False)):
        pem = made.sign(read_private_key(authority.key), None).public_bytes(Encoding.PEM)
        assert only(problems(server, certificate=pem)) == "the certificate does not allow both ends of a TLS link."


def test_all_problems_are_told_at_once(server: KeyFolder) -> None:
    """One problem a run makes an operator's evening long."""
    found = problems(server, name="b", now=NOW + timedelta(days=999), key="ed25519:x", pins=[], host="h")
    assert len(found) == 5


@pytest.mark.parametrize("damaged", [b"", b"-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n"])
def test_damaged_files(server: KeyFolder, damaged: bytes) -> None:
    """A half-copied file is a problem with a fix, not a traceback."""
    assert only(problems(server, certificate=damaged)) == "the certificate is not a PEM certificate."
    assert only(problems(server, authority=damaged)) == "the authority's certificate is not a PEM certificate."


@pytest.mark.parametrize(
    ("left", "says"),
    [
        (timedelta(days=31), None),
        (timedelta(days=29, hours=3), "expires in 29 days (2026-07-30)"),
        (timedelta(days=1, hours=1), "expires in 1 day (2026-07-30)"),
        (timedelta(hours=3), "expires in less than a day (2026-07-30)"),
        (timedelta(hours=-1), "expired on 2026-07-30"),
    ],
)
def test_a_warning_while_there_is_time(server: KeyFolder, left: timedelta, says: str | None) -> None:
    """Renewal takes a phone call: on the last day it is too late."""
    until = (NOW + timedelta(days=90)).replace(microsecond=0)
    expiry = expiry_of(server.certificate.read_bytes(), "the certificate", "server", "clinic-a")
    warning = expiry.problem(until - left)
    assert (warning is None) == (says is None)
    if warning is not None and says is not None:
        assert says in warning.what
        assert "dpcrowd keys renew" in warning.fix


@pytest.mark.skipif("os.name != 'posix'", reason="file modes are POSIX's")
def test_a_key_that_others_may_read(server: KeyFolder, tmp_path: Path) -> None:
    """A copied key often loses its mode."""
    assert key_file_problem(server.key) is None
    for mode in (0o640, 0o604, 0o660):
        server.key.chmod(mode)
        problem = key_file_problem(server.key)
        assert problem is not None
        assert f"(mode {mode:o})" in problem.what
        assert problem.fix == f"chmod 600 {server.key}"
    missing = key_file_problem(tmp_path / "none.key")
    assert missing is not None
    assert "No such file" in missing.what


def test_files_of_https_that_would_not_work_are_named(tmp_path: Path) -> None:
    """Otherwise the web server finds out inside the running node, which ends, and is started again, for ever."""
    now = datetime.now(UTC)
    made = make_trial(tmp_path, ["a", "b"], now)
    a, b = made["a"], made["b"]
    assert https_problem(a.certificate, a.key, now) is None
    for certificate, key, at, what in (
        (a.certificate, tmp_path / "nothing.key", now, "listen.http_key"),
        (tmp_path, a.key, now, "listen.http_certificate"),
        (a.certificate, b.key, now, "do not belong together"),
        (a.key, a.key, now, "do not belong together"),
        (a.certificate, a.key, now + timedelta(days=366), "is valid only from"),
        (a.certificate, a.key, now - timedelta(days=2), "is valid only from"),
    ):
        found = https_problem(certificate, key, at)
        assert found is not None
        assert what in found.what
