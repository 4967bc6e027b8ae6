"""The doctor: each thing that can be wrong is made wrong, and has to be found, named and given a fix."""

from __future__ import annotations

import json
import os
import shutil
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from dpcrowd.cli.main import main
from dpcrowd.node.config import digest, load_pair
from dpcrowd.node.doctor import Finding, examine, has_problem
from dpcrowd.node.doctor.machine_checks import running_process
from dpcrowd.node.keys.authority import Authority, sign_request
from dpcrowd.node.keys.identity import request_key
from dpcrowd.node.keys.trial import LOOPBACK, make_trial
from dpcrowd.node.storage import Storage

DAY = 86_400 * 10**9
MINUTE = 60 * 10**9


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trial") / "net"
    assert main(["init", str(folder), "--dev"]) == 0
    return folder


@pytest.fixture
def net(trial: Path, tmp_path: Path) -> Path:
    """A trial of one's own, on free ports."""
    folder = tmp_path / "net"
    shutil.copytree(trial, folder)
    free = _free_ports(6)
    for file in (folder / "network.toml", *(folder / f"server-{number}" / "node.toml" for number in (1, 2, 3))):
        text = file.read_text(encoding="utf-8")
        for number in range(3):
            text = text.replace(f":{7447 + number}", f":{free[number]}").replace(
                f":{8080 + number}", f":{free[3 + number]}"
            )
        file.write_text(text, encoding="utf-8")
    return folder


