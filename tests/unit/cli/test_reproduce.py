"""`dpcrowd reproduce`: what it writes and prints, going on after an interruption, and wrong input."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpcrowd
from dpcrowd.cli import reproduce as command
from dpcrowd.cli.main import main
from dpcrowd.experiments import reproduce as reproduce_module
from dpcrowd.experiments.claims.slot_cost import measure_slot_cost
from dpcrowd.experiments.draw.canvas import Drawn, draw
from dpcrowd.experiments.figures import Figure, Panel
from dpcrowd.experiments.points.run import Tick
from dpcrowd.experiments.report.claims import MARKS
from experiments_support import tiny_plan


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same command on a plan of seconds."""

    def plan(**asked: Any) -> Any:
        return tiny_plan(slots=22, seed=asked["seed"], runs=2, epsilons=(0.1, 1.0), intervals=(1, 20), windows=(20,))

    monkeypatch.setattr(reproduce_module, "make_plan", plan)
    monkeypatch.setattr(reproduce_module, "measure_slot_cost", partial(measure_slot_cost, 5))
    monkeypatch.setattr("dpcrowd.experiments.draw.canvas._DPI", 40)


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """No figure is drawn, which takes most of the time: for tests of something else."""

    def draw(figure: Figure, _panels: object, folder: Path) -> Drawn:
        return Drawn(figure, folder / f"{figure.file}.svg", folder / f"{figure.file}.png", ())

    monkeypatch.setattr(reproduce_module, "draw", draw)


def _words(out: Path, *more: str) -> list[str]:
    return ["reproduce", *more, "--out", str(out), "--jobs", "1"]


