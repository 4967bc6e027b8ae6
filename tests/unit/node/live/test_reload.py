"""What a reload takes from the files of a node, what it names and leaves, and what it refuses as a whole."""

from __future__ import annotations

import re
import ssl
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dpcrowd.errors import BadInput
from dpcrowd.node.config import load_pair, token_hash
from dpcrowd.node.keys.authority import Authority, sign_request
from dpcrowd.node.keys.identity import KeyFolder, finish_renewal, renew
from dpcrowd.node.keys.signing import key_of_certificate, verifier
from dpcrowd.node.live.reload import Changes, Content, Running, read_changes
from node_support_doctor import change
from node_support_tls import Authority as Minter
from node_support_tls import CertificateFiles

NAME = "server-1"


@pytest.fixture
def web(tmp_path: Path) -> Minter:
    return Minter(tmp_path / "web", kind="ec")


@pytest.fixture
def file(net: Path, web: Minter) -> Path:
    """node.toml of a node with HTTPS; network.toml stands one folder above."""
    path = net / NAME / "node.toml"
    files = web.mint("localhost")
    lines = f'[listen]\nhttp_certificate = "{files.certificate}"\nhttp_key = "{files.key}"'
    change(path, "[listen]", lines)
    return path


def running(file: Path) -> Running:
    node, network = load_pair(file)
    return Running(file, node, network, Content.of(node))


def reread(state: Running) -> Changes:
    return read_changes(state, datetime.now(UTC))


def test_without_a_change_there_is_nothing_to_take(file: Path) -> None:
    """A reload for no reason must not close links or streams."""
    state = running(file)
    assert reread(state) == Changes(state.config, (), (), None, None, None, state.content)


def test_tokens_and_log_level_are_taken(file: Path) -> None:
    """A token that has leaked has to go at once; a restart would cost a slot, and the trust of the neighbours."""
    state = running(file)
    hashed = token_hash("another token of mine")
    text = re.sub(r"checkin = .*", f'checkin = ["{hashed}"]', file.read_text(encoding="utf-8"))
    file.write_text(text.replace('level = "info"', 'level = "debug"'), encoding="utf-8")
    changes = reread(state)
    assert (changes.applied, changes.waiting) == (("tokens.checkin", "log.level"), ())
    assert changes.config.tokens.rights_of("another token of mine") == {"checkin", "read"}
    assert changes.config.log.level == "debug"
    assert (changes.sign, changes.https, changes.following) == (None, None, None)


def test_what_needs_a_restart_is_named_and_left(file: Path) -> None:
    """Half of a new configuration, and nobody is told which half: that would be worse than none."""
    state = running(file)
    change(file, 'data = "data"', 'data = "elsewhere"')
    change(file, "http = ", 'transport = ["tls/127.0.0.1:9"]\n#')
    change(file, 'format = "pretty"', 'format = "json"')
    change(file, f'key = "{NAME}.key"', 'key = "other.key"')
    file.write_text(file.read_text(encoding="utf-8") + "\n[ingest]\ncapacity = 5\n", encoding="utf-8")
    text = re.sub(r"\ntransport = (?!\[\"tls/127.0.0.1:9).*", "", file.read_text(encoding="utf-8"))
    file.write_text(text, encoding="utf-8")
    changes = reread(state)
    assert changes.applied == ()
    assert changes.waiting == (
        "data",
        "keys.key",
        "listen.transport",
        "listen.http",
        "ingest.capacity",
        "log.format",
    )
    assert changes.config == state.config


def test_the_certificate_of_https_is_taken_where_it_lies_or_from_another_place(file: Path, web: Minter) -> None:
    """A certificate of 90 days, as web servers have, would mean a restart every 90 days."""
    state = running(file)
    served, key = state.config.listen.http_certificate, state.config.listen.http_key
    assert served is not None
    assert key is not None
    fresh = web.mint("localhost")
    served.write_bytes(fresh.certificate.read_bytes())
    key.write_bytes(fresh.key.read_bytes())
    changes = reread(state)
    assert isinstance(changes.https, ssl.SSLContext)
    assert (changes.applied, changes.waiting) == ((), ())
    after = replace(state, config=changes.config, content=changes.content)
    assert reread(after).https is None
    elsewhere = web.mint("localhost")
    change(file, str(served), str(elsewhere.certificate))
    change(file, str(key), str(elsewhere.key))
    changes = reread(after)
    assert changes.applied == ("listen.http_certificate", "listen.http_key")
    assert changes.config.listen.http_key == elsewhere.key
    assert changes.https is not None


def test_from_http_to_https_is_a_restart(file: Path) -> None:
    """A socket speaks the one or the other from its first byte on."""
    state = running(file)
    text = re.sub(r"http_(certificate|key) = .*\n", "", file.read_text(encoding="utf-8"))
    file.write_text(text, encoding="utf-8")
    changes = reread(state)
    assert changes.waiting == ("listen.http_certificate", "listen.http_key")
    assert changes.config == state.config
    plain = running(file)
    file.write_text(text.replace("[listen]", '[listen]\nhttp_certificate = "x"\nhttp_key = "y"'), encoding="utf-8")
    assert reread(plain).waiting == ("listen.http_certificate", "listen.http_key")
    assert reread(plain).https is None


