"""Slots that a file of counts leaves out: refused, or filled in with zeros on request."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dpcrowd.cli.main import main
from dpcrowd.errors import BadInput
from dpcrowd.sim.configure import configure
from dpcrowd.sim.data import DataSet, load
from dpcrowd.sim.data.times import slot_times

OPEN = [f"2026-03-0{day} {hour:02d}:00:00" for day in (2, 3, 4) for hour in (9, 10, 11)]


def save(folder: Path, labels: list[str], header: str = "time,hall") -> Path:
    path = folder / "open.csv"
    path.write_text("\n".join([header, *(f"{label},{9 + place}" for place, label in enumerate(labels))]) + "\n")
    return path


def truth(data: DataSet) -> list[int]:
    return [int(count) for count in data.truth(np.random.default_rng(0))[:, 0]]


def test_opening_hours_are_refused_or_filled_with_zeros(tmp_path: Path) -> None:
    """A car park that is open from 8 to 17 h could not be read at all, and the message said to fill in every night."""
    path = save(tmp_path, OPEN)
    with pytest.raises(BadInput, match=r"line 5: time '2026-03-02T12:00.* is missing .* count as 0: --gaps zero"):
        load(path)
    data = load(path, gaps="zero")
    assert data.slots == 51
    assert truth(data) == [9, 10, 11, *[0] * 21, 12, 13, 14, *[0] * 21, 15, 16, 17]
    assert "open.csv has no rows for 42 of 51 slots, in 2 gaps; nobody is taken to have been there (gaps=zero)." in (
        data.notes
    )
    assert data.slot_labels is not None
    assert data.slot_labels[2:4] == ("2026-03-02 11:00:00", "2026-03-02 12:00:00"), "in the form of the file"
    times = slot_times(data.slot_labels)
    assert times is not None
    assert times.length == 3_600_000_000


@pytest.mark.parametrize(
    ("labels", "slots"),
    [
        (["2026-03-06", "2026-03-07", "2026-03-08", "2026-03-11"], 6),
        (["2026-01-01", "2026-02-01", "2026-03-01", "2026-06-01"], 6),
        (["2026-01-31", "2026-02-28", "2026-03-31", "2026-06-30"], 6),
        (["2026-01", "2026-02", "2026-03", "2026-06"], 6),
        (["2026 Q1", "2026 Q2", "2026 Q3", "2027 Q2"], 6),
        (["3", "4", "5", "9"], 7),
        (["2026-03-02T09:00Z", "2026-03-02T10:00Z", "2026-03-02T11:00Z", "2026-03-02T14:00Z"], 6),
    ],
)
def test_every_kind_of_label_can_be_filled_in(labels: list[str], slots: int, tmp_path: Path) -> None:
    """Days of the week, months and plain numbers leave slots out as well."""
    data = load(save(tmp_path, labels), gaps="zero")
    assert data.slots == slots
    assert (truth(data)[-1], sum(truth(data))) == (12, 9 + 10 + 11 + 12)


def test_a_quarter_that_is_filled_in_is_written_as_the_others(tmp_path: Path) -> None:
    """A label of another form would be refused, or taken for another slot, when the table is read again."""
    for form in ("{} Q{}", "{}-Q{}", "{}q{}"):
        labels = [form.format(2026, quarter) for quarter in (1, 2, 4)]
        assert load(save(tmp_path, labels), gaps="zero").slot_labels == tuple(
            form.format(2026, q) for q in (1, 2, 3, 4)
        )


def test_the_end_of_a_month_that_is_filled_in_is_the_last_day_of_it(tmp_path: Path) -> None:
    """2027-02-31 does not exist; as a label of the file it would be no time."""
    data = load(save(tmp_path, ["2027-07-31", "2027-08-31", "2027-12-31", "2028-01-31", "2028-03-31"]), gaps="zero")
    assert data.slot_labels is not None
    assert data.slot_labels[2:5] == ("2027-09-30", "2027-10-31", "2027-11-30")
    assert data.slot_labels[7] == "2028-02-29"


def test_a_file_by_slot_and_region_is_filled_in_as_well(tmp_path: Path) -> None:
    """Its rows may be in any order, so the places of the slots move."""
    path = tmp_path / "long.csv"
    rows = ["2026-03-08,park,2", "2026-03-06,hall,5", "2026-03-07,hall,1", "2026-03-11,hall,7"]
    path.write_text("\n".join(["date,region,count", *rows]) + "\n")
    with pytest.raises(BadInput, match="--gaps zero"):
        load(path)
    data = load(path, gaps="zero", regions=["hall", "park"])
    assert data.truth(np.random.default_rng(0)).tolist() == [[5, 0], [1, 0], [0, 2], [0, 0], [0, 0], [7, 0]]
    assert any("no row for 4 of 8 pairs" in note for note in data.notes)
    assert any("no rows for 2 of 6 slots, in 1 gap;" in note for note in data.notes)


def test_a_file_without_gaps_is_what_it_was(tmp_path: Path) -> None:
    """The option must not leave a note, or change labels, where nothing is missing."""
    path = save(tmp_path, OPEN[:3])
    assert load(path, gaps="zero").notes == load(path).notes
    assert load(path, gaps="zero").slot_labels == load(path).slot_labels


@pytest.mark.parametrize(
    ("labels", "problem"),
    [
        ([*OPEN[:3], "2126-03-02 09:00:00"], r"line 5: 876,.* slots are missing .* Is the time correct"),
        ([*OPEN[:3], OPEN[0]], "occurs twice"),
        ([*OPEN[:3], "2026-03-02 12:30:00"], "is missing before"),
        ([*OPEN[1:3], OPEN[0]], "Sort the rows by time"),
        ([*OPEN[:2], OPEN[3], OPEN[2], *OPEN[4:6]], r"line 5: .* comes after .*, which is later"),
    ],
)
def test_what_is_not_a_gap_is_refused_all_the_same(labels: list[str], problem: str, tmp_path: Path) -> None:
    """A wrong century would fill the memory; zeros must not hide rows that are out of order."""
    with pytest.raises(BadInput, match=problem):
        load(save(tmp_path, labels), gaps="zero")


@pytest.mark.slow
def test_commands_that_read_counts_take_the_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The message names the option, so every command that prints it has to have it."""
    path = str(save(tmp_path, OPEN))
    network = ["--servers", "4", "--density", "1", "--window", "5"]
    assert main(["fit", path, "--source", "x", "--gaps", "zero"]) == 0
    assert "no rows for 42 of 51 slots" in capsys.readouterr().out
    assert main(["simulate", "--scheme", "uniform", "--data", path, "--runs", "1", "--gaps", "zero", *network]) == 0
    assert "no rows for 42 of 51 slots" in capsys.readouterr().out
    assert main(["plan", "--data", path, "--gaps", "zero", *network]) == 0
    assert main(["plan", "--level", "50", "--process-var", "4", "--gaps", "zero", *network]) == 2
    assert "--gaps is for a file of counts; give it with --data FILE" in capsys.readouterr().err


def test_only_files_of_counts_have_gaps(tmp_path: Path) -> None:
    """An option that does nothing misleads."""
    with pytest.raises(BadInput, match=r"unknown treatment of missing slots 'zeros'\. Did you mean 'zero'"):
        load(save(tmp_path, OPEN), gaps="zeros")
    with pytest.raises(BadInput, match="'linear' is a data set without gaps"):
        load("linear", gaps="zero")
    with pytest.raises(BadInput, match="gaps is for files of counts"):
        configure("uniform", np.ones((30, 1), dtype=int), gaps="zero", window=5)
    path = tmp_path / "people.csv"
    path.write_text("user,time,region\na,2026-03-02,hall\nb,2026-03-03,hall\n")
    with pytest.raises(BadInput, match="a slot without check-ins counts as 0"):
        load(path, gaps="zero")
