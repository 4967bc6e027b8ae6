"""Estimates as a table of numpy columns, which numpy, polars, pandas and Arrow accept as it is.

The columns are the fields of `EstimateRow`, the one row of API and client. Each library has its own way to read them:
polars and pyarrow use Arrow's stream, numpy the array interface, and pandas iterates over rows, which therefore are
named tuples. There must be no `__array__`: pandas would prefer it, and make one column of records.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from dpcrowd.errors import DpcrowdError, MissingExtra, counted
from dpcrowd.filters.median import median_view
from dpcrowd.filters.nonnegative import nonnegative_view
from dpcrowd.node.api.page_views import History
from dpcrowd.node.api.views import EstimateObject, EstimateRow
from dpcrowd.schemes.base import Z95

__all__ = ["ALL_REGIONS", "COLUMNS", "Estimates", "from_history", "from_json", "joined"]

COLUMNS = EstimateRow._fields
MEASURED = ("measurement", "measurement_variance")
ALL_REGIONS = "all regions"
"""What a table of totals has instead of a region."""


class _MeasuredRow(msgspec.Struct):
    """What a row has beside the fields of `EstimateRow`, if measurements were asked for."""

    measurement: float | None
    measurement_variance: float | None


_rows = msgspec.json.Decoder(list[EstimateObject])
_measured_rows = msgspec.json.Decoder(list[_MeasuredRow])
_history = msgspec.json.Decoder(History)


@dataclass(frozen=True, eq=False)
class Estimates:
    """A table with one row per slot and region, oldest slot first; a loop yields rows, `dict(estimates)` the columns.

    `pandas.DataFrame(estimates)`, `polars.DataFrame(estimates)`, `pyarrow.table(estimates)` and
    `numpy.asarray(estimates)` (a structured array: one record per row, names of columns as fields) accept it as it is;
    the second and the third need pyarrow. Without any rows, pandas drops the columns as well: `to_pandas` does not.

    start     when the slot opened, in UTC
    estimate  estimate of the complete population; never clamped, NaN as long as nothing is known
    low, high ends of the 95% interval
    sampled   whether the server itself sampled in the slot
    lost      of a stream: number of releases before this one that a slow reader did not get
    measurement, measurement_variance  what the records of the slot say by themselves, NaN where they say nothing; these
              are columns only if they were asked for, else None. Rows of a loop do not have them
    """

    slot: NDArray[np.int64]
    start: NDArray[np.datetime64]
    region: NDArray[np.str_]
    estimate: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    sampled: NDArray[np.bool_]
    lost: int = 0
    measurement: NDArray[np.float64] | None = None
    measurement_variance: NDArray[np.float64] | None = None

    def __len__(self) -> int:
        return len(self.slot)

    def __repr__(self) -> str:
        slots = np.unique(self.slot)
        span = f", slots {slots[0]} to {slots[-1]}" if len(slots) else ""
        return f"<Estimates: {counted(len(self), 'row')}{span}>"

    def keys(self) -> tuple[str, ...]:
        """Return the names of the columns."""
        return COLUMNS if self.measurement is None else (*COLUMNS, *MEASURED)

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name not in self.keys():
            raise KeyError(name)
        column: NDArray[Any] = getattr(self, name)
        return column

    def __contains__(self, name: object) -> bool:
        return name in self.keys()

    def __iter__(self) -> Iterator[EstimateRow]:
        columns = [self[name].tolist() for name in COLUMNS]
        columns[COLUMNS.index("start")] = [
            moment.replace(tzinfo=UTC) for moment in self.start.astype("datetime64[us]").tolist()
        ]
        return map(EstimateRow._make, zip(*columns, strict=True))

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """The structured array, for `numpy.asarray`."""
        table = self.to_numpy()
        interface: dict[str, Any] = table.__array_interface__
        # As bytes, which numpy keeps alive: an address alone would outlive the array that is created here.
        return {**interface, "data": table.view(np.uint8) if len(table) else b""}

    @property
    def nonnegative(self) -> NDArray[np.float64]:
        """Return a view of the estimates, one number per row, without negative ones; NaN as long as nothing is known.

        The total of each slot's rows stays what it was, so ask for all regions. It is for maps and single numbers;
        sums and averages over slots, or over some regions, are better taken of `estimate`. The same as
        `estimate_nonnegative` of the API (`?view=nonnegative`), up to rounding.
        """
        view = np.full(len(self), np.nan)
        variance = np.square(self.high - self.low)
        for slot in np.unique(self.slot):
            rows = self.slot == slot
            view[rows] = nonnegative_view(self.estimate[rows], variance[rows])
        return view

    @property
    def median(self) -> NDArray[np.float64]:
        """Return the median of what is known of each count, one number per row; NaN as long as nothing is known.

        It is the number that is closest most often, for reading small counts. It is biased downwards: take sums and
        averages of `estimate`. The same as `estimate_median` of the API (`?view=median`), up to rounding.
        """
        return median_view(self.estimate, np.square((self.high - self.low) / (2.0 * Z95)))

    def to_numpy(self) -> NDArray[np.void]:
        """Return a structured array: one record per row."""
        table = np.empty(len(self), dtype=[(name, self[name].dtype) for name in self.keys()])
        for name in self.keys():
            table[name] = self[name]
        return table

    def to_polars(self) -> Any:
        """Return a `polars.DataFrame`; NaN is null, times are in UTC."""
        polars = _library("polars")
        frame = polars.DataFrame(
            {name: self[name].tolist() if name == "region" else self[name] for name in self.keys()}
        )
        return frame.with_columns(
            polars.col("region").cast(polars.String),
            polars.col("start").dt.replace_time_zone("UTC"),
            polars.col("estimate", "low", "high", *self.keys()[len(COLUMNS) :]).fill_nan(None),
        )

    def to_pandas(self) -> Any:
        """Return a `pandas.DataFrame`; times are in UTC."""
        pandas = _library("pandas")
        frame = pandas.DataFrame(
            {name: self[name].tolist() if name == "region" else self[name] for name in self.keys()}
        )
        frame["start"] = frame["start"].dt.tz_localize("UTC")
        return frame

    def to_arrow(self) -> Any:
        """Return a `pyarrow.Table`; NaN is null, times are in UTC."""
        pyarrow = _library("pyarrow")
        numbers, measured = (
            {name: pyarrow.array(self[name], from_pandas=True) for name in names}
            for names in (("estimate", "low", "high"), self.keys()[len(COLUMNS) :])
        )
        start = pyarrow.array(self.start.astype(np.int64)).cast(pyarrow.timestamp("ns", "UTC"))
        columns = {
            "slot": pyarrow.array(self.slot),
            "start": start,
            "region": pyarrow.array(self.region.tolist(), type=pyarrow.string()),
            **numbers,
            "sampled": pyarrow.array(self.sampled),
            **measured,
        }
        return pyarrow.table(columns)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Export the table as Arrow's C stream, for every library that reads Arrow; needs pyarrow."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)


def from_json(content: bytes | str, lost: int = 0, *, measured: bool = False) -> Estimates:
    """Read JSON of the API; raise `msgspec.MsgspecError` or `ValueError` if it is something else.

    measured  whether the rows have measurements
    """
    rows = _rows.decode(content)
    more: dict[str, NDArray[Any]] = {}
    if measured:
        measurements = _measured_rows.decode(content)
        more = {name: np.array([getattr(row, name) for row in measurements], dtype=np.float64) for name in MEASURED}

    def column(name: str, dtype: Any) -> NDArray[Any]:
        return np.array([getattr(row, name) for row in rows], dtype=dtype)  # None becomes NaN

    start = [row.start.removesuffix("Z") for row in rows]  # numpy has no time zones: all times are UTC
    return Estimates(
        slot=column("slot", np.int64),
        start=np.array(start, dtype="datetime64[ns]"),
        region=column("region", np.str_),
        estimate=column("estimate", np.float64),
        low=column("low", np.float64),
        high=column("high", np.float64),
        sampled=column("sampled", np.bool_),
        lost=lost,
        **more,
    )


def from_history(content: bytes) -> Estimates:
    """Read the totals of a history of the API, one row per slot; errors as of `from_json`."""
    history = _history.decode(content)
    total, half = (np.array(column, dtype=np.float64) for column in (history.total, history.total_half_width))
    opens = np.round(np.array(history.opens, dtype=np.float64) * 1e6)
    return Estimates(
        slot=np.array(history.slots, dtype=np.int64),
        start=opens.astype("datetime64[us]").astype("datetime64[ns]"),
        region=np.full(len(total), ALL_REGIONS),
        estimate=total,
        low=total - half,
        high=total + half,
        sampled=np.array(history.sampled, dtype=np.bool_),
    )


def joined(tables: Sequence[Estimates]) -> Estimates:
    """Return the rows of several tables as one table."""
    if len(tables) == 1:
        return tables[0]
    names = tables[0].keys()
    columns: dict[str, Any] = {name: np.concatenate([table[name] for table in tables]) for name in names}
    return Estimates(**columns)


def _library(name: str) -> Any:
    from importlib import import_module

    try:
        return import_module(name)
    except ImportError:
        if name == "pyarrow":
            raise MissingExtra(name, "parquet", "an Arrow table") from None
        raise DpcrowdError(f"a table of {name} needs {name}, which is not installed: pip install {name}") from None
