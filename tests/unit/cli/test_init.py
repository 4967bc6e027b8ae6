"""`dpcrowd init`: a network that works at once, tokens that are nowhere on disk, and nothing ever overwritten."""

from __future__ import annotations

import json
import os
import stat
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from dpcrowd.cli.main import main
from dpcrowd.node.config import load_pair
from dpcrowd.node.live.process import check_keys

SERVERS = ["server-1", "server-2", "server-3"]


def _made(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["init", *words, "--json"]) == 0
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


def test_a_trial_is_complete(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A trial with a missing key, a wrong pin or two servers on a port would fail at the first command."""
    made = _made(capsys, str(tmp_path / "net"), "--servers", "4", "--dev", "--slot", "1s")
    assert [server["server"] for server in made["servers"]] == [f"server-{number}" for number in (1, 2, 3, 4)]
    addresses = set()
    for server in made["servers"]:
        node, network = load_pair(server["node"])
        check_keys(node, network, datetime.now(UTC))
        assert network.server(node.server).endpoint == node.listen.transport[0]
        assert server["api"] == f"http://{node.listen.http}"
        addresses |= {node.listen.http, *node.listen.transport}
        assert network.grace_ns + network.deadline_ns <= network.clock().length_ns == 10**9
        assert len(network.neighbours(node.server, 0)) == 2
    assert len(addresses) == 8


def test_tokens_work_and_stand_in_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A plain token on disk can be used by whoever reads a backup."""
    made = _made(capsys, str(tmp_path / "net"), "--servers", "2")
    everything = "".join(path.read_text(encoding="utf-8") for path in (tmp_path / "net").rglob("*.toml"))
    seen = set()
    for server in made["servers"]:
        node, _ = load_pair(server["node"])
        assert set(server["tokens"]) == {"checkin", "read", "admin"}
        for right, token in server["tokens"].items():
            assert node.tokens.rights_of(token) == {right}
            assert token not in everything
            seen.add(token)
    assert len(seen) == 6, "no token is used twice"


def test_reading_is_open_in_a_trial_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Estimates, budget and neighbours are for those whom the operator chose; a trial has nobody to hide them from."""
    for server in _made(capsys, str(tmp_path / "net"), "--advanced")["servers"]:
        tokens = load_pair(server["node"])[0].tokens
        assert tokens.rights_of(None) == frozenset()
        assert tokens.rights_of(server["tokens"]["read"]) == {"read"}
    for server in _made(capsys, str(tmp_path / "dev"), "--dev")["servers"]:
        node = load_pair(server["node"])[0]
        assert node.tokens.rights_of(None) == {"read"}
        assert node.listen.http_address[0] == "127.0.0.1"
        assert set(server["tokens"]) == {"checkin", "admin"}
    assert main(["init", str(tmp_path / "told")]) == 0
    out = capsys.readouterr().out
    assert [line.split()[1] for line in out.splitlines() if line.startswith("server-1 ")] == [
        "checkin",
        "read",
        "admin",
    ]
    assert "DPCROWD_TOKEN" in out


@pytest.mark.parametrize("slot", ["1s", "7s", "1m", "1h", "1d", "90"])
def test_grace_and_deadline_fit_into_any_slot(slot: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The sample's own 15 seconds do not fit into a slot of one."""
    for server in _made(capsys, str(tmp_path / "net"), "--slot", slot)["servers"]:
        _, network = load_pair(server["node"])
        assert network.grace_ns > 0
        assert network.deadline_ns > 0
        assert network.grace_ns + network.deadline_ns <= network.clock().length_ns


def test_advanced_shows_more(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without the option nobody needs, the basic sample would not be basic."""
    _made(capsys, str(tmp_path / "basic"))
    _made(capsys, str(tmp_path / "advanced"), "--advanced")
    for file in ("network.toml", "server-1/node.toml"):
        lines = [
            len((tmp_path / kind / file).read_text(encoding="utf-8").splitlines()) for kind in ("basic", "advanced")
        ]
        assert lines[0] < lines[1]


def test_people_are_told_what_comes_next(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The next command has to be on the screen, with the right path."""
    assert main(["init", str(tmp_path / "net")]) == 0
    out = capsys.readouterr().out
    for command in (
        "keys init-ca",
        "keys request --name server-1",
        "keys sign server-1.csr",
        "keys show",
        "node doctor",
    ):
        assert f"dpcrowd {command}" in out
    assert main(["init", str(tmp_path / "dev"), "--dev"]) == 0
    assert f"dpcrowd node run {tmp_path / 'dev' / 'server-3' / 'node.toml'}" in capsys.readouterr().out


@pytest.mark.skipif(os.name != "posix", reason="files have modes on POSIX only")
def test_the_folder_is_its_owners(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It holds private keys."""
    _made(capsys, str(tmp_path / "net"), "--dev")
    assert stat.S_IMODE((tmp_path / "net").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "net" / "server-1" / "server-1.key").stat().st_mode) == 0o600


@pytest.mark.parametrize("name", [".", "net"])
def test_an_empty_folder_is_taken(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`mkdir net && cd net && dpcrowd init .` is what many type."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).mkdir(exist_ok=True)
    _made(capsys, name)
    assert sorted(path.name for path in (tmp_path / name).iterdir()) == ["network.toml", *SERVERS]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["full"], "'full' exists already and is not replaced; choose a new or an empty folder."),
        (["file"], "'file' exists already and is not replaced"),
        (["net", "--servers", "0"], "a sample network has 1 to 1000 servers; given 0."),
        (["net", "--slot", "0.5s"], "--slot is 0.5s; allowed: a duration from 1s to 1d"),
        (["net", "--slot", "2d"], "--slot is 2d; allowed: a duration from 1s to 1d"),
        (["net", "--slot", "soon"], "--slot is soon; allowed: a duration from 1s to 1d, such as 30s or 1m."),
        (["net", "--port", "0"], "--port is 0; allowed: 1 to 65533 for 3 servers."),
        (["net", "--http-port", "65534"], "--http-port is 65534; allowed: 1 to 65533 for 3 servers."),
        (["net", "--port", "8082"], "--port 8082 and --http-port 8080: 3 ports from each on would overlap; set them"),
        (["file/net"], "cannot write 'file/net': Not a directory."),
    ],
)
def test_a_refusal_is_one_line_and_leaves_nothing(
    words: list[str], text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Half a network, or somebody's files gone, would be worse than none."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "precious").write_text("mine", encoding="utf-8")
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    before = sorted(tmp_path.rglob("*"))
    assert main(["init", *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert text in err
    assert sorted(tmp_path.rglob("*")) == before
    assert (tmp_path / "file").read_text(encoding="utf-8") == "mine"


def test_the_next_steps_stand_below_each_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And name the fingerprint, without which the authority signs whatever arrives."""
    assert main(["init", str(tmp_path / "net")]) == 0
    steps = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  dpcrowd keys ")]
    assert len(steps) == 4
    assert len({line.index("  # ") + len("  # ") for line in steps}) == 1
    assert any("keys sign" in line and "--fingerprint" in line for line in steps)