def test_any_change_of_the_files_is_seen(file: Path) -> None:
    """A renewal may change the certificate alone, or the key with it; a reload has to see either."""
    node = running(file).config
    before, listen = Content.of(node), node.listen
    seen = set()
    for path in (node.keys.certificate, node.keys.key, node.keys.ca, listen.http_certificate, listen.http_key):
        assert path is not None
        content = path.read_bytes()
        path.write_bytes(content + b"\n")
        changed = Content.of(node)
        assert (changed.server != before.server) == (path.parent == file.parent)
        assert (changed.https != before.https) == (path.parent != file.parent)
        seen.add(changed)
        path.unlink()
        seen.add(Content.of(node))
        path.write_bytes(content)
    assert len(seen) == 10
    assert Content.of(node) == before


def _sign(net: Path, request: Path, days: int = 300) -> bytes:
    return sign_request(Authority(net / "ca"), request.read_bytes(), datetime.now(UTC), days=days).pem


def test_a_renewed_certificate_of_the_same_key_is_taken(file: Path, net: Path) -> None:
    """No revision is needed for it, and no restart either."""
    state = running(file)
    keys = KeyFolder(net / NAME, NAME)
    keys.certificate.write_bytes(_sign(net, keys.request))
    assert reread(state).sign is not None


def test_a_renewed_key_is_taken_once_it_is_pinned(file: Path, net: Path) -> None:
    """Taken too early, every message would be refused; and the answer says from which slot on it can be."""
    state = running(file)
    keys = KeyFolder(net / NAME, NAME)
    old = key_of_certificate(keys.certificate.read_bytes())
    renewal = renew(net / NAME)
    renewal.certificate.write_bytes(_sign(net, renewal.request))
    new = key_of_certificate(renewal.certificate.read_bytes())
    finish_renewal(net / NAME, datetime.now(UTC))
    with pytest.raises(BadInput, match=r"renewed key and certificate cannot be used: network.toml does not pin"):
        reread(state)
    change(net / "network.toml", f'"{old}"', f'"{old}", "{new}"')
    change(net / "network.toml", "revision = 1", "revision = 2\nvalid_from_slot = 7")
    with pytest.raises(BadInput, match="Revision 2 does, from slot 7 on: reload again then"):
        reread(state)
    state = replace(state, revision=running(file).revision)
    sign = reread(state).sign
    assert sign is not None
    assert verifier(state.revision.id, [[new]])(0, sign(b"words"), b"words")


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ("node.toml", "no-such-level"),
        ("tokens", "a plain token of 5 characters"),
        ("network.toml", "population"),
        ("network revision", "network.revision: given 1"),
        ("removed", "has no server 'server-1'"),
        ("https", "do not belong together"),
        ("https expired", "is valid only from"),
        ("another server", "the certificate is for 'server-2'"),
        ("certificate", "not a PEM certificate"),
        ("authority", "not signed by this authority"),
        ("expired", "expired on"),
    ],
)
def test_a_wrong_file_is_refused_with_everything_else(
    fault: str, text: str, file: Path, net: Path, web: Minter, tmp_path: Path
) -> None:
    """A good token beside a bad file: whoever is told 'refused' must be able to rely on it."""
    state = running(file)
    hashed = token_hash("another token of mine")
    node_toml = re.sub(r"checkin = .*", f'checkin = ["{hashed}"]', file.read_text(encoding="utf-8"))
    file.write_text(node_toml, encoding="utf-8")
    keys, listen = KeyFolder(net / NAME, NAME), state.config.listen
    assert listen.http_certificate is not None
    if fault == "node.toml":
        change(file, 'level = "info"', 'level = "no-such-level"')
    elif fault == "tokens":
        change(file, hashed, "short")
    elif fault == "network.toml":
        change(net / "network.toml", "population = ", "population = -")
    elif fault == "network revision":
        change(net / "network.toml", "population = ", "population = 1")
    elif fault == "removed":
        change(net / "network.toml", f'name = "{NAME}"', 'name = "other"')
        change(net / "network.toml", f'"{NAME}"', '"other"')
        change(net / "network.toml", "revision = 1", "revision = 2\nvalid_from_slot = 7")
    elif fault == "https":
        listen.http_certificate.write_bytes(web.mint("localhost").certificate.read_bytes())
    elif fault == "https expired":
        _put(web.mint("localhost", valid=(-2, -1)), listen.http_certificate, listen.http_key)
    elif fault == "another server":
        keys.certificate.write_bytes((net / "server-2" / "server-2.crt").read_bytes())
    elif fault == "certificate":
        keys.certificate.write_bytes(b"nonsense")
    elif fault == "authority":
        keys.authority.write_bytes(Minter(tmp_path / "x").path.read_bytes())
    elif fault == "expired":
        before = datetime.now(UTC) - timedelta(days=2)
        keys.certificate.write_bytes(sign_request(Authority(net / "ca"), keys.request.read_bytes(), before, days=1).pem)
    with pytest.raises(BadInput) as caught:
        reread(state)
    assert text in str(caught.value)
    assert "short" not in str(caught.value)
    assert "\n" not in str(caught.value)


def _put(files: CertificateFiles, certificate: Path, key: Path | None) -> None:
    assert key is not None
    certificate.write_bytes(files.certificate.read_bytes())
    key.write_bytes(files.key.read_bytes())
