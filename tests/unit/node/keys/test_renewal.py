"""Renewal with overlap: the old pair works until the new one is proven, and a crash in between can be mended."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pytest

from dpcrowd.errors import BadInput
from dpcrowd.node.keys import identity
from dpcrowd.node.keys.authority import Authority, sign_request
from dpcrowd.node.keys.checks import certificate_problems
from dpcrowd.node.keys.files import read_private_key
from dpcrowd.node.keys.identity import KeyFolder, finish_renewal, renew, request_key
from dpcrowd.node.keys.requests import read_request
from dpcrowd.node.keys.signing import public_text
from node_support_keys import NOW, authority_in, server_in
from node_support_tls import Authority as Minter


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return authority_in(tmp_path / "ca")


@pytest.fixture
def server(tmp_path: Path, authority: Authority) -> KeyFolder:
    return server_in(tmp_path / "a", authority)


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def signed_renewal(server: KeyFolder, authority: Authority) -> KeyFolder:
    renewal = renew(server.folder)
    renewal.certificate.write_bytes(sign_request(authority, renewal.request.read_bytes(), NOW).pem)
    return renewal


def works(server: KeyFolder) -> bool:
    key = public_text(read_private_key(server.key))
    pems = server.certificate.read_bytes(), server.authority.read_bytes()
    return certificate_problems(*pems, name="clinic-a", now=NOW, key=key) == []


def test_a_renewal_leaves_the_running_server_alone(server: KeyFolder) -> None:
    """Without this, a restart between request and certificate would find no usable pair."""
    before = content(server.folder)
    renewal = renew(server.folder)
    after = content(server.folder)
    assert {name: after[name] for name in before} == before
    assert set(after) - set(before) == {"clinic-a.next.key", "clinic-a.next.csr"}
    asked = read_request(renewal.request.read_bytes())
    assert (asked.name, asked.hosts) == ("clinic-a", ("clinic-a", "localhost", "127.0.0.1"))
    assert (
        public_text(asked.key)
        == public_text(read_private_key(renewal.key))
        != public_text(read_private_key(server.key))
    )
    assert KeyFolder.find(server.folder) == server


def test_hosts_may_change_at_a_renewal(server: KeyFolder) -> None:
    """A server that moves needs a certificate for its new address."""
    assert read_request(renew(server.folder, ["new.example.org"]).request.read_bytes()).hosts == (
        "clinic-a",
        "new.example.org",
    )


def test_a_renewal_under_way_is_not_lost(server: KeyFolder, authority: Authority) -> None:
    """A second `renew` would throw away the key whose certificate is on its way."""
    signed_renewal(server, authority)
    before = content(server.folder)
    with pytest.raises(BadInput, match="finish that renewal, or give --force"):
        renew(server.folder)
    server.next.certificate.unlink()
    with pytest.raises(BadInput, match=r"next.key' exists"):
        renew(server.folder)
    assert content(server.folder)["clinic-a.next.key"] == before["clinic-a.next.key"]
    server.next.certificate.write_bytes(before["clinic-a.next.crt"])
    renew(server.folder, force=True)
    assert content(server.folder)["clinic-a.next.key"] != before["clinic-a.next.key"]
    assert not server.next.certificate.exists(), "the certificate of the lost key was left beside the new one"


def test_finishing_puts_the_new_pair_in_place_and_keeps_the_old(server: KeyFolder, authority: Authority) -> None:
    """The paths in node.toml stay the same, and the old key is there as long as it is pinned."""
    before = content(server.folder)
    renewal = signed_renewal(server, authority)
    new_key = renewal.key.read_bytes()
    old = finish_renewal(server.folder, NOW)
    after = content(server.folder)
    assert after["clinic-a.key"] == new_key
    assert works(server)
    assert (old.key.read_bytes(), old.certificate.read_bytes()) == (before["clinic-a.key"], before["clinic-a.crt"])
    if os.name == "posix":
        assert [path.stat().st_mode & 0o777 for path in (old.key, server.key)] == [0o600, 0o600]
    assert not [name for name in after if ".next." in name]
    with pytest.raises(BadInput, match="no renewal is in progress"):
        finish_renewal(server.folder, NOW)
    signed_renewal(server, authority)
    again = finish_renewal(server.folder, NOW)
    assert old.key.read_bytes() == before["clinic-a.key"]
    assert again.key.read_bytes() == new_key


def test_a_renewal_that_would_not_work_changes_nothing(server: KeyFolder, authority: Authority, tmp_path: Path) -> None:
    """A server that was switched to a wrong certificate would fall out of the network."""
    renewal = renew(server.folder)
    good = sign_request(authority, renewal.request.read_bytes(), NOW, days=10).pem
    stranger = sign_request(authority_in(tmp_path / "x", "x"), renewal.request.read_bytes(), NOW).pem
    before = content(server.folder)
    with pytest.raises(BadInput, match="there is no renewed certificate at"):
        finish_renewal(server.folder, NOW)
    for pem, now, says in (
        (server.certificate.read_bytes(), NOW, "does not belong to the private key"),
        (stranger, NOW, "not signed by this authority"),
        (good, NOW + timedelta(days=11), "expired on"),
        (b"", NOW, "not a PEM certificate"),
    ):
        renewal.certificate.write_bytes(pem)
        with pytest.raises(BadInput, match=says):
            finish_renewal(server.folder, now)
        renewal.certificate.unlink()
        assert content(server.folder) == before


@pytest.mark.parametrize("moves", [0, 1, 2])
def test_a_crash_while_finishing_is_mended_by_the_same_command(
    server: KeyFolder, authority: Authority, monkeypatch: pytest.MonkeyPatch, moves: int
) -> None:
    """Two files cannot be swapped at once: wherever it stops, no key is lost and a second try completes it."""
    before = content(server.folder)
    renewal = signed_renewal(server, authority)
    new_key = renewal.key.read_bytes()
    real, done = os.replace, 0

    def power_cut(source: Path, target: Path) -> None:
        nonlocal done
        if source.name.startswith("clinic-a.next"):
            if done == moves:
                raise KeyboardInterrupt
            done += 1
        real(source, target)

    monkeypatch.setattr(identity.os, "replace", power_cut)
    with pytest.raises(KeyboardInterrupt):
        finish_renewal(server.folder, NOW)
    monkeypatch.undo()
    held = set(content(server.folder).values())
    assert {before["clinic-a.key"], before["clinic-a.crt"], new_key} <= held
    assert server.certificate.exists()
    if moves < 2:
        finish_renewal(server.folder, NOW)
    assert server.key.read_bytes() == new_key
    assert works(server)


def test_what_cannot_be_renewed_says_why(tmp_path: Path, server: KeyFolder, authority: Authority) -> None:
    """Each wrong folder has its own sentence."""
    with pytest.raises(BadInput, match="is not a folder"):
        renew(tmp_path / "nowhere")
    with pytest.raises(BadInput, match=r"has no NAME.key"):
        renew(authority.folder)
    request_key(tmp_path / "new", "clinic-n")
    with pytest.raises(BadInput, match=r"nothing to renew; have '.*clinic-n.csr' signed first"):
        renew(tmp_path / "new")
    (tmp_path / "new" / "clinic-n.crt").write_bytes(server.certificate.read_bytes())
    with pytest.raises(BadInput, match="does not belong to the key"):
        renew(tmp_path / "new")
    renamed = KeyFolder(tmp_path / "new", "other")
    for path in (tmp_path / "new").iterdir():
        path.unlink()
    renamed.key.write_bytes(server.key.read_bytes())
    renamed.certificate.write_bytes(server.certificate.read_bytes())
    with pytest.raises(BadInput, match="is for 'clinic-a', but the file name says 'other'"):
        renew(tmp_path / "new")
    request_key(server.folder, "clinic-z")
    with pytest.raises(BadInput, match="has the keys of clinic-a, clinic-z; choose one with --name"):
        renew(server.folder)


@pytest.mark.parametrize("kind", ["ed25519", "ec"])
def test_the_key_of_https_beside_it_is_not_taken_for_a_servers(
    server: KeyFolder, authority: Authority, tmp_path: Path, kind: str
) -> None:
    """The sample of node.toml puts https.key beside the server's key: no certificate could be renewed there."""
    minted = Minter(tmp_path / "web", kind=kind).mint("clinic-a.example.org")
    (server.folder / "https.key").write_bytes(minted.key.read_bytes())
    (server.folder / "https.crt").write_bytes(minted.certificate.read_bytes())
    (server.folder / "spare.key").write_bytes(b"nobody's")  # without a certificate or a request: no server's
    assert KeyFolder.find(server.folder) == server
    signed_renewal(server, authority)
    finish_renewal(server.folder, NOW)
    assert works(server)
    assert (server.folder / "https.key").read_bytes() == minted.key.read_bytes()


def test_of_two_servers_the_one_that_is_named_is_renewed(server: KeyFolder) -> None:
    """Two identities in one folder cannot be told apart by their files, but by their names."""
    other = request_key(server.folder, "clinic-z")
    renewal = renew(server.folder, name="clinic-a")
    assert renewal.key.name == "clinic-a.next.key"
    with pytest.raises(BadInput, match="has the keys of clinic-a, clinic-z; choose one with --name"):
        finish_renewal(server.folder, NOW)
    with pytest.raises(BadInput, match=r"has no clinic-b.key; it has the keys of clinic-a, clinic-z"):
        renew(server.folder, name="clinic-b")
    assert other.key.exists()
