"""Tables that numpy, polars, pandas and Arrow take."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Any

import msgspec
import numpy as np
import pytest

from dpcrowd.client.tables import COLUMNS, Estimates, from_json, joined
from dpcrowd.errors import DpcrowdError
from dpcrowd.node.api.views import EstimateObject, EstimateRow
from dpcrowd.schemes.base import half_width

ROWS = [
    EstimateObject(7, "2026-01-01T00:07:00Z", "north", -3.5, -5.0, -2.0, True),
    EstimateObject(7, "2026-01-01T00:07:00.5Z", 'far, "east"', None, None, None, False),
]


def from_rows(rows: list[Any]) -> Estimates:
    """Return the table of what the API answers."""
    return from_json(msgspec.json.encode(rows))


def test_columns() -> None:
    """Types are those that arithmetic needs; nothing known is NaN."""
    table = from_rows(ROWS)
    assert len(table) == 2
    assert [str(table[name].dtype) for name in COLUMNS][:2] == ["int64", "datetime64[ns]"]
    assert table.start[1] - table.start[0] == np.timedelta64(500, "ms")
    assert np.isnan(table.high[1])
    assert list(dict(table)) == list(COLUMNS)
    assert table.to_numpy()["region"].tolist() == ["north", 'far, "east"']
    assert repr(table) == "<Estimates: 2 rows, slots 7 to 7>"
    assert repr(from_rows([])) == "<Estimates: 0 rows>"
    assert joined([table, from_rows([]), table]).slot.tolist() == [7, 7, 7, 7]
    with pytest.raises(KeyError):
        table["lost"]


@pytest.mark.parametrize("rows", [ROWS, []])
def test_polars(rows: list[Any]) -> None:
    """Null where nothing is known, times with their zone, and the same through Arrow's own door."""
    polars = pytest.importorskip("polars")
    table = from_rows(rows)
    frame = table.to_polars()
    assert frame.columns == list(COLUMNS)
    assert frame.schema["start"] == polars.Datetime("ns", "UTC")
    assert frame.schema["region"] == polars.String
    assert frame["estimate"].to_list() == [row.estimate for row in rows]
    assert polars.DataFrame(table).equals(frame)
    assert polars.DataFrame(dict(table)).height == len(rows)


@pytest.mark.parametrize("rows", [ROWS, []])
def test_pandas(rows: list[Any]) -> None:
    """Times with their zone; the plain columns make a frame as well."""
    pandas = pytest.importorskip("pandas")
    table = from_rows(rows)
    frame = table.to_pandas()
    assert list(frame.columns) == list(COLUMNS)
    assert str(frame["start"].dt.tz) == "UTC"
    assert frame["region"].tolist() == [row.region for row in rows]
    assert list(pandas.DataFrame(dict(table)).columns) == list(COLUMNS)
    assert len(pandas.DataFrame(dict(table))) == len(rows)


@pytest.mark.parametrize("rows", [ROWS, []])
def test_arrow(rows: list[Any]) -> None:
    """The same schema as the API's own Arrow."""
    pyarrow = pytest.importorskip("pyarrow")
    table = from_rows(rows).to_arrow()
    assert pyarrow.table(from_rows(rows)).equals(table)
    assert table.schema.field("start").type == pyarrow.timestamp("ns", "UTC")
    assert table.column("low").to_pylist() == [row.low for row in rows]


def test_pandas_takes_a_table_as_it_is() -> None:
    """Handed over whole, it once became a column of the names of the columns, without a word."""
    pandas = pytest.importorskip("pandas")
    table = from_rows(ROWS)
    frame = pandas.DataFrame(table)
    assert list(frame.columns) == list(COLUMNS)
    frame["start"] = frame["start"].astype(table.to_pandas()["start"].dtype)
    pandas.testing.assert_frame_equal(frame, table.to_pandas())


@pytest.mark.parametrize("rows", [ROWS, []])
def test_numpy_takes_a_table_as_it_is(rows: list[Any]) -> None:
    """One record a row; and its memory is its own, or it would show whatever comes there next."""
    array = np.asarray(from_rows(rows))
    interface = from_rows(rows).__array_interface__
    assert not isinstance(interface["data"], tuple), "an address, which keeps nothing alive"
    assert array.dtype.names == COLUMNS
    assert array.shape == (len(rows),)
    assert array["region"].tolist() == [row.region for row in rows]
    assert array.tobytes() == from_rows(rows).to_numpy().tobytes()
    with pytest.raises(TypeError, match="annot cast"):
        np.asarray(from_rows(ROWS), dtype=np.float64)


def test_rows() -> None:
    """As many as `len` says, each with its names; a table knows its columns by name all the same."""
    assert EstimateRow._fields == EstimateObject.__struct_fields__, "one row, in JSON and in Python"
    assert isinstance(next(iter(from_rows(ROWS))), EstimateRow)
    table = from_rows(ROWS)
    first, second = table
    assert first == (7, datetime(2026, 1, 1, 0, 7, tzinfo=UTC), "north", -3.5, -5.0, -2.0, True)
    assert (first.region, first.estimate) == ("north", -3.5)
    assert np.isnan(second.estimate)
    assert "estimate" in table
    assert "lost" not in table


@pytest.mark.parametrize(
    ("name", "method"), [("polars", "to_polars"), ("pandas", "to_pandas"), ("pyarrow", "to_arrow")]
)
def test_a_library_that_is_not_there(monkeypatch: pytest.MonkeyPatch, name: str, method: str) -> None:
    """One line that says what to install."""
    monkeypatch.setitem(sys.modules, name, None)
    table: Estimates = from_rows(ROWS)
    with pytest.raises(DpcrowdError, match=f"pip install .*{'parquet' if name == 'pyarrow' else name}"):
        getattr(table, method)()


def test_the_non_negative_view_keeps_the_total_of_each_slot() -> None:
    """A client that clipped by itself would turn the noise of empty regions into people."""
    start = np.array(["2026-01-01"] * 4, dtype="datetime64[ns]")
    estimate = np.array([8.0, -2.0, 3.0, np.nan])
    table = Estimates(
        slot=np.array([1, 1, 2, 2]),
        start=start,
        region=np.array(["north", "south"] * 2),
        estimate=estimate,
        low=estimate - 1.0,
        high=estimate + 1.0,
        sampled=np.ones(4, dtype=np.bool_),
    )
    assert table.nonnegative[:3].tolist() == [6.0, 0.0, 3.0]
    assert np.isnan(table.nonnegative[3])


def test_the_median_view_is_that_of_the_node() -> None:
    """An interval is twice 1.96 standard deviations; taken for one, small counts would all become 0."""
    estimate, variance = np.array([0.3, 2.6, 50.0, -1.0, np.nan]), np.array([0.3, 3.0, 30.0, 4.0, 1.0])
    half = half_width(variance)
    table = Estimates(
        slot=np.array([1, 1, 1, 2, 2]),
        start=np.array(["2026-01-01"] * 5, dtype="datetime64[ns]"),
        region=np.array(["a", "b", "c", "a", "b"]),
        estimate=estimate,
        low=estimate - half,
        high=estimate + half,
        sampled=np.ones(5, dtype=np.bool_),
    )
    assert table.median[:4].tolist() == [0.0, 2.0, 50.0, 0.0]
    assert np.isnan(table.median[4])
