"""`dpcrowd node` asks a running node, here a small web server: what it shows and refuses, and with which exit code."""

from __future__ import annotations

import io
import json
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from dpcrowd.node.api.views import QualityView, RegionQuality, Verdict
from node_support_cli import BUDGET, NETWORK, Node, answering, free_port, run, set_ports


@pytest.fixture
def node(file: Path) -> Iterator[Node]:
    with answering(file) as server:
        yield server


def _serve_https(file: Path, node: Node, shown: str) -> None:
    """With the certificate of a server."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    keys = file.parent.parent / shown
    context.load_cert_chain(keys / f"{shown}.crt", keys / f"{shown}.key")
    node.socket = context.wrap_socket(node.socket, server_side=True, do_handshake_on_connect=True)


def _with_https(file: Path) -> None:
    """In node.toml."""
    tls = '[listen]\nhttp_certificate = "server-1.crt"\nhttp_key = "server-1.key"'
    file.write_text(file.read_text(encoding="utf-8").replace("[listen]", tls), encoding="utf-8")


@pytest.fixture(autouse=True)
def _nobody_to_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())


@pytest.mark.slow
def test_status_shows_and_its_code_says_ready(file: Path, node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    """A script that waits for a node looks at the code alone."""
    code, out, _ = run(capsys, "status", str(file))
    assert code == 0
    assert "1 of 2 connected" in out
    assert "calibration the intervals are about right." in out
    assert "ε=0.25 of 1 in the last 100 slots, 0.75 left" in out
    node.warnings = ["the certificate of 'server-1' expires in 3 days."]
    code, out, _ = run(capsys, "status", str(file))
    assert code == 0
    assert "soon        the certificate of 'server-1' expires in 3 days.\n" in out
    node.ready, node.warnings = False, []
    code, out, _ = run(capsys, "status", str(file))
    assert code == 1
    assert "no: full." in out
    code, out, _ = run(capsys, "status", str(file), "--json")
    read = json.loads(out)
    assert read.pop("quality")["verdict"] == "calibrated"
    assert read == {"ready": {"ready": False, "problems": ["full."]}, "network": NETWORK, "budget": BUDGET}


@pytest.mark.parametrize(
    ("verdict", "narrow", "code"),
    [("calibrated", False, 0), ("calibrated", True, 1), ("unknown", True, 1), ("narrow", False, 1), ("wide", False, 0)],
)
def test_the_code_of_quality_is_1_where_intervals_are_too_narrow(
    verdict: Verdict,
    narrow: bool,
    code: int,
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A region of its own was named in a sentence, and a script that watches the code saw that all was right."""
    regions = [RegionQuality(region="north", values=9, coverage=0.5, calibration=4.0, narrow=narrow)]
    view = QualityView(verdict=verdict, text="said.", values=9, window=100, regions=regions)
    monkeypatch.setattr("dpcrowd.cli.asking.ask", lambda *_, **__: msgspec.to_builtins(view))
    assert run(capsys, "quality", str(file))[0] == code


