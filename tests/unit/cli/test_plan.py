"""`dpcrowd plan`: tables, JSON and files, and one line for what is wrong."""

from __future__ import annotations

import contextlib
import json
import re
import tomllib
from pathlib import Path

import pytest

from dpcrowd.cli.main import main
from dpcrowd.cli.plan import _count
from dpcrowd.node.config.samples import sample_network

WORDS = ["plan", "--level", "north=5000,south=40", "--process-var", "400,9", "--servers", "6", "--graph", "ring"]
SMALL = [*WORDS, "--window", "24", "--epsilon", "0.02", "--epsilons", "0.02,1"]
CALM = ["plan", "--level", "5000", "--process-var", "400", "--servers", "4", "--window", "12", "--epsilons", "1"]
"""One region that needs no advice, which takes most of the time of a plan."""


@pytest.mark.slow
def test_the_tables_say_what_to_choose(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Operators read this once and build a network from it."""
    toml = tmp_path / "plan.toml"
    assert main([*SMALL, "--slot", "15m", "--toml", str(toml)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("6 servers, ε = 0.02 in any window of 24 slots: take ")
    users = "users of whom 5% are replaced per slot"
    assert f"assumed: equal shares, {users}, observation binomial, and all hops of a record per slot" in out
    for words in ("other budgets:", "other reaches:", "B per day", "promise: Pure 24-event", "cannot be told from 0"):
        assert words in out
    assert tomllib.loads(toml.read_text(encoding="utf-8"))["network"]["slot"] == "15m"


def test_a_file_of_which_no_network_can_be_made_says_so(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """`dpcrowd init` refused the file without links that `plan` had written, and that said that init would take it."""
    toml = tmp_path / "plan.toml"
    assert main([*CALM, "--toml", str(toml), "--json"]) == 0
    notes = " ".join(json.loads(capsys.readouterr().out)["notes"])
    for text in (notes, toml.read_text(encoding="utf-8")):
        assert "Plan again with --static" in text
        assert "give --slot (such as 15m)" in text
        assert "makes a network of it" not in text
    assert main(["init", str(tmp_path / "net"), "--plan", str(toml)]) == 2
    assert main([*CALM, "--static", "--slot", "15m", "--toml", str(toml)]) == 0
    assert "'dpcrowd init" not in capsys.readouterr().out
    assert "makes a network of it" in toml.read_text(encoding="utf-8")
    assert main(["init", str(tmp_path / "net"), "--plan", str(toml)]) == 0


@pytest.mark.parametrize(("level", "groups"), [("5000", False), ("1,1,2,1,1,2", True)])
def test_it_says_which_files_it_has_written_and_that_regions_are_grouped(
    level: str, groups: bool, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Nothing said that there is a file, nor that the file lets servers join regions."""
    toml, plot = tmp_path / "plan.toml", tmp_path / "plan.svg"
    words = ["plan", "--level", level, "--process-var", "1", *CALM[5:], "--toml", str(toml), "--plot", str(plot)]
    assert main(words) == 0
    *_, first, last = capsys.readouterr().out.splitlines()
    grouped = ', with groups = "auto": servers join small regions under one draw of noise where that helps.'
    assert first == f"written to {toml}{grouped if groups else '.'}"
    assert last == f"written to {plot}."
    assert (tomllib.loads(toml.read_text(encoding="utf-8"))["scheme"].get("groups") == "auto") is groups
    assert main([*words, "--json"]) == 0
    assert "written to" not in capsys.readouterr().out


def test_one_packet_is_not_called_packets() -> None:
    """A small network with slots of a day has "1 packets" per day."""
    assert [_count(value, "packet") for value in (0.6, 1.2, 1.6, 1200.0)] == [
        "1 packet",
        "1 packet",
        "2 packets",
        "1,200 packets",
    ]


def test_regions_of_nearly_nobody_do_not_look_accurate(capsys: pytest.CaptureFixture[str]) -> None:
    """An error is divided by one person at least, so that the emptiest region seemed to be the most accurate of all."""
    words = ["plan", "--level", "hall=5000,yard=0.02", "--process-var", "400,0.01", "--servers", "4", "--window", "12"]
    assert main([*words, "--epsilons", "1", "--json"]) == 0
    region = json.loads(capsys.readouterr().out)["regions"][1]
    assert main([*words, "--epsilons", "1"]) == 0
    out = capsys.readouterr().out
    (line,) = (line for line in out.splitlines() if line.startswith("yard"))
    assert f"{region['mae']:.3g} people" in line
    assert "%" not in line
    assert "1 region with less than one expected person per slot: the error is in people" in out
    assert "|error| / max(people, 1)" in out
    assert main([*CALM, "--seed", "0"]) == 0
    assert "less than one expected person" not in capsys.readouterr().out


def test_files_are_written_before_the_text(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`dpcrowd plan … --toml FILE | head` ended with the pipe, and there was no file."""

    def closed_pipe(*_: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr("dpcrowd.cli.plan._print_plan", closed_pipe)
    toml = tmp_path / "plan.toml"
    with contextlib.suppress(BrokenPipeError):
        main([*CALM, "--toml", str(toml)])
    assert toml.exists()


def test_json_is_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing but the object may be on standard output."""
    assert main([*CALM, "--json", "--samples", "3", "--reach", "2", "--epsilons", "0.5,1"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["samples"], summary["reach"], summary["slot_seconds"]) == (3, 2, None)
    assert [row["epsilon"] for row in summary["by_epsilon"]] == [0.5, 1.0]


@pytest.mark.slow
def test_a_goal_is_solved_for_epsilon_by_default(capsys: pytest.CaptureFixture[str]) -> None:
    """`--goal` alone is a question about epsilon."""
    assert main([*CALM, "--goal", "5% in every region above 1000"]) == 0
    assert capsys.readouterr().out.startswith("5% in every region above 1000: reached with ε = ")


@pytest.mark.parametrize("slot", ["2d", "1w", "0.5s", "soon"])
def test_a_slot_that_no_network_can_have_is_refused_as_init_refuses_it(
    slot: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`plan --slot 2d` planned a network, and `init --plan` then refused its file."""
    messages = set()
    for words in ([*SMALL, "--slot", slot], ["init", str(tmp_path / "net"), "--slot", slot]):
        assert main(words) != 0
        messages.add(capsys.readouterr().err)
    (message,) = messages
    assert f"--slot is {slot}; allowed: a duration from 1s to 1d, such as 30s or 1m." in message


def test_defaults_do_not_replace_what_a_network_states(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--epsilon 1` is what nobody typed; the network has its own."""
    file = tmp_path / "network.toml"
    settings = {
        "scheme": "relay",
        "samples": 2,
        "epsilon": "0.25",
        "length": 24,
        "users": "roaming",
        "correlation": 2.0,
    }
    file.write_text(sample_network(3, regions=["a", "b"], lag=7, **settings), encoding="utf-8")
    assert main(["plan", "--level", "900,70", "--graph", str(file), "--epsilons", "1", "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["guarantee"]["epsilon"], summary["guarantee"]["users"]) == (0.25, "roaming")
    assert [region["region"] for region in summary["regions"]] == ["a", "b"]
    assert "correlation" in summary["remarks"][0]
    assert not any("this plan has" in remark for remark in summary["remarks"])


@pytest.mark.slow
def test_a_large_error_is_a_plain_number(capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody reads 1.19e+03% at a glance."""
    epsilon = "0.000001"
    assert main([*CALM, "--shares", "0.1,0.2,0.3,0.4", "--epsilon", epsilon, "--epsilons", epsilon]) == 0
    out = capsys.readouterr().out
    assert "e+0" not in out
    assert re.search(r"\d,\d{3}%", out)


def test_a_missing_option_is_named_as_it_is_typed(capsys: pytest.CaptureFixture[str]) -> None:
    """process_var is a word of Python, which is not what one types here."""
    assert main(["plan", "--level", "500"]) == 2
    assert "--process-var" in capsys.readouterr().err


@pytest.mark.parametrize(("option", "value"), [("--level", "5"), ("--process-var", "3"), ("--data", "flu")])
def test_what_stands_beside_a_model_is_named_as_it_is_typed(
    option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """All three were named, each twice, whatever was given."""
    assert main(["plan", "--model", "model.toml", option, value]) == 2
    err = capsys.readouterr().err
    assert f"a model was given beside {option}, and has levels and variances of its own; leave {option} out" in err
    assert [other for other in ("--level", "--process-var", "--data") if other in err] == [option]


def test_a_plan_of_nothing_says_what_can_be_given(capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever has a model, or a network.toml with one, would look for levels that these have already."""
    assert main(["plan"]) == 2
    err = capsys.readouterr().err
    assert all(option in err for option in ("--level", "--data", "--model", "network.toml", "--graph"))


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--level", "north"], "--level is 'north'; allowed: numbers"),
        (["--level", "=5"], "without a name"),
        (["--level", "a=1,a=2"], "names region 'a' twice"),
        (["--level", "a=b=5"], "allowed in a name: neither = nor ;"),
        (["--level", "a=5;b=6"], "allowed in a name: neither = nor ;"),
        (["--process-var", "x"], "--process-var is 'x'"),
        (["--shares", "0.5,x"], "--shares is '0.5,x'"),
        (["--reach", "far"], "--reach is 'far'; allowed: a whole number >= 1, or all"),
        (["--goal", "soon"], "the goal 'soon' is not understood"),
        (["--solve", "slot"], "solving for slot needs a goal"),
        (["--plot", "plan.txt"], "allowed endings"),
        (["--toml", "no/such/folder/plan.toml"], "does not exist"),
        (["--toml", "plan.json"], "cannot write a plan to 'plan.json'; allowed ending: .toml"),
    ],
    ids=str,
)
def test_wrong_words_are_one_line(more: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A traceback, or a plan for something else, would be worse than an error."""
    assert main([*SMALL, *more]) == 2
    err = capsys.readouterr().err
    assert words in err
    assert err.count("\n") == 1
