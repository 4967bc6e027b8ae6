"""A column that is the total of the others: said wherever a file of counts is read, and never left out in silence."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dpcrowd.cli.main import main
from dpcrowd.sim.data import load
from dpcrowd.sim.data.totals import total_note

NOTE = "column 'all' equals the sum of all other columns in every row"


def save(folder: Path) -> Path:
    """Sixty slots of two regions, and their total."""
    parts = np.random.default_rng(1).poisson(40, (60, 2))
    rows = [f"{slot},{a + b},{a},{b}" for slot, (a, b) in enumerate(parts.tolist())]
    path = folder / "town.csv"
    path.write_text("\n".join(["slot,all,hall,yard", *rows]) + "\n", encoding="utf-8")
    return path


def test_a_total_is_named_when_a_file_is_read(tmp_path: Path) -> None:
    """Read as a region, it lets everybody count twice, and nothing in a result shows it."""
    path = save(tmp_path)
    assert any(note.startswith(NOTE) for note in load(path).notes)
    assert not any(note.startswith("column") for note in load(path, regions=["hall", "yard"]).notes), "what to do helps"


def test_a_total_is_named_in_long_tables(tmp_path: Path) -> None:
    """A row per slot and region may hold totals, too."""
    rows = ["slot,region,count"]
    for slot in range(20):
        rows += [f"{slot},a,{slot}", f"{slot},b,{slot + 1}", f"{slot},all,{2 * slot + 1}"]
    path = tmp_path / "long.csv"
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    assert any(note.startswith(NOTE) for note in load(path).notes)


@pytest.mark.parametrize(
    "counts",
    [
        [[1, 1], [4, 4]],
        [[0, 0, 0], [0, 0, 0]],
        [[1, 0, 1], [4, 0, 4]],
        [[1, 2, 3], [4, 0, 5]],
    ],
)
def test_what_need_not_be_a_total(counts: list[list[int]]) -> None:
    """Two regions that are alike, and empty ones, are no sums of several."""
    assert total_note(np.array(counts), ["a", "b", "c"]) is None


@pytest.mark.slow
def test_commands_that_read_counts_say_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever fits, tunes or plans first would carry the double count into a network."""
    path = str(save(tmp_path))
    network = ["--servers", "4", "--density", "1", "--window", "10"]
    for words in (
        ["simulate", "--scheme", "uniform", "--data", path, "--runs", "1", *network],
        ["fit", path, "--source", "x"],
        ["tune", "--scheme", "dpcrowd-plus", "--data", path, "--runs", "1", "--method", "likelihood", *network],
        ["plan", "--data", path, *network],
    ):
        assert main(words) == 0
        assert NOTE in " ".join(capsys.readouterr().out.split()), words[0]
