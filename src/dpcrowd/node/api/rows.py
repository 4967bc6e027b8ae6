"""Released slots as rows, in JSON, CSV, Arrow or Parquet. NaN (no estimate yet) is null, in CSV an empty field.

Rows may have more columns than a release has: `estimate_nonnegative` or `estimate_median`, views of it
(`dpcrowd.filters.nonnegative`, `dpcrowd.filters.median`), or `measurement` and `measurement_variance`, what the records
of a smoothed slot say by themselves.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from dpcrowd.arrays import Floats
from dpcrowd.errors import MissingExtra
from dpcrowd.filters.median import median_view
from dpcrowd.filters.nonnegative import nonnegative_view
from dpcrowd.node.api.views import EstimateObject, EstimateRow
from dpcrowd.node.ingest import lean
from dpcrowd.node.release import SlotRelease
from dpcrowd.node.slots import rfc3339

__all__ = [
    "ARROW",
    "CSV",
    "ENCODERS",
    "JSON",
    "PARQUET",
    "VIEWS",
    "MoreColumns",
    "View",
    "of_release",
    "rows_of",
    "select",
    "to_json",
]

View = Literal["nonnegative", "median"]
VIEWS: dict[View, Callable[[Floats, Floats], Floats]] = {"nonnegative": nonnegative_view, "median": median_view}
"""Views of estimates and their variances by name; that of `view` is the column `estimate_view`."""
MEASUREMENT, MEASUREMENT_VARIANCE = "measurement", "measurement_variance"
MoreColumns = Mapping[str, Sequence[Floats]]
"""More columns by their names: a vector (d,) for each release."""

JSON = "application/json"
CSV = "text/csv"
ARROW = "application/vnd.apache.arrow.stream"
PARQUET = "application/vnd.apache.parquet"

_NO_MORE: MoreColumns = {}
_encode = msgspec.json.Encoder().encode


def select(
    slots: Sequence[SlotRelease], regions: Sequence[str] | None, *, view: View | None, measurements: bool = False
) -> tuple[Sequence[SlotRelease], MoreColumns]:
    """Return releases with these regions alone, if any are named, and more columns, if asked for.

    view          a view of them; it may keep the total of all regions, so it is computed before regions are left out
    measurements  what the records of smoothed slots say by themselves
    """
    chosen = slots if regions is None else [one.only(regions) for one in slots]
    measured = _measured(chosen) if measurements else {}
    if view is None:
        return chosen, measured
    views = []
    for one, part in zip(slots, chosen, strict=True):
        values = dict(zip(one.regions, VIEWS[view](one.estimate, one.variance).tolist(), strict=True))
        views.append(np.array([values[name] for name in part.regions]))
    return chosen, {f"estimate_{view}": views, **measured}


def _measured(slots: Sequence[SlotRelease]) -> MoreColumns:
    """Return the columns of measurements; NaN where there is none, or none is known."""
    values, variances = [], []
    for one in slots:
        value, variance = one.measurement, one.measurement_var
        if value is None or variance is None:
            value, variance = np.full(len(one.regions), np.nan), np.full(len(one.regions), np.nan)
        values.append(value)
        variances.append(np.where(np.isfinite(variance), variance, np.nan))
    return {MEASUREMENT: values, MEASUREMENT_VARIANCE: variances}


def rows_of(release: SlotRelease, more: Mapping[str, Floats] | None = None) -> list[Any]:
    """Return one row per region, as JSON has it (`EstimateObject`); msgspec writes NaN as null.

    more  vectors of more columns, by their names
    """
    start, (low, high) = rfc3339(release.opens_ns), release.interval
    vectors = (release.estimate.tolist(), low.tolist(), high.tolist())
    names = zip(release.regions, *vectors, strict=True)
    rows = [EstimateObject(release.slot, start, *row, release.sampled) for row in names]
    if not more:
        return rows
    columns = [vector.tolist() for vector in more.values()]
    return [
        {**msgspec.structs.asdict(row), **dict(zip(more, values, strict=True))}
        for row, *values in zip(rows, *columns, strict=True)
    ]


def to_json(slots: Sequence[SlotRelease], more: MoreColumns = _NO_MORE) -> bytes:
    """Encode releases as an array of `EstimateRow`."""
    return _encode([row for place, one in enumerate(slots) for row in rows_of(one, of_release(more, place))])


def of_release(more: MoreColumns, place: int) -> dict[str, Floats]:
    """Return the vectors of one release."""
    return {name: vectors[place] for name, vectors in more.items()}


def to_csv(slots: Sequence[SlotRelease], more: MoreColumns = _NO_MORE) -> bytes:
    """Encode releases with a header line; numbers are written as Python does, which is exact."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow((*EstimateRow._fields, *more))
    for place, one in enumerate(slots):
        numbers = (map(_field, vector.tolist()) for vector in (one.estimate, *one.interval))
        fixed = (repeat(one.slot), repeat(rfc3339(one.opens_ns)), one.regions)
        added = (map(_field, vectors[place].tolist()) for vectors in more.values())
        writer.writerows(zip(*fixed, *numbers, repeat("true" if one.sampled else "false"), *added))
    return text.getvalue().encode()


