"""`dpcrowd node`: what the tools ask, show and refuse, and with which exit code. The node is a small web server."""

from __future__ import annotations

import io
import json
import shutil
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dpcrowd.cli import asking
from dpcrowd.cli.main import main
from dpcrowd.node.config import load_node
from dpcrowd.node.config.samples import sample_network
from dpcrowd.node.keys.authority import init_authority
from dpcrowd.node.storage import Storage

NETWORK: dict[str, Any] = {
    **{"network": "trial", "server": "server-1", "version": "0", "revision": 1, "digest": "00", "slot": 7},
    **{"epoch": "2026-01-01T00:00:00Z", "slot_seconds": 1.0, "regions": ["north"]},
    "neighbours": [
        {"name": "server-2", "connected": True, "last_slot": 6, "last_heard": "2026-01-01T00:00:06Z", "refused": {}},
        {"name": "server-3", "connected": False, "last_slot": None, "last_heard": None, "refused": {"replay": 2}},
    ],
}
BUDGET: dict[str, Any] = {
    **{"guarantee": "Pure.", "kind": "window", "length": 100, "epsilon": 1.0, "spent": 0.25, "remaining": 0.75},
    **{"returns": 0.1, "returns_slot": 9, "returns_at": "2026-01-01T00:00:09Z", "total_spent": 3.5},
    **{"samples": True, "text": ""},
}


class Node(HTTPServer):
    """Answers like a node, and remembers what it was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.ready = True
        self.asked: list[tuple[str, str, str | None, bytes]] = []
        self.junk = False


class _Handler(BaseHTTPRequestHandler):
    server: Node

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        token = self.headers.get("Authorization")
        self.server.asked.append((self.command, self.path, token, body))
        status, answer = 200, {"text": "done."}
        if self.path == "/readyz":
            status, answer = (200 if self.server.ready else 503), {"ready": self.server.ready, "problems": ["full."]}  # type: ignore[dict-item]
        elif self.path == "/v1/network":
            answer = NETWORK
        elif self.path == "/v1/budget":
            answer = BUDGET
        elif token != "Bearer secret-secret-secret":
            status, answer = 401, {"error": {"reason": "no-token", "text": "send a token."}}  # type: ignore[dict-item]
        content = b"<html>" if self.server.junk else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = _answer  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a trial, made once."""
    folder = tmp_path_factory.mktemp("trial") / "net"
    assert main(["init", str(folder), "--dev"]) == 0
    return folder


@pytest.fixture
def file(trial: Path, tmp_path: Path) -> Path:
    """A node.toml of one's own, at ports where nobody listens."""
    shutil.copytree(trial, tmp_path / "net")
    path = tmp_path / "net" / "server-1" / "node.toml"
    _set_ports(path, _free_port(), _free_port())
    return path


@pytest.fixture
def answering(file: Path) -> Iterator[Node]:
    server = Node()
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    _set_ports(file, server.server_port, _free_port())
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def _free_port() -> int:
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        return int(trial.getsockname()[1])


def _set_ports(path: Path, http: int, transport: int) -> None:
    node = load_node(path)
    text = path.read_text(encoding="utf-8").replace(f'"{node.listen.http}"', f'"127.0.0.1:{http}"')
    path.write_text(text.replace(node.listen.transport[0], f"tls/127.0.0.1:{transport}"), encoding="utf-8")


@pytest.fixture(autouse=True)
def _nobody_to_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())


def _run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["node", *words])
    out, err = capsys.readouterr()
    return code, out, err


def _paid(file: Path, kind: str = "window") -> Path:
    """Make the folder of a node that has paid ε=0.25 a minute ago."""
    path = file.parent.parent / "network.toml"
    scheme = "dpcrowd" if kind == "finite" else "dpcrowd-plus"
    path.write_text(sample_network(3, network_id="trial", kind=kind, scheme=scheme), encoding="utf-8")
    minute = 60 * 10**9
    opens = time.time_ns() // minute * minute - minute
    with Storage.open(load_node(file).data, network_id="trial") as storage:
        storage.ledger.promises.declare(10**9, None if kind == "finite" else 100 * minute)
        storage.commit_sample(1, opens, minute, 250_000_000, b"noisy", b"state")
    return load_node(file).data