@pytest.mark.slow
@pytest.mark.usefixtures("tiny", "undrawn")
def test_it_writes_the_page_the_claims_the_figures_and_their_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The complete way from one command to a folder that can be given to somebody.

    Each figure offers all points that its panels ask for, on the data that are there. One of them is drawn;
    tests/unit/experiments/draw has the others.
    """
    skip = reproduce_module.draw

    def draw_some(figure: Figure, panels: list[Panel], folder: Path) -> Drawn:
        assert panels, figure.name
        for panel in panels:
            assert panel.curves, panel.title
            for curve in panel.curves:
                assert len(curve.x) == len(curve.mean) == len(curve.half)
                assert np.isfinite(curve.mean).any(), (panel.title, curve.label)
        return (draw if figure.number == 6 else skip)(figure, panels, folder)

    monkeypatch.setattr(reproduce_module, "draw", draw_some)
    assert main(_words(tmp_path / "report")) == 0
    out, err = capsys.readouterr()
    names = {path.name for path in (tmp_path / "report").iterdir()}
    assert {"index.html", "claims.json", "relay.json", "points"} <= names
    assert "Relay beside DPCrowd" in (tmp_path / "report" / "index.html").read_text(encoding="utf-8")
    assert {f"figure6-window.{ending}" for ending in ("svg", "png", "parquet")} <= names
    assert {"figure1-time.parquet", "figure8-partition.parquet"} <= names
    claims = json.loads((tmp_path / "report" / "claims.json").read_text())
    assert sum(claims["summary"].values()) == len(claims["claims"]) > 30
    assert str(tmp_path / "report" / "index.html") in out
    assert all(f"{MARKS[claim['outcome']]} {claim['statement']}" in out for claim in claims["claims"])
    assert "missing: flu" in err, "without the real data it says so"
    assert "figure 1 (time): 0 of" in err, "progress for a log file"


@pytest.mark.usefixtures("tiny", "undrawn")
@pytest.mark.slow
def test_the_second_time_it_uses_what_is_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever stops a long run and starts it again pays once, and gets the same verdicts."""
    assert main([*_words(tmp_path, "4"), "--json"]) == 0
    first = json.loads(capsys.readouterr().out)
    monkeypatch.setattr("dpcrowd.experiments.points.run.run_batch", lambda *_: pytest.fail("everything is on disk"))
    assert main([*_words(tmp_path, "epsilon"), "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["claims"] == first["claims"]
    judged = [claim for claim in first["claims"] if claim["outcome"] != "not judged"]
    assert 0 < len(judged) < len(first["claims"]), "claims of figures that were not asked for are not judged"


@pytest.mark.usefixtures("tiny", "undrawn")
@pytest.mark.slow
def test_claims_of_figures_that_were_not_asked_for_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Figure 8 has no claim: eighty lines that say so would hide everything else. Nothing disappears from the total."""
    assert main(_words(tmp_path, "8")) == 0
    lines = capsys.readouterr().out.splitlines()
    claims = json.loads((tmp_path / "claims.json").read_text())
    number = claims["summary"]["not judged"]
    assert f"– {number} claims need figures that were not asked for, and were not judged" in lines
    assert len([line for line in lines if line.startswith(tuple(MARKS.values()))]) == len(claims["claims"]) - number + 1
    assert f"claims: {number} not judged" in lines


def test_one_claim_holds_and_two_hold(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """'1 hold' is no English."""
    claims = {"claims": [], "summary": {"holds": 1, "does not hold": 2, "undecided": 1}, "coverage": [], "models": []}
    done = reproduce_module.Reproduction(Path("index.html"), claims, {})
    monkeypatch.setattr(reproduce_module, "reproduce", lambda *_, **__: done)
    assert main(["reproduce", "1"]) == 0
    assert "claims: 1 holds, 2 do not hold, 1 undecided\n" in capsys.readouterr().out


@pytest.mark.usefixtures("undrawn")
@pytest.mark.slow
def test_a_model_goes_all_the_way_into_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """From `fit` to figure 8: a model that filters cannot take, or that the page does not name, would show here."""
    weeks = np.arange("2001-01-06", "2002-01-12", 7, dtype="datetime64[D]")
    counts = (3000.0 + 900.0 * np.sin(np.arange(len(weeks)) / 7.0)).astype(int)
    lines = ["week,count", *(f"{week},{count}" for week, count in zip(weeks, counts, strict=True))]
    (tmp_path / "flu.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    folder, model = ["--data-dir", str(tmp_path)], str(tmp_path / "model.toml")
    assert main(["fit", "flu", *folder, "--season", "none", "--source", "drawn", "--out", model]) == 0
    real = reproduce_module.make_plan

    def plan(**asked: Any) -> Any:
        full = real(**asked)
        return replace(full, data={"flu": full.data["flu"]}, missing={}, servers=6, default_density=0.4)

    monkeypatch.setattr(reproduce_module, "make_plan", plan)
    words = ["8", "--quick", "--runs", "2", *folder, "--model", model]
    assert main(_words(tmp_path / "report", *words)) == 0
    out = capsys.readouterr().out
    assert "report: " in out
    assert (
        f"note: filters knew model.toml (flu, in-sample: fitted on {len(weeks) - 20} of the slots that were scored). "
        "The claims of the paper are about filters without a process model" in out
    )
    assert "\ncoverage: the 95% intervals contained the truth in " in out
    (entry,) = json.loads((tmp_path / "report" / "claims.json").read_text(encoding="utf-8"))["models"]
    assert (entry["data"], entry["model"], entry["model_source"]) == ("flu", "model.toml", "drawn")
    assert entry["in_sample_slots"] > 0, "programs that read the verdicts have to know"
    page = (tmp_path / "report" / "index.html").read_text(encoding="utf-8")
    assert "All filters know model.toml" in page
    assert (tmp_path / "report" / "figure8-partition.parquet").exists()


@pytest.mark.usefixtures("tiny", "undrawn")
@pytest.mark.slow
def test_from_python(tmp_path: Path) -> None:
    """Researchers call it from a notebook."""
    ticks: list[Tick] = []
    done = dpcrowd.reproduce([3], out=tmp_path, jobs=1, progress=ticks.append)
    page = done.page.read_text(encoding="utf-8")
    assert page.startswith("<!")
    assert "Relay beside DPCrowd" not in page, "the table was not asked for"
    assert ticks[-1].runs_done == ticks[-1].runs == 8


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["figure9"], "unknown figure 'figure9'"),
        (["densty"], "Did you mean 'density'"),
        (["--runs", "1"], "from 2"),
        (["--runs", "many"], "whole number"),
        (["--seed", "-1"], "seed must be"),
        (["--jobs", "0"], "jobs must be"),
        (["--backend", "spark"], "unknown backend 'spark'"),
        (["--cluster", "tcp://127.0.0.1:1"], "local backend has no cluster"),
        (["--tuning", "nowhere.toml"], "nowhere.toml"),
    ],
)
def test_wrong_input_is_refused_in_a_line(
    words: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before an hour of work, not after it."""
    assert main(["reproduce", *words, "--out", str(tmp_path / "report")]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert told in err
    assert err.count("\n") == 1
    assert not (tmp_path / "report").exists(), "nothing is left behind"


def test_a_place_that_cannot_be_written_is_refused_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A report that cannot be saved must not cost an hour."""
    (tmp_path / "file").write_text("")
    assert main(["reproduce", "--quick", "--out", str(tmp_path / "file" / "report")]) == 2
    assert "cannot write the report" in capsys.readouterr().err


def test_progress_lines_are_few_and_say_what_is_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A log of an hour should not have a line for each of a thousand batches, nor none."""
    now = [0.0]
    monkeypatch.setattr(command.time, "monotonic", lambda: now[0])
    lines = command._ProgressLines()
    for done in range(0, 101):
        now[0] = done * 2.0
        lines(Tick("figure 1 (time)", done, 100, float(done), 100.0))
    told = capsys.readouterr().err.splitlines()
    assert 10 < len(told) < 20
    assert told[1] == "figure 1 (time): 8 of 100 runs, about 3 min left"
    assert told[-1] == "figure 1 (time): 100 of 100 runs"
