"""`dpcrowd tune` on the command line: table, JSON, the file, and one line for every mistake."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dpcrowd.cli.main import main
from dpcrowd.cli.tune import _coverage_warnings, _exhaustion, _larger_errors, _percentages
from dpcrowd.experiments.tune import tune as tune_module
from dpcrowd.sim.tuned import Tuned, read_tuned
from plugin_support import Install

TINY = ["--servers", "4", "--density", "0.5", "--burn-in", "5", "--runs", "1", "--evaluations", "16", "--jobs", "1"]
TABLE = """
                                         | Missing option '--scheme'
--scheme dpcrwd                          | unknown scheme 'dpcrwd'. Did you mean 'dpcrowd'? Allowed: central,
--scheme bd                              | scheme 'bd' has no parameters to tune; allowed: central, fast, dfast,
--scheme uniform                         | scheme 'uniform' has no parameters to tune; allowed: central, fast,
--scheme dpcrowd:DPCrowd                 | scheme 'dpcrowd:DPCrowd' cannot be tuned: only the parameters of dpcrowd's
--scheme nowhere:Lazy                    | the scheme 'nowhere:Lazy' of the package nowhere cannot be used
--scheme fast,dpcrowd                    | unknown scheme 'fast,dpcrowd'.
--scheme dpcrowd --method evolutoin      | unknown method 'evolutoin'. Did you mean 'evolution'? Allowed: evolution,
--scheme dpcrowd --objective crsp        | unknown objective 'crsp'. Did you mean 'crps'? Allowed: are, crps
--scheme dpcrowd --transition identiy    | unknown transition 'identiy'. Did you mean 'identity'?
--scheme dpcrowd --method likelihood --transition frequencies | transition frequencies need counts, but
--scheme dpcrowd --transition frequencies | 'counts.csv' has one region, so nobody moves between regions
--scheme dpcrowd --span 0:61             | span '0:61' ends at slot 61, but the data have 60 slots; allowed: 0:60
--scheme dpcrowd --span 9:9              | span '9:9' contains none of the 60 slots
--scheme dpcrowd --span half             | span 'half' is not allowed; give FIRST:LAST
--scheme dpcrowd --span 0:6              | slots 0:6 are 6; tuning needs at least 10, and 50 or more
--scheme dpcrowd --slots 12              | slots 0:6 are 6; tuning needs at least 10
--scheme dpcrowd --data linear --slots 9 | slots 0:9 are 9; tuning needs at least 10, and 50 or more
--scheme dpcrowd-w --window 31           | the window of 31 slots is longer than slots 0:30 that are tuned on; choose a
--scheme dpcrowd --window 10             | scheme 'dpcrowd' takes a horizon, not a window
--scheme dpcrowd --data linear --span 0:9 | a span was given, but 'linear' is drawn anew in each run and has no past
--scheme dpcrowd --evaluations 11        | evaluations must be a whole number of at least 12 for the 3 parameters of
--scheme dpcrowd --objective are --search-variance | Q is searched with objective 'crps' only; given
--scheme dpcrowd --runs 0                | runs must be a whole number from 1
--scheme dpcrowd --seed -1               | seed must be a whole number of at least 0; given -1
--scheme dpcrowd --jobs 0                | jobs must be a whole number of at least 1
--scheme dpcrowd --epsilon 0             | epsilon must be > 0
--scheme dpcrowd --data nowhere.csv      | file 'nowhere.csv' does not exist
--scheme dpcrowd --data one.csv          | one.csv has one slot; tuning needs at least 10, and 50 or more to tell
--scheme dpcrowd --out nowhere/a.toml    | cannot write 'a.toml': the folder 'nowhere' does not exist
--scheme dpcrowd --out folder            | cannot write parameters to 'folder'; allowed ending: .toml
--scheme dpcrowd --out a.json            | cannot write parameters to 'a.json'; allowed ending: .toml
--scheme dpcrowd --evaluation            | unknown option '--evaluation'. Did you mean '--evaluations'?
"""
CASES = [tuple(part.strip() for part in line.split("| ", 1)) for line in TABLE.strip("\n").splitlines()]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a file of counts."""
    counts = np.abs(300 + np.random.default_rng(8).normal(0, 12, 60).cumsum()).astype(int)
    (tmp_path / "counts.csv").write_text("week,visits\n" + "\n".join(f"{t},{c}" for t, c in enumerate(counts)) + "\n")
    (tmp_path / "one.csv").write_text("week,visits\n0,300\n")
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _words(*more: str) -> list[str]:
    data = [] if "--data" in more else ["--data", "counts.csv"]
    return ["tune", *data, *TINY, *more]