def _free_ports(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


def _look(net: Path, server: str = "server-1", **settings: Any) -> list[Finding]:
    return examine(net / server / "node.toml", **{"timeout": 2.0, **settings})


def _problems(findings: list[Finding]) -> dict[str, str]:
    found = [one for one in findings if one.outcome == "problem"]
    assert all(one.fix for one in found), "a problem without a fix leaves the operator alone"
    return {one.check: one.text for one in found}


def _of(findings: list[Finding], check: str) -> list[Finding]:
    return [one for one in findings if one.check == check]


def _change(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def _pay(net: Path, opens: int) -> Path:
    node, network = load_pair(net / "server-1" / "node.toml")
    with Storage.open(node.data, network_id=network.id) as storage:
        storage.ledger.promises.declare(10**9, 100 * MINUTE)
        storage.commit_sample(1, opens, MINUTE, 250_000_000, b"noisy", b"state")
    return node.data


def test_a_fresh_trial_passes_and_nothing_is_written(net: Path) -> None:
    """A doctor that cries wolf is not called again; one that changes things is none."""
    before = sorted(net.rglob("*"))
    findings = _look(net)
    assert not has_problem(findings)
    checks = [one.check for one in findings]
    wanted = ("configuration", "certificate", "files", "clock", "disk", "ports", "database", "neighbours", "digest")
    assert set(wanted) <= set(checks)
    assert [one.outcome for one in _of(findings, "database")] == ["skipped"]
    assert {one.outcome for one in _of(findings, "neighbours")} == {"skipped"}, "who is down is not our problem"
    assert sorted(net.rglob("*")) == before


def test_a_wrong_configuration_ends_the_examination(net: Path) -> None:
    """Everything else would be judged by guesses."""
    _change(net / "network.toml", "share = ", "shear = ")
    (only,) = _look(net)
    assert only.outcome == "problem"
    assert "shear" in only.text


@pytest.mark.parametrize(
    ("days", "text"),
    [(340, "expires in"), (400, "expired on"), (-5, "is valid only from")],
    ids=["soon", "late", "early"],
)
def test_dates_of_the_certificate(days: int, text: str, net: Path) -> None:
    """A certificate that runs out at night takes the server off the network."""
    assert text in _problems(_look(net, now_ns=time.time_ns() + days * DAY))["certificate"]


def test_a_key_that_is_not_pinned(net: Path, tmp_path: Path) -> None:
    """Neighbours would refuse every message, and say so in their logs only."""
    other = make_trial(tmp_path / "other", ["server-1"], datetime.now(UTC))["server-1"]
    for path in (other.key, other.certificate, other.authority):
        shutil.copy(path, net / "server-1" / path.name)
    assert "does not pin" in _problems(_look(net))["certificate"]


def test_a_certificate_for_another_host(net: Path) -> None:
    """TLS would refuse it, with a message about a handshake."""
    _change(net / "network.toml", "tls/127.0.0.1", "tls/clinic.invalid")
    assert "the endpoint is at 'clinic.invalid'" in _problems(_look(net))["certificate"]


@pytest.mark.skipif(os.name != "posix", reason="files have modes on POSIX only")
def test_files_that_others_may_read(net: Path) -> None:
    """A private key that is open to others is not private."""
    (net / "server-1" / "server-1.key").chmod(0o640)
    assert "server-1.key' is open to others (mode 640)" in _problems(_look(net))["files"]
    (net / "server-1" / "server-1.key").chmod(0o600)
    (net / "server-1" / "data").mkdir()
    (net / "server-1" / "data").chmod(0o755)
    assert "data' is open to others (mode 755)" in _problems(_look(net))["files"]


def test_a_clock_that_cannot_be_right(net: Path) -> None:
    """A machine without a battery wakes up in 1970; one that was set back would open slots again."""
    assert "1970" in _problems(_look(net, now_ns=1000))["clock"]
    opens = time.time_ns() // MINUTE * MINUTE
    _pay(net, opens)
    assert "has paid for a slot" in _problems(_look(net, now_ns=opens - MINUTE))["clock"]
    assert "clock" not in _problems(_look(net, now_ns=opens + MINUTE))


def test_no_room_on_the_disk(net: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that cannot write cannot pay."""
    usage = shutil.disk_usage(net)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=10 << 20))
    assert "has 10 MiB left" in _problems(_look(net))["disk"]


def test_ports_in_use(net: Path) -> None:
    """By a stranger it is a problem, by the node itself none."""
    node, _ = load_pair(net / "server-1" / "node.toml")
    with socket.create_server(node.listen.http_address):
        assert "listen.http" in _problems(_look(net, timeout=0.1))["ports"]
        node.data.mkdir(mode=0o700)
        (node.data / "node.lock").write_text(str(os.getpid()), encoding="ascii")
        assert "ports" not in _problems(_look(net, timeout=0.1))


@pytest.mark.skipif(os.name != "posix", reason="asks with a signal")
def test_the_id_of_a_killed_node_does_not_count(tmp_path: Path) -> None:
    """kill -9 leaves the id in the file."""
    assert running_process(tmp_path) is None
    (tmp_path / "node.lock").write_text("", encoding="ascii")
    assert running_process(tmp_path) is None
    (tmp_path / "node.lock").write_text("999999999", encoding="ascii")
    assert running_process(tmp_path) is None
    (tmp_path / "node.lock").write_text(str(os.getpid()), encoding="ascii")
    assert running_process(tmp_path) == os.getpid()


def test_the_ledger_is_read_and_damage_is_found(net: Path) -> None:
    """A damaged ledger has to be found before a slot needs it."""
    data = _pay(net, time.time_ns() // MINUTE * MINUTE - MINUTE)
    findings = _look(net)
    assert not has_problem(findings)
    assert "with 1 payments" in _of(findings, "database")[0].text
    assert "together have spent 0.25 in its present window" in _of(findings, "budget")[0].text
    content = bytearray((data / "dpcrowd.db").read_bytes())
    content[:100] = bytes(100)
    (data / "dpcrowd.db").write_bytes(content)
    assert "not a database" in _problems(_look(net))["database"]


def test_spending_of_several_networks_is_summed(net: Path) -> None:
    """Two networks over the same people: what counts for a person is what both spent together."""
    opens = time.time_ns() // MINUTE * MINUTE - 3 * MINUTE
    data = _pay(net, opens)
    with Storage.open(data.parent / "other", network_id="other", ledger_folder=data) as storage:
        storage.ledger.promises.declare(2 * 10**9, None)
        storage.commit_sample(1, opens + MINUTE, MINUTE, 500_000_000, b"noisy", b"state")
    texts = [one.text for one in _of(_look(net), "budget")]
    assert any("'trial' promises ε=1;" in text and "spent 0.75 in its present window" in text for text in texts)
    assert any("'other' promises ε=2;" in text and "spent 0.75 since its horizon began" in text for text in texts)


# -------------------------------------------------------------------------------------------------- neighbours


@contextmanager
def _listening(net: Path, certificate: Path, key: Path) -> Iterator[None]:
    """A TLS server at server-2's endpoint."""
    _, network = load_pair(net / "server-1" / "node.toml")
    port = int(network.server("server-2").endpoint.rpartition(":")[2])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with socket.create_server(("127.0.0.1", port)) as plain:
        plain.settimeout(5)

        def serve() -> None:
            try:
                link, _ = plain.accept()
                with link, context.wrap_socket(link, server_side=True) as tls:
                    tls.settimeout(5)
                    tls.recv(1)
            except OSError:
                pass

        thread = threading.Thread(target=serve)
        thread.start()
        yield
        thread.join()


def _server_2(net: Path) -> list[Finding]:
    return [one for one in _of(_look(net), "neighbours") if "server-2" in one.text]


def test_a_neighbour_shows_the_pinned_certificate(net: Path) -> None:
    """The only proof before the first slot that both sides have the right files."""
    keys = net / "server-2"
    with _listening(net, keys / "server-2.crt", keys / "server-2.key"):
        (found,) = _server_2(net)
    assert found.outcome == "passed"


def test_a_neighbour_shows_another_certificate(net: Path, tmp_path: Path) -> None:
    """Somebody else at that address, or a key that was renewed without telling."""
    other = make_trial(tmp_path / "other", ["server-2"], datetime.now(UTC))["server-2"]
    with _listening(net, other.certificate, other.key):
        (found,) = _server_2(net)
    assert found.outcome == "problem"
    assert "was not signed by this authority" in found.text


def test_a_neighbour_with_a_key_that_is_not_pinned(net: Path, tmp_path: Path) -> None:
    """The authority could make such a certificate for anybody: the pin is what tells."""
    made = request_key(tmp_path / "impostor", "server-2", LOOPBACK)
    signed = sign_request(Authority(net / "ca"), made.request.read_bytes(), datetime.now(UTC), days=10, name="server-2")
    made.certificate.write_bytes(signed.pem)
    with _listening(net, made.certificate, made.key):
        (found,) = _server_2(net)
    assert found.outcome == "problem"
    assert "does not pin" in found.text


def test_a_neighbour_that_does_not_listen_is_not_tried(net: Path) -> None:
    """The first name dials everybody and listens nowhere: 'connection refused' would be a false alarm."""
    (found,) = [one for one in _of(_look(net, "server-2"), "neighbours") if "server-1" in one.text]
    assert found.outcome == "skipped"
    assert "dials this server" in found.text


@contextmanager
def _running(net: Path, **answer: Any) -> Iterator[None]:
    """A node that answers /v1/network."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        log_message: Callable[..., None] = lambda *_: None

    node, _ = load_pair(net / "server-1" / "node.toml")
    node.data.mkdir(mode=0o700)
    (node.data / "node.lock").write_text(str(os.getpid()), encoding="ascii")
    server = HTTPServer(node.listen.http_address, Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(
    ("changes", "outcome"),
    [
        ({}, "passed"),
        ({"digest": "00"}, "note"),
        ({"server": "server-2"}, "problem"),
        ({"neighbours": [{"name": "server-2", "refused": {"other-configuration": 3}}]}, "problem"),
        ({"neighbours": [{"name": "server-2", "refused": {"replay": 3}}]}, "passed"),
    ],
)
def test_digests(changes: dict[str, Any], outcome: str, net: Path) -> None:
    """A neighbour with another network.toml is refused for ever, and both wonder why."""
    _, network = load_pair(net / "server-1" / "node.toml")
    answer = {"server": "server-1", "digest": digest(network).hex(), "neighbours": [], **changes}
    with _running(net, **answer):
        assert _of(_look(net), "digest")[0].outcome == outcome


# ------------------------------------------------------------------------------------------------ the command


def test_the_command_prints_problem_and_fix(net: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """0 or 1, for people and for programs."""
    file = str(net / "server-1" / "node.toml")
    assert main(["node", "doctor", file]) == 0
    out = capsys.readouterr().out
    assert out.endswith("doctor: PASSED\n")
    assert "PROBLEM" not in out
    (net / "server-1" / "server-1.crt").unlink()
    assert main(["node", "doctor", file]) == 1
    out = capsys.readouterr().out
    lines = out.splitlines()
    place = next(number for number, line in enumerate(lines) if line.startswith("doctor: PROBLEM certificate: "))
    assert lines[place + 1].startswith("        FIX     ")
    assert lines[-1] == "doctor: 1 problem"
    assert main(["node", "doctor", file, "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["passed"] is False
    assert {"check", "outcome", "text", "fix"} == set(answer["findings"][0])


def test_another_user_may_not_look(net: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator's own account against the folder of the service: one line, no traceback."""

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", "data")

    monkeypatch.setattr(Storage, "inspect", refuse)
    assert "cannot be seen: Permission denied" in _problems(_look(net))["database"]