# ------------------------------------------------------------------------------------------------------ asking


def test_status_shows_and_its_code_says_ready(file: Path, answering: Node, capsys: pytest.CaptureFixture[str]) -> None:
    """A script that waits for a node looks at the code alone."""
    code, out, _ = _run(capsys, "status", str(file))
    assert code == 0
    assert "1 of 2 connected" in out
    assert "ε=0.25 of 1 in the last 100 slots, 0.75 left" in out
    answering.ready = False
    code, out, _ = _run(capsys, "status", str(file))
    assert code == 1
    assert "no: full." in out
    code, out, _ = _run(capsys, "status", str(file), "--json")
    assert json.loads(out) == {"ready": {"ready": False, "problems": ["full."]}, "network": NETWORK, "budget": BUDGET}


def test_budget_and_peers(file: Path, answering: Node, capsys: pytest.CaptureFixture[str]) -> None:
    """Both for people and for programs."""
    code, out, _ = _run(capsys, "budget", str(file))
    assert code == 0
    assert "ε=0.1 at slot 9, 2026-01-01T00:00:09Z" in out
    assert json.loads(_run(capsys, "budget", str(file), "--json")[1]) == BUDGET
    code, out, _ = _run(capsys, "peers", str(file))
    assert code == 0
    assert out.splitlines()[1].split() == ["server-2", "yes", "6", "2026-01-01T00:00:06Z", "-"]
    assert out.splitlines()[2].split() == ["server-3", "no", "-", "-", "replay", "2"]
    assert json.loads(_run(capsys, "peers", str(file), "--json")[1]) == NETWORK["neighbours"]


