"""`dpcrowd fit`: what it prints."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpcrowd.cli.main import main
from dpcrowd.models.file import time_text
from dpcrowd.sim.data.counts import write_counts

DAY = 86_400_000_000
HALLS = ["hall", "park"]


def counts_file(path: Path, counts: Any, *, timed: bool = False) -> Path:
    """A file of daily counts."""
    labels = [time_text(slot * DAY)[:10] if timed else str(slot) for slot in range(len(counts))]
    write_counts(path, np.asarray(counts), HALLS[: len(counts[0])], labels, "date" if timed else "slot")
    return path


def test_json_has_notes_and_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A script that reads `notes` of every command misses those of fit, and cannot tell how long slots are."""
    counts = np.random.default_rng(0).poisson(30, (20, 2))
    assert main(["fit", str(counts_file(tmp_path / "days.csv", counts, timed=True)), "--source", "x", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["notes"] == answer["model"]["notes"]
    assert any("20 slots are too few" in note for note in answer["notes"])
    assert (answer["model"]["slot"], answer["model"]["begins"]) == (86400.0, "1970-01-01T00:00:00Z")
    assert main(["fit", str(counts_file(tmp_path / "plain.csv", counts)), "--source", "x", "--json"]) == 0
    model = json.loads(capsys.readouterr().out)["model"]
    assert (model["slot"], model["begins"]) == (None, None)


def test_json_has_the_names_of_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Usual and unusual deviations had other names in JSON than in the file."""
    rng = np.random.default_rng(0)
    storms = 1.0 + 3.0 * (rng.random((300, 1)) < 0.05)  # in all regions
    path, out = counts_file(tmp_path / "storms.csv", rng.poisson(100 * storms, (300, 2))), tmp_path / "model.toml"
    assert main(["fit", str(path), "--source", "x", "--season", "none", "--out", str(out), "--json"]) == 0
    model, file = json.loads(capsys.readouterr().out)["model"], tomllib.loads(out.read_text(encoding="utf-8"))
    common = ("common_transition", "common_usual", "common_unusual")
    assert [model[name] for name in common] == [file["model"][name] for name in common]
    assert list(model["in_common"].values()) == [model[name] for name in common]
    for region, row in zip(model["regions"], file["region"], strict=True):
        assert region["tails"] == [region["usual"], region["unusual"]] == [row["usual"], row["unusual"]]


@pytest.mark.parametrize("people", [0, 5])
def test_counts_that_do_not_vary_show_no_correlation(
    people: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The doubt that is left of two constant levels passed for people who come and go together."""
    path = counts_file(tmp_path / "constant.csv", np.full((300, 2), people))
    assert main(["fit", str(path), "--source", "x"]) == 0
    printed = capsys.readouterr().out
    assert "correlation" not in printed.split("fitted on")[0]
    assert "e-1" not in printed, "rounding is not an error of a model"
    assert main(["fit", str(path), "--source", "x", "--json"]) == 0
    model = json.loads(capsys.readouterr().out)["model"]
    assert model["region_correlation"] is None
    assert model["scores"]["error"] == (None if people == 0 else 0.0)


@pytest.mark.parametrize("more", [[], ["--releases"]])
def test_a_missing_source_is_explained(more: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The first error that most users saw was "Missing option '--source'", which says neither what it is nor why."""
    path = counts_file(tmp_path / "counts.csv", np.arange(60)[:, None])
    assert main(["fit", str(path), *more]) == 2
    text = capsys.readouterr().err
    assert "--source is missing. A model is public: say where its data come from" in text
    assert "such as --source 'CDC, published'" in text


def test_what_is_expected_of_releases_is_said_of_releases(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Releases have no names that `dpcrowd data` lists, one row per slot and region, and need no times."""
    monkeypatch.chdir(tmp_path)
    Path("empty.csv").write_text("")
    rows = "".join(f"{slot},,a,5,1\n" for slot in range(30))
    Path("untimed.csv").write_text(f"slot,start,region,estimate,variance\n{rows}")
    texts = {}
    for name in ("nowhere.csv", "empty.csv", "untimed.csv"):
        assert main(["fit", name, "--releases", "--source", "x"]) == 2
        texts[name] = capsys.readouterr().err
    assert "file 'nowhere.csv' does not exist; give the path of a CSV or Parquet file." in texts["nowhere.csv"]
    assert "one line for each slot, or each slot and region" in texts["empty.csv"]
    assert "column 'start' is '', not a time" in texts["untimed.csv"]
    assert "If times are not known, leave the column out" in texts["untimed.csv"]
    assert main(["fit", "nowhere.csv", "--source", "x"]) == 2
    assert "or a name that 'dpcrowd data' lists" in capsys.readouterr().err


@pytest.mark.parametrize("timed", [True, False])
def test_a_wrong_slot_length_is_called_wrong_whether_or_not_one_is_allowed(
    timed: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of dated counts it said only to leave it out, as if banana were a length that other counts might have."""
    path = counts_file(tmp_path / "days.csv", np.full((20, 2), 5), timed=timed)
    assert main(["fit", str(path), "--source", "x", "--slot-length", "banana"]) == 2
    assert "slot length 'banana' is not allowed; give a number and s, m, h, d or w" in capsys.readouterr().err


@pytest.mark.parametrize("out", [[], ["--out", "model.toml"]])
@pytest.mark.parametrize("releases", [False, True])
def test_a_name_with_a_line_break_is_refused_where_it_stands(
    out: list[str],
    releases: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It passed without --out, and with it the model's file was blamed for what the user's file has."""
    monkeypatch.chdir(tmp_path)
    wide = 'date,"north\nside",south\n' + "".join(f"1970-01-{day:02},{day % 3},5\n" for day in range(1, 21))
    rows = "".join(f'{slot},"north\nside",5,1\n' for slot in range(20))
    Path("days.csv").write_text(f"slot,region,estimate,variance\n{rows}" if releases else wide, encoding="utf-8")
    words = ["--releases", "--process-var", "1"] if releases else []
    assert main(["fit", "days.csv", "--source", "x", *words, *out]) == 2
    where = "days.csv line 3, column 'region'" if releases else r"column or region 'north\nside' of 'days.csv'"
    problem = r"has '\n', a line break, as character 6; write it as one line of plain text."
    assert capsys.readouterr().err == f"dpcrowd: error: {where} {problem}\n"
    assert not Path("model.toml").exists()
