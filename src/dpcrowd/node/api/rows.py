"""Released slots as rows, in JSON, CSV, Arrow or Parquet. NaN (no estimate yet) is null, in CSV an empty field.

Rows may have one column more than a release has, `estimate_nonnegative`: a view of it (`dpcrowd.filters.nonnegative`).
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from dpcrowd.arrays import Floats
from dpcrowd.errors import MissingExtra
from dpcrowd.filters.nonnegative import nonnegative_view
from dpcrowd.node.api.views import EstimateObject, EstimateRow
from dpcrowd.node.ingest import lean
from dpcrowd.node.release import SlotRelease
from dpcrowd.node.slots import rfc3339

__all__ = ["ARROW", "CSV", "ENCODERS", "JSON", "NONNEGATIVE", "PARQUET", "Views", "rows_of", "select", "to_json"]

NONNEGATIVE = "estimate_nonnegative"
Views = Sequence[Floats] | None
"""The non-negative view of each release, (d,) each; None: rows have no such column."""

JSON = "application/json"
CSV = "text/csv"
ARROW = "application/vnd.apache.arrow.stream"
PARQUET = "application/vnd.apache.parquet"

_encode = msgspec.json.Encoder().encode


def select(
    slots: Sequence[SlotRelease], regions: Sequence[str] | None, *, view: bool
) -> tuple[Sequence[SlotRelease], Views]:
    """Return releases with these regions alone, if any are named, and their non-negative views, if asked for.

    The view keeps the total of all regions, so it is computed before regions are left out.
    """
    chosen = slots if regions is None else [one.only(regions) for one in slots]
    if not view:
        return chosen, None
    views = []
    for one, part in zip(slots, chosen, strict=True):
        values = dict(zip(one.regions, nonnegative_view(one.estimate, one.variance).tolist(), strict=True))
        views.append(np.array([values[name] for name in part.regions]))
    return chosen, views


def rows_of(release: SlotRelease, view: Floats | None = None) -> list[Any]:
    """Return one row per region, as JSON has it (`EstimateObject`); msgspec writes NaN as null."""
    start, (low, high) = rfc3339(release.opens_ns), release.interval
    vectors = (release.estimate.tolist(), low.tolist(), high.tolist())
    names = zip(release.regions, *vectors, strict=True)
    rows = [EstimateObject(release.slot, start, *row, release.sampled) for row in names]
    if view is None:
        return rows
    pairs = zip(rows, view.tolist(), strict=True)
    return [{**msgspec.structs.asdict(row), NONNEGATIVE: value} for row, value in pairs]


def to_json(slots: Sequence[SlotRelease], views: Views = None) -> bytes:
    """Encode releases as an array of `EstimateRow`."""
    return _encode(
        [row for place, one in enumerate(slots) for row in rows_of(one, None if views is None else views[place])]
    )


def to_csv(slots: Sequence[SlotRelease], views: Views = None) -> bytes:
    """Encode releases with a header line; numbers are written as Python does, which is exact."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(EstimateRow._fields if views is None else (*EstimateRow._fields, NONNEGATIVE))
    for place, one in enumerate(slots):
        numbers = (map(_field, vector.tolist()) for vector in (one.estimate, *one.interval))
        fixed = (repeat(one.slot), repeat(rfc3339(one.opens_ns)), one.regions)
        more = [] if views is None else [map(_field, views[place].tolist())]
        writer.writerows(zip(*fixed, *numbers, repeat("true" if one.sampled else "false"), *more))
    return text.getvalue().encode()


def to_arrow(slots: Sequence[SlotRelease], views: Views = None) -> bytes:
    """Encode releases as an Arrow stream of one table."""
    pyarrow = _pyarrow("Arrow")
    table, sink = _table(pyarrow, slots, views), pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def to_parquet(slots: Sequence[SlotRelease], views: Views = None) -> bytes:
    """Encode releases as a Parquet file."""
    pyarrow = _pyarrow("Parquet")
    from pyarrow import parquet

    sink = pyarrow.BufferOutputStream()
    parquet.write_table(_table(pyarrow, slots, views), sink)
    return bytes(sink.getvalue())


ENCODERS: dict[str, Callable[[Sequence[SlotRelease], Views], bytes]] = {
    JSON: to_json,
    CSV: to_csv,
    ARROW: to_arrow,
    PARQUET: to_parquet,
}


def _table(pyarrow: Any, slots: Sequence[SlotRelease], views: Views = None) -> Any:
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
    if views is not None:
        columns[NONNEGATIVE] = numbers(views)
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
