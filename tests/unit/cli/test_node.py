"""`dpcrowd node`: schemas and help, and what `run` refuses before anything is opened, with which exit code."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dpcrowd.node.config import load_node, token_hash
from dpcrowd.node.config.tokens import TokensSection
from dpcrowd.node.keys.authority import init_authority
from dpcrowd.node.storage import Storage
from node_support_cli import Node, answering, run
from project_support import ROOT


@pytest.fixture
def node(file: Path) -> Iterator[Node]:
    with answering(file) as server:
        yield server


@pytest.mark.parametrize("which", ["network", "node"])
def test_schema(which: str, capsys: pytest.CaptureFixture[str]) -> None:
    """For editors."""
    code, out, _ = run(capsys, "schema", which)
    assert code == 0
    assert json.loads(out)["title"] == f"{which}.toml"


def test_help_documents_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    """A script's author looks there first."""
    code, out, _ = run(capsys, "--help")
    assert code == 0
    for number in range(6):
        assert f"\n    {number}  " in out
    page = (ROOT / "docs" / "node-tools.md").read_text(encoding="utf-8")
    from dpcrowd.cli.node import node

    for name in node.commands:
        assert f"| `{name}` |" in page, f"docs/node-tools.md does not describe {name}"


def test_without_a_command_there_is_help(capsys: pytest.CaptureFixture[str]) -> None:
    """Not the same help squeezed into one line of an error."""
    assert run(capsys) == (0, run(capsys, "--help")[1], "")


def test_a_token_and_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    """What is printed for node.toml is what the configuration takes for that token, and each call makes another."""
    made = [json.loads(run(capsys, "token", "--json")[1]) for _ in range(2)]
    assert made[0]["token"] != made[1]["token"]
    assert TokensSection(admin=(made[0]["hash"],)).rights_of(made[0]["token"]) == {"admin"}
    code, out, _ = run(capsys, "token")
    rows = dict(line.split() for line in out.splitlines()[:2])
    assert (code, rows["node.toml"]) == (0, f'"{token_hash(rows["token"])}"')


@pytest.mark.parametrize("command", ["run", "status", "budget", "peers", "reload", "new-horizon", "doctor"])
def test_a_missing_or_wrong_file_is_2(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In every command the same line."""
    code, out, err = run(capsys, command, str(tmp_path / "node.toml"))
    assert code == (1 if command == "doctor" else 2)  # for the doctor it is a finding
    assert "node.toml: cannot be read: No such file or directory." in out + err


def test_run_refuses_keys_that_nobody_would_accept(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """4, before anything is opened: neighbours would only see a failed handshake."""
    authority = init_authority(file.parent / "other", datetime.now(UTC), name="another", days=10)
    ca = file.parent / "ca.crt"
    ca.write_bytes(authority.certificate.read_bytes())
    code, _, err = run(capsys, "run", str(file))
    assert code == 4
    assert "was not signed by this authority" in err
    ca.unlink()
    assert run(capsys, "run", str(file))[0] == 4
    assert not load_node(file).data.exists()


def test_run_refuses_a_folder_in_use(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """3, with the process that holds it."""
    with Storage.open(load_node(file).data, network_id="trial"):
        code, _, err = run(capsys, "run", str(file))
    assert code == 3
    assert "is in use by process" in err


def test_run_refuses_a_port_in_use(file: Path, node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    """4, and the setting to change; uvicorn alone would end the process with 1."""
    code, _, err = run(capsys, "run", str(file))
    assert code == 4
    assert "listen.http" in err
    assert "Address already in use" in err


def test_a_file_beside_the_folder_is_shown_plainly(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """ "server-1/../network.toml" makes an operator look twice; a symbolic link keeps its own way up."""
    network = file.parent.parent / "network.toml"
    assert load_node(file).network == network
    network.unlink()
    _, out, _ = run(capsys, "doctor", str(file))
    assert f"{network}: cannot be read" in out
    elsewhere = file.parent / "elsewhere" / "below"
    elsewhere.mkdir(parents=True)
    (file.parent / "link").symlink_to(elsewhere)
    text = file.read_text(encoding="utf-8").replace("../network.toml", "link/../network.toml")
    file.write_text(text, encoding="utf-8")
    (elsewhere.parent / "network.toml").write_text("", encoding="utf-8")
    assert load_node(file).network.read_text(encoding="utf-8") == "", "the file that the system finds there"
