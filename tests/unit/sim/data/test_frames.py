"""DataFrames of pandas and polars in place of files, as notebooks have them."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

import numpy as np
import pandas
import polars
import pytest

import dpcrowd
from dpcrowd.errors import BadInput
from dpcrowd.sim.data.draw import load

COUNTS = np.random.default_rng(3).poisson(50, (60, 2))
DAYS = [date(2026, 1, 1) + timedelta(days=day) for day in range(60)]
COLUMNS: dict[str, Any] = {"north": COUNTS[:, 0].tolist(), "south": COUNTS[:, 1].tolist()}
FRAMES = {
    "polars": polars.DataFrame({"day": DAYS, **COLUMNS}),
    "polars, times last": polars.DataFrame({**COLUMNS, "when": DAYS}),
    "pandas": pandas.DataFrame({"day": [str(day) for day in DAYS], **COLUMNS}),
    "pandas, index of times": pandas.DataFrame(COLUMNS, index=pandas.date_range("2026-01-01", periods=60)),
    "pandas, index of periods": pandas.DataFrame(COLUMNS, index=pandas.period_range("2026-01-01", periods=60)),
    "pandas, times": pandas.DataFrame({"day": pandas.date_range("2026-01-01", periods=60), **COLUMNS}),
}


@pytest.mark.parametrize("name", FRAMES)
def test_a_frame_is_read_as_a_file_is(name: str) -> None:
    """Whoever had a DataFrame was told to write it to a file first."""
    data: Any = load(FRAMES[name])
    assert data.regions == ("north", "south")
    assert np.array_equal(data.counts, COUNTS)
    assert data.slot_labels[0][:10] == "2026-01-01"
    assert (data.slots, data.slot_labels[59][:10]) == (60, "2026-03-01")


def test_frames_without_times_have_numbered_rows() -> None:
    """The numbers of rows that pandas gives are no times."""
    for frame in (polars.DataFrame(COLUMNS), pandas.DataFrame(COLUMNS)):
        data: Any = load(frame, regions=["south"])
        assert (data.slot_labels, data.regions) == (None, ("south",))


def test_an_index_with_a_name_is_the_column_of_slots() -> None:
    """Years as an index were taken for numbers of rows, so that gaps between them were not seen."""
    frame = pandas.DataFrame(COLUMNS, index=pandas.Index(range(1960, 2020), name="year"))
    data: Any = load(frame)
    assert (data.regions, data.slot_labels[:2]) == (("north", "south"), ("1960", "1961"))


def test_plans_take_frames_and_arrays() -> None:
    """A plan ended with a TypeError, and refused an array with the advice to give an array."""
    settings: dict[str, Any] = {"servers": 4, "density": 1.0, "window": 10, "advice": False}
    of_frame, of_array = dpcrowd.plan(data=FRAMES["pandas"], **settings), dpcrowd.plan(data=COUNTS, **settings)
    assert [region.region for region in of_frame.regions] == ["north", "south"]
    assert (of_frame.samples, of_frame.total_error) == (of_array.samples, of_array.total_error)


def test_frames_of_check_ins_and_of_long_counts() -> None:
    """They have the columns of such files."""
    checkins = polars.DataFrame({"user": ["a", "b", "a"], "time": DAYS[:3], "region": ["x", "x", "y"]})
    assert load(checkins).regions == ("x", "y")
    long = pandas.DataFrame({"slot": [0, 0, 1], "region": ["x", "y", "x"], "count": [4, 5, 6]})
    data: Any = load(long)
    assert data.counts.tolist() == [[4, 5], [6, 0]]


@pytest.mark.slow
def test_models_and_simulations_take_frames() -> None:
    """A season of the week needs the times of the frame."""
    model = dpcrowd.fit(FRAMES["polars"], source="made up", season="week")
    assert (model.season, model.begins is not None) == ("week", True)
    settings: dict[str, Any] = {"servers": 4, "density": 1.0, "window": 10, "runs": 1, "jobs": 1}
    of_frame = dpcrowd.simulate("relay", FRAMES["pandas, index of times"], model=model, **settings)
    of_array = dpcrowd.simulate("relay", dpcrowd.counts_from_array(COUNTS, times=DAYS), model=None, **settings)
    assert of_frame.setup["relay"]["observation"] == of_array.setup["relay"]["observation"] == "binomial"


@pytest.mark.parametrize(
    ("frame", "options", "words"),
    [
        (polars.DataFrame({"a": [1, None]}), {}, "the DataFrame row 1, column 'a' is empty"),
        (pandas.DataFrame({"a": [1, 2.5]}), {}, "the DataFrame row 1, column 'a' is 2.5, a fraction"),
        (
            polars.DataFrame({"server": ["A", "A"], "region": ["x", "y"], "share": [0.5, 0.4]}),
            {},
            "a file of shares, and",
        ),
        (polars.DataFrame({"a": []}), {}, "the DataFrame is empty"),
        (pandas.DataFrame([[1, 2]], columns=["a", "a"]), {}, "the DataFrame has two columns 'a'"),
        (pandas.DataFrame({"time": [1], "a": [2]}, index=["x"]), {}, "has 'time' as its index and as a column"),
        (pandas.DataFrame({"a": pandas.array([1, pandas.NA], "Int64")}), {}, "row 1, column 'a' is empty"),
        (pandas.DataFrame({"a": [1]}, index=pandas.MultiIndex.from_tuples([(1, 2)])), {}, "reset_index()"),
        (pandas.DataFrame({"a": [1, 2, 3]}, index=pandas.Index([1990, 1991, 1993], name="year")), {}, "'1992'"),
        (FRAMES["pandas"], {"header": True}, "header is for files"),
        (FRAMES["pandas"], {"data_dir": "."}, "data_dir is for files"),
        (FRAMES["pandas"], {"slot_length": "1d"}, "the DataFrame has counts; leave it out"),
    ],
)
def test_wrong_frames_are_refused_in_one_line(frame: Any, options: dict[str, Any], words: str) -> None:
    """A message names row and column, as that of a file does."""
    with pytest.raises(BadInput) as refused:
        load(frame, **options)
    assert words in str(refused.value)


def test_times_of_an_array() -> None:
    """Without them an array has no seasons of the calendar."""
    for times in (DAYS, np.array(DAYS, dtype="datetime64[D]"), pandas.date_range("2026-01-01", periods=60)):
        data = dpcrowd.counts_from_array(COUNTS, times=times, slots=50)
        assert data.slot_labels is not None
        assert (len(data.slot_labels), data.slot_labels[0][:10]) == (50, "2026-01-01")
    with pytest.raises(BadInput, match="59 times for 60 slots of the array; give one per slot"):
        dpcrowd.counts_from_array(COUNTS, times=DAYS[1:])
    with pytest.raises(BadInput, match="slot 1: time '2026-01-01' occurs twice"):
        dpcrowd.counts_from_array(COUNTS, times=[DAYS[0], *DAYS[:-1]])


def test_an_array_without_regions_is_named_as_such() -> None:
    """int64(100, 0) is no type that anybody knows."""
    with pytest.raises(BadInput, match=r"with at least one slot and one region; given no numbers, in shape \(60, 0\)"):
        dpcrowd.fit(COUNTS[:, :0], source="x")
    with pytest.raises(BadInput, match=r"given bool in shape \(2, 1\)"):
        dpcrowd.counts_from_array([True, False])
