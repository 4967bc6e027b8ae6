"""Estimates of slots as JSON, CSV, Arrow or Parquet. NaN, nothing known, is null (an empty field in CSV).

Regions may differ from slot to slot, when a revision of the network came in between.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from dpcrowd.errors import MissingExtra
from dpcrowd.node.api.views import EstimateRow
from dpcrowd.node.ingest import lean
from dpcrowd.node.ingest.times import rfc3339

__all__ = ["ARROW", "CSV", "ENCODERS", "JSON", "PARQUET", "SlotEstimates", "to_json"]

Floats = NDArray[np.float64]
JSON = "application/json"
CSV = "text/csv"
ARROW = "application/vnd.apache.arrow.stream"
PARQUET = "application/vnd.apache.parquet"
_COLUMNS = ("slot", "start", "region", "estimate", "low", "high", "sampled")

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, eq=False)
class SlotEstimates:
    """What this server published for one slot; vectors have one number a region, never clamped, NaN if unknown."""

    slot: int
    start_ns: int
    regions: tuple[str, ...]
    estimate: Floats
    low: Floats
    high: Floats
    sampled: bool

    def only(self, regions: Sequence[str]) -> SlotEstimates:
        """The same for some regions, in the order given; regions that it does not have are left out."""
        places = {name: place for place, name in enumerate(self.regions)}
        kept = [name for name in regions if name in places]
        at = [places[name] for name in kept]
        return replace(self, regions=tuple(kept), estimate=self.estimate[at], low=self.low[at], high=self.high[at])

    def rows(self) -> list[EstimateRow]:
        """One a region; msgspec writes NaN as null."""
        start = rfc3339(self.start_ns)
        vectors = (self.estimate.tolist(), self.low.tolist(), self.high.tolist())
        return [EstimateRow(self.slot, start, *row, self.sampled) for row in zip(self.regions, *vectors, strict=True)]


def to_json(slots: Sequence[SlotEstimates]) -> bytes:
    """An array of `EstimateRow`."""
    return _encode([row for one in slots for row in one.rows()])


def to_csv(slots: Sequence[SlotEstimates]) -> bytes:
    """With a header line; numbers as Python writes them, which is exact."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(_COLUMNS)
    for one in slots:
        numbers = (map(_field, vector.tolist()) for vector in (one.estimate, one.low, one.high))
        fixed = (repeat(one.slot), repeat(rfc3339(one.start_ns)), one.regions)
        writer.writerows(zip(*fixed, *numbers, repeat("true" if one.sampled else "false")))
    return text.getvalue().encode()


def to_arrow(slots: Sequence[SlotEstimates]) -> bytes:
    """An Arrow stream of one table."""
    pyarrow = _pyarrow("Arrow")
    table, sink = _table(pyarrow, slots), pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def to_parquet(slots: Sequence[SlotEstimates]) -> bytes:
    """A Parquet file."""
    pyarrow = _pyarrow("Parquet")
    from pyarrow import parquet

    sink = pyarrow.BufferOutputStream()
    parquet.write_table(_table(pyarrow, slots), sink)
    return bytes(sink.getvalue())


ENCODERS: dict[str, Callable[[Sequence[SlotEstimates]], bytes]] = {
    JSON: to_json,
    CSV: to_csv,
    ARROW: to_arrow,
    PARQUET: to_parquet,
}


def _table(pyarrow: Any, slots: Sequence[SlotEstimates]) -> Any:
    sizes = [len(one.regions) for one in slots]

    def each(values: Sequence[object], dtype: str) -> NDArray[Any]:
        return np.repeat(np.array(values, dtype=dtype), sizes)

    def column(kind: Any, values: NDArray[Any], valid: NDArray[np.bool_] | None = None) -> Any:
        known = None if valid is None or valid.all() else lean.packed(pyarrow, valid)
        return pyarrow.Array.from_buffers(kind, len(values), [known, pyarrow.py_buffer(values)])

    def vector(name: str) -> Any:
        values = np.concatenate([np.empty(0), *(getattr(one, name) for one in slots)])
        return column(pyarrow.float64(), values, ~np.isnan(values))

    sampled = each([one.sampled for one in slots], "?")
    columns = {
        "slot": column(pyarrow.int64(), each([one.slot for one in slots], "<i8")),
        "start": column(pyarrow.timestamp("ns", "UTC"), each([one.start_ns for one in slots], "<i8")),
        "region": _texts(pyarrow, [name for one in slots for name in one.regions]),
        "estimate": vector("estimate"),
        "low": vector("low"),
        "high": vector("high"),
        "sampled": pyarrow.Array.from_buffers(pyarrow.bool_(), len(sampled), [None, lean.packed(pyarrow, sampled)]),
    }
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