@pytest.mark.parametrize(("given", "text"), CASES, ids=[given or "nothing" for given, _ in CASES])
def test_a_mistake_gets_one_clear_line_before_the_work(
    given: str, text: str, capsys: pytest.CaptureFixture[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An hour of searching before 'cannot write' would be an hour lost."""

    def late(*arguments: object, **settings: object) -> None:
        raise AssertionError("the search was started")

    monkeypatch.setattr(tune_module, "evolve", late)
    before = sorted(folder.iterdir())
    assert main(_words(*given.split())) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("dpcrowd: error: ")
    assert text in err
    assert sorted(folder.iterdir()) == before


def test_a_scheme_of_another_package_is_known_but_not_tuned(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    """`dpcrowd schemes` lists it: "unknown scheme" sends its author to look for a spelling mistake."""
    source = "import dpcrowd\nclass Lazy(dpcrowd.DPCrowd):\n    name = 'lazy'\n"
    install("crowd-extras", source, schemes={"lazy": "crowd_extras:Lazy"})
    for name in ("lazy", "crowd_extras:Lazy"):
        assert main(_words("--scheme", name)) == 2
        assert f"scheme '{name}' cannot be tuned: only" in capsys.readouterr().err


def test_the_help_names_what_can_be_tuned(capsys: pytest.CaptureFixture[str]) -> None:
    """The list is written by hand, so that the command starts fast."""
    assert main(["tune", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    listed = text.partition("Scheme to tune: ")[2].partition(".")[0]
    assert {*listed.replace(" or ", ", ").split(", ")} == {*tune_module.TUNABLE}


@pytest.mark.slow
def test_the_file_goes_into_a_simulation(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    """The whole way: tune on the first half, simulate with the result, read that half of it is in-sample."""
    assert main(_words("--scheme", "dpcrowd", "--out", "t.toml")) == 0
    out = capsys.readouterr().out
    tuned = read_tuned(folder / "t.toml")
    for word in (
        "Q ",
        "theta",
        "xi",
        "sample_fraction",
        "ARE before → after",
        "CRPS before",
        "coverage of 95%",
        "slots 0 to 29 of the 60",
        "to t.toml",
    ):
        assert word in out
    assert f"{tuned.are_before:.4g} → {tuned.are_after:.4g}" in out
    more = ["--servers", "4", "--density", "0.5", "--burn-in", "5", "--runs", "1"]
    words = ["simulate", "--scheme", "dpcrowd", "--data", "counts.csv", *more]
    assert main([*words, "--tuning", "t.toml"]) == 0
    assert "25 of the 55 that this result scores, and the error in those is an in-sample one" in capsys.readouterr().out
    assert main([*words, "--tuning", "t.toml", "--process-var", "3"]) == 2
    assert "a process variance was given, and t.toml has one, too" in capsys.readouterr().err
    assert (
        main(["simulate", "--scheme", "dpcrowd", "--data", "linear", "--slots", "30", *more, "--tuning", "t.toml"]) == 2
    )
    assert "t.toml was tuned on 'counts.csv', but the data are 'linear'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        (0.94, 0.95, "94% → 95%"),
        (0.9992, 0.9997, "99.92% → 99.97%"),
        (0.951, 0.954, "95.1% → 95.4%"),
        (0.95, 0.95, "95% → 95%"),
        (1.0, 1.0, "100% → 100%"),
        (1.0, 0.996, "100.0% → 99.6%"),
        (0.9992, 0.9992, "99.9% → 99.9%"),
        (0.999999, 1.0, "100.00% → 100.00%"),
    ],
)
def test_a_change_of_the_coverage_is_not_rounded_away(before: float, after: float, shown: str) -> None:
    """ "100% → 100%" hid a change, and that some intervals miss the truth."""
    assert _percentages(before, after) == shown


def test_intervals_that_are_too_wide_are_said_as_in_a_simulation() -> None:
    """`tune` printed 100% without a word, where `simulate` warns: the same intervals, two judgements."""
    text = (
        "warning: more than 99.5% of the 95% intervals contain the truth: they are wider than they need to be, and the "
        "estimates are better than they say."
    )
    shape = {"first": 0, "last": 60, "burn_in": 10, "runs": 2, "servers": 5, "regions": ("a", "b")}
    wide = SimpleNamespace(coverage_after=0.9997, **shape)
    assert _coverage_warnings(wide) == [text]
    assert _coverage_warnings(SimpleNamespace(coverage_after=0.995, **shape)) == []
    few = {**shape, "last": 59}
    assert _coverage_warnings(SimpleNamespace(coverage_after=0.9997, **few)) == [], "among few it may be chance"


def test_json_holds_everything_that_the_file_does(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    """Scripts read this instead of the table."""
    words = _words("--scheme", "dpcrowd", "--method", "likelihood", "--span", "0:0.75", "--out", "t.toml", "--json")
    assert main(words) == 0
    printed = json.loads(capsys.readouterr().out)["tuned"]
    tuned = read_tuned(folder / "t.toml")
    assert printed["process_var"] == tuned.model.process_var.tolist()
    assert (printed["first"], printed["last"], printed["slots"]) == (0, 45, 60)
    assert printed["are_after"] == tuned.are_after
    assert printed["method"] == "likelihood"
    assert printed["coverage_after"] == tuned.coverage_after
    assert printed["dpcrowd"] == tuned.version
    assert printed["transition"] == 1.0


@pytest.mark.parametrize("method", ["evolution", "likelihood"])
def test_both_methods_say_that_no_epsilon_covers_data_of_your_own(
    method: str, capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    """The samples of likelihood are drawn from the counts and paid by nobody: a Q that is taken for free leaks them."""
    assert main(_words("--scheme", "dpcrowd", "--method", method, "--out", "t.toml")) == 0
    warning = "no epsilon pays for that, so they have to be public, or of people outside the promise"
    assert warning in capsys.readouterr().out
    assert warning in (folder / "t.toml").read_text(encoding="utf-8")


def test_the_help_does_not_call_likelihood_free(capsys: pytest.CaptureFixture[str]) -> None:
    """It was: "at no further privacy cost" is true only of samples that a network has released."""
    assert main(["tune", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "No ledger pays for them: it is for public data as well" in text
    assert "no further privacy cost" not in text


def test_likelihood_depends_on_each_person(folder: Path) -> None:
    """The claim that Q were private is refuted by one more person in one slot: seeded noise does not hide them."""
    counts = [int(line.split(",")[1]) for line in Path("counts.csv").read_text(encoding="utf-8").splitlines()[1:]]
    found = []
    for extra in (0, 1):
        data = np.array([*counts[:10], counts[10] + extra, *counts[11:]])[:, None]
        settings: dict[str, Any] = {"servers": 4, "density": 0.5, "runs": 1, "burn_in": 5, "method": "likelihood"}
        found.append(tune_module.tune("dpcrowd", data, **settings).model.process_var[0])
    assert found[0] != found[1]


@pytest.mark.slow
def test_intervals_that_are_too_narrow_are_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    """A model whose Q is far too small is not repaired by sampling; the number alone would be overlooked."""
    assert main(_words("--scheme", "dpcrowd", "--objective", "are")) == 0
    assert "warning: only" not in capsys.readouterr().out
    data = np.abs(300 + np.random.default_rng(8).normal(0, 60, 60).cumsum()).astype(int)
    Path("wild.csv").write_text("week,visits\n" + "\n".join(f"{t},{c}" for t, c in enumerate(data)) + "\n")
    words = _words("--scheme", "dpcrowd", "--objective", "are", "--data", "wild.csv", "--epsilon", "100")
    real = tune_module.configure
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tune_module, "configure", lambda *given, **more: real(*given, process_var=0.01, **more))
        assert main(words) == 0
    assert "of the 95% intervals contain the truth" in capsys.readouterr().out.replace("\n", " ")


@pytest.mark.slow
def test_a_search_without_success_says_so(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that reads "0.1295 → 0.1295" leaves open whether the search has done anything."""
    assert main(_words("--scheme", "dpcrowd", "--method", "likelihood")) == 0
    assert "nothing better" not in capsys.readouterr().out
    real = tune_module.evaluate
    start: list[Any] = []
    monkeypatch.setattr(tune_module, "evaluate", lambda config: start.append(real(config)) or start[-1])
    search = tune_module.evolve
    monkeypatch.setattr(tune_module, "evolve", lambda *given, **more: replace(search(*given, **more), scores=start[-1]))
    assert main(_words("--scheme", "dpcrowd")) == 0
    assert "nothing better was found" in capsys.readouterr().out


def test_a_relative_error_that_has_grown_is_named() -> None:
    """A better score with an error that is 70% larger would read like a success."""
    worse = SimpleNamespace(objective="crps", are_before=0.4, are_after=0.68)
    assert "grown by 70%" in _larger_errors(worse)[0]
    assert not _larger_errors(SimpleNamespace(objective="crps", are_before=0.4, are_after=0.4))
    assert not _larger_errors(SimpleNamespace(objective="are", are_before=0.4, are_after=0.68))


@pytest.mark.slow
def test_without_a_file_the_table_says_that_nothing_was_kept(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    """A minute of work should not be lost by surprise; several regions are shown by their range."""
    words = ["tune", "--scheme", "rescuedp", "--data", "multi-linear", "--slots", "40", "--window", "10", *TINY]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "not written; give --out FILE.toml to keep it." in out
    assert "Q of 6 regions" in out
    assert "A: share of people who stay" in out
    assert not list(folder.glob("*.toml"))


@pytest.mark.slow
def test_an_exhausted_budget_is_said(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Parameters with which servers sample in four slots and then never again look good in every other row."""
    words = _words("--scheme", "dpcrowd", "--method", "likelihood")
    assert main([*words, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)["tuned"]
    assert (printed["exhausted_at"] is None) == (printed["exhausted_servers"] == 0.0)
    assert printed["burn_in"] == 5
    real = tune_module.evaluate
    exhausted = {"exhausted_at": 4, "exhausted_servers": 0.75, "lost_slots": 0.6}
    monkeypatch.setattr(tune_module, "evaluate", lambda config: replace(real(config), **exhausted))
    assert main(words) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "budget exhausted at slot 4 (75% of the servers)" in out
    assert "budget exhausted at slot 4, of slots 0 to 29" in out
    assert "--method evolution does" in out
    assert "errors count from slot 5 of these on (--burn-in)" in out
    tuned = read_tuned_of(words, capsys)
    assert "try more (--evaluations)" in _exhaustion(replace(tuned, method="evolution"), allowed=False)
    assert "(--allow-exhausted)" in _exhaustion(replace(tuned, method="evolution"), allowed=True)


@pytest.mark.slow
def test_what_it_says_of_releases_is_true(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It invited past releases, and refused every table of them."""
    (folder / "releases.csv").write_text("slot,region,estimate,low,high\n0,a,5,1,9\n1,a,6,2,10\n", encoding="utf-8")
    assert main(["tune", "--scheme", "dpcrowd", "--data", "releases.csv"]) == 2
    assert "add --releases to 'dpcrowd fit'" in capsys.readouterr().err
    assert main(["--help"]) == 0
    assert "parameters on public data." in " ".join(capsys.readouterr().out.split())
    assert main(["tune", "--help"]) == 0
    assert "`dpcrowd fit --releases` fits a model on them" in " ".join(capsys.readouterr().out.split())
    tuned = read_tuned_of(_words("--scheme", "dpcrowd"), capsys)
    assert tuned.on.endswith("so they have to be public, or of people outside the promise")


def read_tuned_of(words: list[str], capsys: pytest.CaptureFixture[str]) -> Tuned:
    """Return what a command writes, without what it prints."""
    assert main([*words, "--out", "t.toml"]) == 0
    capsys.readouterr()
    return read_tuned("t.toml")