def test_commands_to_the_node(
    file: Path, answering: Node, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each goes to its own address, with the token from the option or the environment."""
    token = ["--token", "secret-secret-secret"]
    assert _run(capsys, "reload", str(file), *token) == (0, "done.\n", "")
    monkeypatch.setenv("DPCROWD_TOKEN", "secret-secret-secret")
    assert _run(capsys, "confirm-loss", str(file), "--yes", "--json")[:2] == (0, '{"text": "done."}\n')
    assert _run(capsys, "log-level", str(file), "debug")[0] == 0
    bearer = "Bearer secret-secret-secret"
    assert answering.asked == [
        ("POST", "/v1/admin/reload", bearer, b""),
        ("POST", "/v1/admin/confirm-loss", bearer, b""),
        ("POST", "/v1/admin/log-level", bearer, b'{"level": "debug"}'),
    ]


def test_a_refusal_of_the_node_is_one_line_and_2(
    file: Path, answering: Node, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The node's own sentence, and how to give a token; the wrong token itself is not repeated."""
    monkeypatch.delenv("DPCROWD_TOKEN", raising=False)
    code, out, err = _run(capsys, "reload", str(file), "--token", "wrong-wrong-wrong")
    assert (code, out) == (2, "")
    assert err == "dpcrowd: error: the node refused (401): send a token. Give --token, or set DPCROWD_TOKEN.\n"
    code, _, err = _run(capsys, "reload", str(file), "--token", "two\nlines")
    assert code == 2
    assert "cannot be sent" in err
    assert "lines" not in err


def test_a_loss_is_not_confirmed_by_accident(file: Path, answering: Node, capsys: pytest.CaptureFixture[str]) -> None:
    """It books time as spent for good: where nobody can answer, the answer is no."""
    code, out, err = _run(capsys, "confirm-loss", str(file), "--token", "secret-secret-secret")
    assert (code, out) == (1, "")
    assert "nothing was changed" in err
    assert answering.asked == []


@pytest.mark.parametrize("command", ["status", "peers", "reload"])
def test_nobody_answers(command: str, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Not running is another thing than a mistake: 4, not 2."""
    code, out, err = _run(capsys, command, str(file))
    assert (code, out) == (4, "")
    assert "'server-1' does not answer at 127.0.0.1:" in err
    assert err.count("\n") == 1


def test_something_else_answers(file: Path, answering: Node, capsys: pytest.CaptureFixture[str]) -> None:
    """A web page on the node's port is no node."""
    answering.junk = True
    code, _, err = _run(capsys, "peers", str(file))
    assert code == 4
    assert "what answers there is no dpcrowd node" in err


def test_a_deaf_node_does_not_hang_the_tool(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It accepts and never answers: without a deadline a cron job would wait for ever."""
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        _set_ports(file, deaf.getsockname()[1], _free_port())
        code, _, err = _run(capsys, "peers", str(file), "--timeout", "0.2")
    assert code == 4
    assert "no answer within 0.2 s" in err


@pytest.mark.parametrize("shown", ["server-1", "server-2"])
def test_a_token_goes_only_to_the_certificate_of_the_file(
    shown: str, file: Path, answering: Node, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever takes the node's port must not be given the operator's token."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    keys = file.parent.parent / shown
    context.load_cert_chain(keys / f"{shown}.crt", keys / f"{shown}.key")
    answering.socket = context.wrap_socket(answering.socket, server_side=True, do_handshake_on_connect=True)
    text = file.read_text(encoding="utf-8")
    tls = '[listen]\nhttp_certificate = "server-1.crt"\nhttp_key = "server-1.key"'
    file.write_text(text.replace("[listen]", tls), encoding="utf-8")
    code, out, err = _run(capsys, "reload", str(file), "--token", "secret-secret-secret")
    if shown == "server-1":
        assert (code, out) == (0, "done.\n")
    else:
        assert code == 4
        assert "another certificate" in err
        assert answering.asked == []


@pytest.mark.parametrize("tls", [False, True])
def test_every_connection_has_the_deadline(tls: bool, file: Path) -> None:
    """Of a connection without one, the operating system decides: minutes, or never."""
    config = load_node(file)
    if tls:
        listen = msgspec.structs.replace(config.listen, http_certificate=file, http_key=file)
        config = msgspec.structs.replace(config, listen=listen)
    assert asking._connection(config, 0.2).timeout == 0.2


# ------------------------------------------------------------------------------------------------------ folder


def test_budget_of_a_stopped_node_is_read_from_its_folder(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What was spent is asked most when the node is down."""
    _paid(file)
    code, out, _ = _run(capsys, "budget", str(file), "--json")
    view = json.loads(out)
    assert code == 0
    assert (view["spent"], view["remaining"], view["total_spent"], view["samples"]) == (0.25, 0.75, 0.25, False)
    assert "folder" in view["text"]


def test_budget_of_a_node_that_never_ran(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No folder is storage's problem, 3, and none is made."""
    code, _, err = _run(capsys, "budget", str(file))
    assert code == 3
    assert "no node has run here" in err
    assert not load_node(file).data.exists()


def test_backup(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A backup that can be restored; one that is there is not replaced."""
    _paid(file)
    to = tmp_path / "copy.db"
    code, out, _ = _run(capsys, "backup", str(file), str(to), "--json")
    assert code == 0
    assert json.loads(out) == {"file": str(to), "counter": 1}
    (tmp_path / "restored").mkdir()
    shutil.copy(to, tmp_path / "restored" / "dpcrowd.db")
    with Storage.inspect(tmp_path / "restored", network_id="trial") as storage:
        assert storage.ledger.total_spent() == 250_000_000
    before = to.read_bytes()
    code, _, err = _run(capsys, "backup", str(file), str(to))
    assert code == 2
    assert "is already there" in err
    assert to.read_bytes() == before
    assert _run(capsys, "backup", str(file), str(tmp_path / "nowhere" / "copy.db"))[0] == 2


def test_a_new_horizon_says_the_sum_and_is_logged(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a new start of the scheme the budget would stay spent; without the log nobody could tell later."""
    data = _paid(file, "finite")
    code, out, err = _run(capsys, "new-horizon", str(file))
    assert (code, out) == (1, "")
    assert "has spent ε=0.25 so far" in err
    with Storage.inspect(data, network_id="trial") as storage:
        assert storage.events.all() == []
        assert storage.state() == b"state"
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    assert _run(capsys, "new-horizon", str(file))[0] == 1
    code, out, err = _run(capsys, "new-horizon", str(file), "--yes", "--json")
    assert code == 0
    assert "set a new epoch" in err, "slots after the horizon have no budget, whatever the ledger says"
    assert json.loads(out)["epsilon_summed"] == 1.25
    with Storage.inspect(data, network_id="trial") as storage:
        (event,) = storage.events.all()
        assert event.kind == "new-horizon"
        assert "1.25" in event.text
        assert storage.state() is None
        assert storage.ledger.total_spent() == 250_000_000, "what was spent stays on record"
        (promise,) = storage.ledger.promises.all()
        assert promise.since_ns > 0


def test_no_new_horizon_of_a_window_or_beside_a_running_node(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A window's budget comes back by itself, and a running node would go on with the old state."""
    code, _, err = _run(capsys, "new-horizon", str(file), "--yes")
    assert code == 2
    assert "promises a window" in err
    data = _paid(file, "finite")
    with Storage.open(data, network_id="trial"):
        code, _, err = _run(capsys, "new-horizon", str(file), "--yes")
    assert code == 3
    assert "is in use by process" in err


# --------------------------------------------------------------------------------------------------- the others


@pytest.mark.parametrize("which", ["network", "node"])
def test_schema(which: str, capsys: pytest.CaptureFixture[str]) -> None:
    """For editors."""
    code, out, _ = _run(capsys, "schema", which)
    assert code == 0
    assert json.loads(out)["title"] == f"{which}.toml"


def test_help_documents_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    """A script's author looks there first."""
    code, out, _ = _run(capsys, "--help")
    assert code == 0
    for number in range(6):
        assert f"\n    {number}  " in out
    page = (Path(__file__).parents[2] / "docs" / "node-tools.md").read_text(encoding="utf-8")
    from dpcrowd.cli.node import node

    for name in node.commands:
        assert f"| `{name}` |" in page, f"docs/node-tools.md does not describe {name}"


@pytest.mark.parametrize("command", ["run", "status", "budget", "peers", "reload", "new-horizon"])
def test_a_missing_or_wrong_file_is_2(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In every command the same line."""
    code, _, err = _run(capsys, command, str(tmp_path / "node.toml"))
    assert code == 2
    assert "node.toml: cannot be read: No such file or directory." in err


def test_run_refuses_keys_that_nobody_would_accept(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """4, before anything is opened: neighbours would only see a failed handshake."""
    authority = init_authority(file.parent / "other", datetime.now(UTC), name="another", days=10)
    ca = file.parent / "ca.crt"
    ca.write_bytes(authority.certificate.read_bytes())
    code, _, err = _run(capsys, "run", str(file))
    assert code == 4
    assert "was not signed by this authority" in err
    ca.unlink()
    assert _run(capsys, "run", str(file))[0] == 4
    assert not load_node(file).data.exists()


def test_run_refuses_a_folder_in_use(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """3, with the process that holds it."""
    with Storage.open(load_node(file).data, network_id="trial"):
        code, _, err = _run(capsys, "run", str(file))
    assert code == 3
    assert "is in use by process" in err


def test_run_refuses_a_port_in_use(file: Path, answering: Node, capsys: pytest.CaptureFixture[str]) -> None:
    """4, and the setting to change; uvicorn alone would end the process with 1."""
    code, _, err = _run(capsys, "run", str(file))
    assert code == 4
    assert "listen.http" in err
    assert "Address already in use" in err