@pytest.mark.slow
def test_budget_and_peers(file: Path, node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    """Both for people and for programs."""
    code, out, _ = run(capsys, "budget", str(file))
    assert code == 0
    assert "ε=0.1 at slot 9, 2026-01-01T00:00:09Z" in out
    assert "blocked" not in out
    assert json.loads(run(capsys, "budget", str(file), "--json")[1]) == BUDGET
    code, out, _ = run(capsys, "peers", str(file))
    assert code == 0
    assert out.splitlines()[1].split() == ["server-2", "yes", "6", "2026-01-01T00:00:06.000Z", "-"]
    assert out.splitlines()[2].split() == ["server-3", "no", "-", "-", "replay", "2"]
    assert json.loads(run(capsys, "peers", str(file), "--json")[1]) == NETWORK["neighbours"]


@pytest.mark.slow
def test_what_is_blocked_is_not_called_spent(
    file: Path, node: Node, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """After a confirmed loss the operator asks what was paid, what is only blocked, and until when."""
    loss = "ε=1 for confirmed losses, until 2026-01-01T00:02:00Z."
    for name, value in (("blocked", 1.0), ("blocked_text", loss), ("remaining", 0.0), ("total_blocked", 1.0)):
        monkeypatch.setitem(BUDGET, name, value)
    lines = run(capsys, "budget", str(file))[1].splitlines()
    assert "spent       ε=0.25 of 1 in the last 100 slots, 1 blocked, 0 left" in lines
    assert f"blocked     {loss}" in lines
    assert "in all      ε=3.5 since the ledger began, and ε=1 of confirmed losses blocked" in lines


@pytest.mark.slow
def test_commands_to_the_node(
    file: Path, node: Node, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each goes to its own address, with the token from the option or the environment."""
    token = ["--token", "secret-secret-secret"]
    assert run(capsys, "reload", str(file), *token) == (0, "done.\n", "")
    monkeypatch.setenv("DPCROWD_TOKEN", "secret-secret-secret")
    assert run(capsys, "confirm-loss", str(file), "--yes", "--json")[:2] == (0, '{"text": "done."}\n')
    assert run(capsys, "accept-clock", str(file), "--yes")[:2] == (0, "done.\n")
    assert run(capsys, "log-level", str(file), "debug")[0] == 0
    bearer = "Bearer secret-secret-secret"
    assert node.asked == [
        ("POST", "/v1/admin/reload", bearer, b""),
        ("POST", "/v1/admin/confirm-loss", bearer, b""),
        ("POST", "/v1/admin/accept-clock", bearer, b""),
        ("POST", "/v1/admin/log-level", bearer, b'{"level":"debug"}'),
    ]


@pytest.mark.slow
def test_a_refusal_of_the_node_is_one_line_and_2(
    file: Path, node: Node, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The node's own sentence, and how to give a token; the wrong token itself is not repeated.

    Who has given one is not told to give one.
    """
    monkeypatch.delenv("DPCROWD_TOKEN", raising=False)
    code, out, err = run(capsys, "reload", str(file), "--token", "wrong-wrong-wrong")
    assert (code, out) == (2, "")
    assert "does not know this token" in err
    assert "wrong-wrong-wrong" not in err
    code, out, err = run(capsys, "reload", str(file))
    assert (code, out) == (2, "")
    assert err == "dpcrowd: error: the node refused (401): send a token. Give --token, or set DPCROWD_TOKEN.\n"
    code, _, err = run(capsys, "reload", str(file), "--token", "two\nlines")
    assert code == 2
    assert "cannot be sent" in err
    assert "lines" not in err


@pytest.mark.slow
def test_a_token_may_have_any_letters(file: Path, node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    """[tokens] holds hashes of whatever the operator chose; the node reads the header as UTF-8."""
    run(capsys, "reload", str(file), "--token", " mein schlüssel ")
    assert [bearer.encode("latin-1").decode() for _, _, bearer, _ in node.asked] == ["Bearer mein schlüssel"]


@pytest.mark.slow
def test_a_loss_is_not_confirmed_by_accident(file: Path, node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    """It books time as spent for good: where nobody can answer, the answer is no."""
    code, out, err = run(capsys, "confirm-loss", str(file), "--token", "secret-secret-secret")
    assert (code, out) == (1, "")
    assert "nothing was changed. Give --yes" in err
    assert node.asked == []


@pytest.mark.slow
def test_who_says_no_is_not_told_to_say_yes(
    file: Path, node: Node, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """--yes is for where nobody can be asked; here somebody was."""
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    code, out, err = run(capsys, "confirm-loss", str(file), "--token", "secret-secret-secret")
    assert (code, out) == (1, "")
    assert "nothing was changed" in err
    assert "--yes" not in err
    assert node.asked == []


@pytest.mark.slow
def test_times_of_neighbours_are_equally_long(
    file: Path, node: Node, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The API gives nanoseconds without zeros at the end: columns would jump, and nobody reads nine digits."""
    for given, shown in (("06.123456789Z", "06.123Z"), ("06.5Z", "06.500Z"), ("06Z", "06.000Z")):
        neighbour = {**NETWORK["neighbours"][0], "last_heard": f"2026-01-01T00:00:{given}"}
        monkeypatch.setitem(NETWORK, "neighbours", [neighbour])
        assert f"2026-01-01T00:00:{shown} " in run(capsys, "peers", str(file))[1]


@pytest.mark.slow
def test_the_file_may_be_left_out(
    file: Path, node: Node, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also before an argument that may not: `log-level debug` would otherwise take 'debug' for the file."""
    monkeypatch.chdir(file.parent)
    assert run(capsys, "log-level", "debug", "--token", "secret-secret-secret")[0] == 0
    assert node.asked[-1][3] == b'{"level":"debug"}'
    code, _, err = run(capsys, "log-level", "node.toml")
    assert code == 2
    assert "missing argument 'LEVEL' after 'node.toml'" in err
    code, _, err = run(capsys, "log-level", "loud")
    assert code == 2
    assert "Invalid value for 'LEVEL': 'loud' is not one of 'debug', 'info', 'warning', 'error'." in err
    code, _, err = run(capsys, "log-level", "node.toml", "debug", "more")
    assert code == 2
    assert "3 arguments; allowed: LEVEL, or NODE.TOML and LEVEL." in err
    assert run(capsys, "log-level")[0] == 2


@pytest.mark.slow
@pytest.mark.parametrize("command", ["status", "peers", "reload"])
def test_nobody_answers(command: str, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Not running is another thing than a mistake: 4, not 2."""
    code, out, err = run(capsys, command, str(file))
    assert (code, out) == (4, "")
    assert "'server-1' does not answer at 127.0.0.1:" in err
    assert "connection refused" in err
    assert err.count("\n") == 1


@pytest.mark.slow
def test_something_else_answers(file: Path, node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    """A web page on the node's port is no node."""
    node.junk = True
    code, _, err = run(capsys, "peers", str(file))
    assert code == 4
    assert "the server there is not a dpcrowd node" in err


@pytest.mark.slow
@pytest.mark.parametrize("tls", [False, True])
def test_a_deaf_node_does_not_hang_the_tool(tls: bool, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It accepts and never answers, not even a handshake: without a deadline a cron job would wait for ever."""
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        set_ports(file, deaf.getsockname()[1], free_port())
        if tls:
            _with_https(file)
        code, _, err = run(capsys, "peers", str(file), "--timeout", "0.2")
    assert code == 4
    assert "no answer within 0.2 s" in err


@pytest.mark.slow
@pytest.mark.parametrize("shown", ["server-1", "server-2"])
def test_a_token_goes_only_to_the_certificate_of_the_file(
    shown: str, file: Path, node: Node, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever takes the node's port must not be given the operator's token."""
    _serve_https(file, node, shown)
    _with_https(file)
    code, out, err = run(capsys, "reload", str(file), "--token", "secret-secret-secret")
    if shown == "server-1":
        assert (code, out) == (0, "done.\n")
    else:
        assert code == 4
        assert "another certificate" in err
        assert node.asked == []


@pytest.mark.slow
def test_https_is_asked_of_a_plain_server(file: Path, node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    """OpenSSL's own words end in a line number of C."""
    _with_https(file)
    code, _, err = run(capsys, "status", str(file))
    assert code == 4
    assert "does not speak HTTPS, although node.toml has http_certificate; see" in err
    assert "ssl" not in err.lower().replace("https", "")


@pytest.mark.slow
def test_a_certificate_that_cannot_be_read_is_named(file: Path, node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    """A node answers, but with nothing to compare its certificate with, no token may be sent."""
    _serve_https(file, node, "server-1")
    _with_https(file)
    file.with_name("server-1.crt").write_text("no certificate", encoding="ascii")
    code, _, err = run(capsys, "reload", str(file), "--token", "secret-secret-secret")
    assert code == 2
    assert "server-1.crt' is not a readable PEM certificate" in err
    assert node.asked == []
