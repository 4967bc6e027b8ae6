"""Files with one row per slot and region."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

import dpcrowd
from dpcrowd.cli.main import main
from dpcrowd.errors import BadInput
from dpcrowd.sim.data import FixedData, load

ROWS = [("2024-01-01", "hall", 5), ("2024-01-01", "park", 0), ("2024-01-02", "hall", 7), ("2024-01-02", "park", 2)]
ROWS += [("2024-01-03", "hall", 4), ("2024-01-03", "park", 3)]


def _names(header: str) -> list[str]:
    return header.lower().replace("time", "slot").replace("people", "count").split(",")


def save(folder: Path, rows: list[tuple[str, str, object]], header: str = "slot,region,count") -> Path:
    path = folder / "long.csv"
    columns = [["slot", "region", "count"].index(name) for name in _names(header)]
    lines = [",".join(str(row[column]) for column in columns) for row in rows]
    path.write_text("\n".join([header, *lines]) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "header", ["slot,region,count", "Count,Time,Region", "REGION,slot,COUNT", "region,time,people"]
)
def test_columns_in_any_order_are_read(header: str, tmp_path: Path) -> None:
    """Databases give this form, and it was refused."""
    data = load(save(tmp_path, ROWS, header))
    assert isinstance(data, FixedData)
    assert data.regions == ("hall", "park")
    assert data.slot_labels == ("2024-01-01", "2024-01-02", "2024-01-03")
    assert data.counts.tolist() == [[5, 0], [7, 2], [4, 3]]
    assert not any("count as 0" in note for note in data.notes)


def test_rows_in_any_order_are_put_into_the_order_of_time(tmp_path: Path) -> None:
    """A file by region would have its slots in the order in which they first occur, which is not that of time."""
    for rows in itertools.islice(itertools.permutations(ROWS), 0, 720, 97):
        data = load(save(tmp_path, list(rows)), regions=["hall", "park"])
        assert data.slot_labels == ("2024-01-01", "2024-01-02", "2024-01-03")
        assert data.truth(np.random.default_rng(0)).tolist() == [[5, 0], [7, 2], [4, 3]]


def test_a_pair_without_a_row_counts_as_0_and_a_note_says_so(tmp_path: Path) -> None:
    """A query has no row where nobody was: a refusal would make every such file useless, silence would hide gaps."""
    path = save(tmp_path, [row for row in ROWS if row[2]])
    data = load(path)
    assert data.truth(np.random.default_rng(0)).tolist() == [[5, 0], [7, 2], [4, 3]]
    note = "long.csv has no row for 1 of 6 pairs of slot and region; these count as 0."
    assert note in data.notes
    assert note in dpcrowd.fit(path, source="a test").notes


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([*ROWS, ROWS[3]], r"long.csv line 8: slot '2024-01-02' of region 'park' occurs twice \(first in line 5\)"),
        ([*ROWS, ("2024-01-04", "hall", -1)], "line 8, column 'count' is -1; a count cannot be negative"),
        ([*ROWS, ("2024-01-04", "", 1)], "long.csv line 8 has no region"),
        ([*ROWS, ("", "hall", 1)], "long.csv line 8 has no slot"),
        ([*ROWS, ("2024-01-05", "hall", 1)], "line 8: slot '2024-01-04' is missing before '2024-01-05'"),
        ([], "long.csv has a header but no data"),
    ],
)
def test_what_is_wrong_is_refused_with_its_line(
    rows: list[tuple[str, str, object]], message: str, tmp_path: Path
) -> None:
    """Two rows of one pair may be a sum or a mistake: only the owner of the file knows."""
    with pytest.raises(BadInput, match=message):
        load(save(tmp_path, rows))


def test_a_wide_file_that_looks_long_to_its_owner_is_told_of_the_form(tmp_path: Path) -> None:
    """Columns of other names are not guessed."""
    path = tmp_path / "x.csv"
    path.write_text("day,station,visits\n2024-01-01,1,5\n2024-01-01,2,7\n", encoding="utf-8")
    with pytest.raises(BadInput, match=r"has the columns slot \(or time\), region and count"):
        load(path)


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ("time,server,region,count", "column 'server' is not understood.* sum the counts over it, or leave it out"),
        ("time,region,count,people", "column 'people' is not understood.* 'time', 'region' and 'count' alone"),
        ("date,hour,region,count", r"column 'hour' .* write it and 'date' into one column of times"),
        (",time,region,count", "column number 1, which has no name, is not understood"),
    ],
)
def test_a_column_too_many_is_named(header: str, words: str, tmp_path: Path) -> None:
    """The message said that a slot occurs twice, which it has to in such a file."""
    path = tmp_path / "more.csv"
    path.write_text(header + "\n" + "".join(f"{slot},{slot % 2},0,5\n" for slot in range(6)), encoding="utf-8")
    with pytest.raises(BadInput, match=words):
        load(path)


def test_a_table_of_releases_is_recognised(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without --releases, the message said that a slot occurs twice."""
    path = tmp_path / "releases.csv"
    rows = [f"{slot},2026-01-0{slot + 1}T00:00:00Z,{region},5,4,6" for slot in range(6) for region in ("hall", "park")]
    path.write_text("\n".join(["slot,start,region,estimate,low,high", *rows]) + "\n", encoding="utf-8")
    for words in (["fit", str(path), "--source", "x"], ["simulate", "--scheme", "fast", "--data", str(path)]):
        assert main(words) == 2
        problem = capsys.readouterr().err
        assert "releases.csv has the columns slot, region and estimate: it looks like a table of releases" in problem
        assert "add --releases to 'dpcrowd fit'" in problem
        assert "simulate, tune and plan need counts" in problem