def to_arrow(slots: Sequence[SlotRelease], more: MoreColumns = _NO_MORE) -> bytes:
    """Encode releases as an Arrow stream of one table."""
    pyarrow = _pyarrow("Arrow")
    table, sink = _table(pyarrow, slots, more), pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def to_parquet(slots: Sequence[SlotRelease], more: MoreColumns = _NO_MORE) -> bytes:
    """Encode releases as a Parquet file."""
    pyarrow = _pyarrow("Parquet")
    from pyarrow import parquet

    sink = pyarrow.BufferOutputStream()
    parquet.write_table(_table(pyarrow, slots, more), sink)
    return bytes(sink.getvalue())


ENCODERS: dict[str, Callable[[Sequence[SlotRelease], MoreColumns], bytes]] = {
    JSON: to_json,
    CSV: to_csv,
    ARROW: to_arrow,
    PARQUET: to_parquet,
}


def _table(pyarrow: Any, slots: Sequence[SlotRelease], more: MoreColumns = _NO_MORE) -> Any:
    sizes = [len(one.regions) for one in slots]

    def per_region(values: Sequence[object], dtype: str) -> NDArray[Any]:
        return np.repeat(np.array(values, dtype=dtype), sizes)

    def column(kind: Any, values: NDArray[Any], valid: NDArray[np.bool_] | None = None) -> Any:
        bitmap = None if valid is None or valid.all() else lean.packed(pyarrow, valid)
        return pyarrow.Array.from_buffers(kind, len(values), [bitmap, pyarrow.py_buffer(values)])

    def numbers(vectors: Iterable[NDArray[np.float64]]) -> Any:
        values = np.concatenate([np.empty(0), *vectors])
        return column(pyarrow.float64(), values, ~np.isnan(values))

    intervals = [one.interval for one in slots]
    sampled = per_region([one.sampled for one in slots], "?")
    columns = {
        "slot": column(pyarrow.int64(), per_region([one.slot for one in slots], "<i8")),
        "start": column(pyarrow.timestamp("ns", "UTC"), per_region([one.opens_ns for one in slots], "<i8")),
        "region": _texts(pyarrow, [name for one in slots for name in one.regions]),
        "estimate": numbers(one.estimate for one in slots),
        "low": numbers(low for low, _ in intervals),
        "high": numbers(high for _, high in intervals),
        "sampled": pyarrow.Array.from_buffers(pyarrow.bool_(), len(sampled), [None, lean.packed(pyarrow, sampled)]),
    }
    columns.update({name: numbers(vectors) for name, vectors in more.items()})
    return pyarrow.Table.from_arrays(list(columns.values()), names=list(columns))


def _texts(pyarrow: Any, texts: Sequence[str]) -> Any:
    encoded = [text.encode() for text in texts]
    ends = np.cumsum([0, *map(len, encoded)], dtype="<i4")
    buffers = [None, pyarrow.py_buffer(ends), pyarrow.py_buffer(b"".join(encoded))]
    return pyarrow.Array.from_buffers(pyarrow.string(), len(encoded), buffers)


def _field(number: float) -> str:
    return "" if number != number else repr(number)  # noqa: PLR0124 - NaN


def _pyarrow(purpose: str) -> Any:
    try:
        return lean.load()
    except ImportError:
        raise MissingExtra("pyarrow", "parquet", purpose) from None
