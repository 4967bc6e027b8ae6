"""The table of releases: what no server writes is refused with its place."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dpcrowd.cli.main import main
from dpcrowd.errors import BadInput
from dpcrowd.models.season import DAY, MONTH
from dpcrowd.sim.data.times import monthly_times, slot_times
from dpcrowd.sim.fit_releases import fit_releases

HEADER = "slot,region,estimate,low,high,measurement,measurement_variance"


def written(path: Path, *changed: str) -> Path:
    """A table of ten slots of one region, followed by the lines of `changed`."""
    rows = [f"{slot},hall,{50 + slot % 3},40,60,{48 + slot % 5},25" for slot in range(10)]
    path.write_text("\n".join([HEADER, *rows, *changed]) + "\n", encoding="utf-8")
    return path


def test_a_table_without_rows_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A server that has released nothing exports a header: the fit ended in a traceback."""
    path = tmp_path / "releases.csv"
    path.write_text(HEADER + "\n", encoding="utf-8")
    assert main(["fit", str(path), "--releases", "--source", "ours"]) == 2
    message = "releases.csv has a header but no data; expected one line for each slot and region."
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("10,hall,50,40,60,48,-25", r"'measurement_variance' \(slot 10, region 'hall'\) is -25; allowed: .* above 0"),
        ("10,hall,50,40,60,48,0", r"'measurement_variance' \(slot 10, region 'hall'\) is 0; allowed: .* above 0"),
        ("10,hall,50,40,60,48,-inf", r"'measurement_variance' \(slot 10, region 'hall'\) is -inf; allowed: .* above 0"),
        ("10,hall,50,40,60,48,", r"'measurement_variance' .* is empty; allowed: .*; or leave both cells empty"),
        ("10,hall,50,40,60,inf,25", r"'measurement' \(slot 10, region 'hall'\) is inf; allowed: a finite number"),
        ("10,hall,50,40,60,nan,25", r"'measurement' \(slot 10, region 'hall'\) is nan; allowed: a finite number"),
        ("10,hall,50,40,60,,25", r"'measurement' \(slot 10, region 'hall'\) is empty; allowed: a finite number"),
        ("10,hall,50,60,40,48,25", r"'low' \(slot 10, region 'hall'\) is 60; allowed: at most 'high', which is 40"),
        (
            "99999999999,hall,50,40,60,48,25",
            r"'slot' is 99999999999, far from the other slots: .* of 11 of the 1",
        ),
        ("9999999999999999999999,hall,50,40,60,48,25", r"'slot' is 9999999999999999999999, too large for a slot"),
        ("\u00b2,hall,50,40,60,48,25", r"'slot' is '\u00b2', not a slot"),
    ],
)
def test_numbers_that_no_server_writes_are_refused(tmp_path: Path, row: str, message: str) -> None:
    """They counted as rows without a measurement, or filled the memory: the model was one of something else."""
    with pytest.raises(BadInput, match=f"releases.csv line 12, column {message}"):
        fit_releases(written(tmp_path / "releases.csv", row), source="ours")


def test_a_negative_variance_of_an_estimate_is_refused(tmp_path: Path) -> None:
    """The row was left out, with a note that it has no number."""
    path = tmp_path / "releases.csv"
    path.write_text("slot,region,estimate,variance\n0,hall,5,2\n1,hall,5,-2\n2,hall,5,2\n", encoding="utf-8")
    with pytest.raises(BadInput, match=r"line 3, column 'variance' \(slot 1, region 'hall'\) is -2; allowed: a number"):
        fit_releases(path, source="ours")


@pytest.mark.parametrize("cells", [",", "nan,inf", ",inf", "nan,nan", "48,inf"])
def test_slots_without_a_measurement_are_read(tmp_path: Path, cells: str) -> None:
    """Servers write empty cells, and simulations NaN with an infinite variance, where nothing was measured."""
    path = written(tmp_path / "releases.csv", f"10,hall,50,40,60,{cells}", "11,hall,50,40,60,50,25")
    assert fit_releases(path, season="none", source="ours").slots == 12


def test_a_table_with_gaps_is_read(tmp_path: Path) -> None:
    """A server that was off for a while has released nothing in that time."""
    path = written(tmp_path / "releases.csv", *(f"{slot},hall,50,40,60,50,25" for slot in range(700, 705)))
    model = fit_releases(path, season="none", source="ours")
    assert (model.slots, model.notes[0]) == (705, "690 of 705 slots are missing in the table.")


def with_starts(path: Path, starts: list[str]) -> Path:
    """A table of as many slots of one region, the fourth of which is missing."""
    rows = [
        f"{slot},{start},hall,{50 + slot % 3},40,60,{48 + slot % 5},25"
        for slot, start in enumerate(starts)
        if slot != 3
    ]
    path.write_text("\n".join(["slot,start," + HEADER.removeprefix("slot,"), *rows]) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("starts", "months"),
    [
        ([f"{1903 + year}-01-01" for year in range(40)], 12),
        ([f"{2020 + month // 12}-{month % 12 + 1:02d}-01T00:00:00Z" for month in range(40)], 1),
        ([f"{2000 + quarter // 4} Q{quarter % 4 + 1}" for quarter in range(40)], 3),
    ],
)
def test_starts_of_months_and_years_are_read_as_in_counts(tmp_path: Path, starts: list[str], months: int) -> None:
    """A year was 31557286.956521 s long, and the model was refused for the counts that it had been fitted on."""
    model = fit_releases(with_starts(tmp_path / "releases.csv", starts), source="ours", season="none")
    labels = slot_times(starts)
    assert labels is not None
    assert (model.slot, model.begins) == (labels.length, labels.start)
    assert model.slot == months * MONTH


def test_starts_of_days_are_not_months(tmp_path: Path) -> None:
    """Slots 0 and 31 may both begin on the first of a month; those between them do not."""
    starts = [f"2026-{1 + day // 28:02d}-{1 + day % 28:02d}" for day in range(28)]
    assert fit_releases(with_starts(tmp_path / "a.csv", starts), source="ours").slot == DAY
    assert monthly_times({0: "2026-01-01", 31: "2026-02-01", 59: "2026-03-01"}) is None
    assert monthly_times({0: "2026-01-01", 1: "2026-02-01"}) is None
    assert monthly_times({0: "one", 1: "two", 2: "six"}) is None


def test_an_array_is_not_printed() -> None:
    """A message of thousands of numbers hides what is wrong, and numbers of people have no place in logs."""
    with pytest.raises(BadInput) as refused:
        fit_releases(np.full((30, 2), 77), source="ours")  # type: ignore[arg-type]
    message = "file, an object of type ndarray and shape (30, 2), is not the path of a file; allowed: a text such as "
    assert str(refused.value) == message + "'releases.csv', or a Path."
    with pytest.raises(BadInput, match="file, an object of type list, is not the path"):
        fit_releases([[77, 77]], source="ours")  # type: ignore[arg-type]
