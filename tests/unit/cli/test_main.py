"""The entry point: help, version, commands, interruptions, and one line for every refusal."""

from __future__ import annotations

import tomllib
from collections.abc import Callable

import click
import pytest

import dpcrowd
from dpcrowd.cli.main import main
from dpcrowd.errors import BadInput
from dpcrowd.sim import simulate as simulate_module
from project_support import ROOT
from sim_support import tiny_words


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"]])
def test_help_lists_the_commands(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever types the bare name wants to know what there is; that is no mistake."""
    assert main(words) == 0
    out, err = capsys.readouterr()
    assert out.startswith("Usage: dpcrowd ")
    for command in ("simulate", "schemes", "data"):
        assert f"  {command}  " in out
    assert err == ""


@pytest.mark.parametrize("command", ["simulate", "schemes", "data"])
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A command that cannot explain itself sends people to the source."""
    assert main([command, "--help"]) == 0
    assert capsys.readouterr().out.startswith(f"Usage: dpcrowd {command} ")


def test_the_version_is_that_of_the_next_release() -> None:
    """`--version` said 0.1.0, while documentation and messages called that the version before."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    unreleased, _, earlier = text.partition("\n## [")
    base = dpcrowd.__version__.removesuffix(".dev0")
    assert f"becomes version {base};" in unreleased
    assert f"says {dpcrowd.__version__}." in unreleased
    assert tuple(map(int, earlier.partition("]")[0].split("."))) < tuple(map(int, base.split(".")))


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    """A bug report names the version: all places have to say the same."""
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"dpcrowd {dpcrowd.__version__}\n"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert "version" not in project["project"], "a second place, which somebody forgets"
    assert project["tool"]["hatch"]["version"]["path"] == "src/dpcrowd/__about__.py"
    for path in (ROOT / "src").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert "version('dpcrowd')" not in text.replace('"', "'"), "of what is installed, not of what runs"


def _raiser(error: BaseException) -> Callable[..., None]:
    def fail(*arguments: object, **settings: object) -> None:
        raise error

    return fail


@pytest.mark.parametrize("error", [KeyboardInterrupt(), click.Abort()])
def test_an_interruption_is_one_line_and_130(
    error: BaseException, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Control-C is a decision, not an accident: no traceback, and the code that shells expect."""
    monkeypatch.setattr(simulate_module, "simulate", _raiser(error))
    assert main(tiny_words("dpcrowd")) == 130
    assert capsys.readouterr() == ("", "dpcrowd: interrupted\n")


def test_a_message_of_several_lines_becomes_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Scripts take the last line of standard error for the reason."""
    monkeypatch.setattr(simulate_module, "simulate", _raiser(BadInput("given 3;\n  allowed:\n4.")))
    assert main(tiny_words("dpcrowd")) == 2
    assert capsys.readouterr() == ("", "dpcrowd: error: given 3; allowed: 4.\n")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("keys shwo", "unknown command 'shwo'. Did you mean 'show'? Allowed: init-ca, renew, request, show, sign."),
        ("node status x.toml --timeout -1", "'--timeout': -1.0 is not allowed; allowed: 0.1 to 600. See"),
        ("demo --seconds 0", "'--seconds': 0.0 is not allowed; allowed: above 0. See"),
    ],
)
def test_what_is_allowed_is_named(words: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The library of the command line says '0.1<=x<=600', and names no command that exists."""
    assert main(words.split()) == 2
    assert text in capsys.readouterr().err


@pytest.mark.parametrize("error", [MemoryError("Unable to allocate 7 TiB"), OverflowError("int too large")])
def test_what_does_not_fit_the_machine_is_refused(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A zero too many in --servers is a slip of the hand."""
    monkeypatch.setattr(simulate_module, "simulate", _raiser(error))
    assert main(tiny_words("dpcrowd")) == 2
    assert capsys.readouterr().err == (
        f"dpcrowd: error: this does not fit into memory ({error}); use fewer servers, slots, runs or regions.\n"
    )


def test_a_bug_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what users can mend is a line; a mistake of ours must show where it is."""
    monkeypatch.setattr(simulate_module, "simulate", _raiser(RuntimeError("bug")))
    with pytest.raises(RuntimeError, match="bug"):
        main(tiny_words("dpcrowd"))


def test_other_complaints_of_click_are_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever the library refuses comes out in our form."""
    monkeypatch.setattr(simulate_module, "simulate", _raiser(click.ClickException("no\nway")))
    assert main(tiny_words("dpcrowd")) == 2
    assert capsys.readouterr().err == "dpcrowd: error: no way\n"
