"""Check-ins in Arrow's formats, stream and file; pyarrow is loaded with the first such body.

Arrow bodies come from outside: columns are checked in full before they are read, and nothing is unpacked that could be
far larger than the body. Compressed buffers are refused, the values of a dictionary become Python objects once, and
texts have a largest length, since many rows may point at one long text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from dpcrowd.node.ingest.arrow_messages import compressed, stream_of_file
from dpcrowd.node.ingest.batch import ALLOWED, ARRIVAL, MOST_ROWS, Batch, BodyRefused, refuse_field, refuse_malformed
from dpcrowd.node.ingest.times import LAST_NS, MILLISECOND, Zoned, nanoseconds

__all__ = ["decode_arrow"]

_LONGEST = 1024
"""Bytes of a text: 256 characters of a user."""
_UNITS = {"s": 1_000_000_000, "ms": MILLISECOND, "us": 1_000, "ns": 1}
_COLUMNS = (["region", "user"], ["region", "time", "user"])


def decode_arrow(body: bytes, regions: Mapping[str, int], *, file: bool) -> Batch:
    """Check-ins of an Arrow stream or file with the columns user, region and, if wanted, time."""
    try:
        import pyarrow
    except ImportError:
        text = 'this node has no pyarrow for Arrow bodies: pip install "dpcrowd[parquet]", or send JSON.'
        raise BodyRefused(415, "content-type", text) from None
    columns = _read(pyarrow, body, file=file)
    if isinstance(columns, BodyRefused):
        raise columns
    if not columns:
        return Batch([], [])
    times = _times(pyarrow, columns["time"]) if "time" in columns else None
    return Batch(_users(pyarrow, columns["user"]), _regions(pyarrow, columns["region"], regions), times)


def _read(pyarrow: Any, body: bytes, *, file: bool) -> dict[str, Any] | BodyRefused:
    """The columns, {} without rows, or a refusal; pyarrow has errors of many kinds for bytes that are not Arrow's."""
    try:
        stream = pyarrow.py_buffer(stream_of_file(body) if file else body)
        if compressed(pyarrow, stream):
            return BodyRefused(400, "malformed", "compressed Arrow buffers are not taken; write them uncompressed.")
        with pyarrow.ipc.open_stream(stream) as reader:
            refusal = _check_schema(pyarrow, reader.schema)
            if refusal is not None:
                return refusal
            table = reader.read_all()
        if table.num_rows > MOST_ROWS:
            return BodyRefused(413, "too-large", f"more than {MOST_ROWS} rows in one body; send several.")
        table.validate(full=True)
        if not table.num_rows:
            return {}
        table = table.combine_chunks()
        return {name: table[name].chunk(0) for name in table.column_names}
    except Exception:
        return refuse_malformed("a valid Arrow file" if file else "a valid Arrow stream")


def _check_schema(pyarrow: Any, schema: Any) -> BodyRefused | None:
    types = pyarrow.types
    if sorted(schema.names) not in _COLUMNS:
        return refuse_malformed("a table of the columns user, region and, if wanted, time, and no other")
    for name in schema.names:
        kind = schema.field(name).type
        if types.is_dictionary(kind) and name != "time":
            kind = kind.value_type
        taken = types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)
        if name != "region":
            taken = taken or types.is_integer(kind)
        if name == "time":
            taken = taken or types.is_null(kind) or (types.is_timestamp(kind) and kind.tz is not None)
        if not taken:
            return BodyRefused(400, "field", f"column {name}: a type that is not taken; allowed: {ALLOWED[name]}.")
    return None


def _users(pyarrow: Any, column: Any) -> list[bytes]:
    values, places = _values(pyarrow, column, "user")
    _refuse_rows(_nulls(values), places, "user")
    if pyarrow.types.is_integer(values.type):
        values = values.cast(pyarrow.string())
    else:
        _check_lengths(pyarrow, values, places, "user")
    users = values.cast(pyarrow.binary()).to_numpy(zero_copy_only=False)
    chosen: list[bytes] = (users if places is None else users[places]).tolist()
    return chosen


def _regions(pyarrow: Any, column: Any, regions: Mapping[str, int]) -> list[int]:
    if pyarrow.types.is_string_view(column.type):
        _check_lengths(pyarrow, column, None, "region")
        column = column.cast(pyarrow.string())
    if not pyarrow.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    values, places = _values(pyarrow, column, "region")
    _check_lengths(pyarrow, values, places, "region")
    numbers = np.array([regions.get(name, -1) for name in values.to_pylist()], dtype=np.int64)
    _refuse_rows(numbers < 0, places, "region", unknown=True)
    found: list[int] = numbers[places].tolist()
    return found


def _times(pyarrow: Any, column: Any) -> NDArray[np.int64] | None:
    missing = _nulls(column)
    if missing.all():
        return None
    if not (pyarrow.types.is_integer(column.type) or pyarrow.types.is_timestamp(column.type)):
        _check_lengths(pyarrow, column, None, "time")
        return _text_times(column.to_pylist())
    factor = MILLISECOND
    if pyarrow.types.is_timestamp(column.type):
        factor = _UNITS[column.type.unit]
        column = column.cast(pyarrow.int64())
    values = (column.fill_null(0) if column.null_count else column).to_numpy(zero_copy_only=False)
    _refuse_rows((values < 0) | (values > LAST_NS // factor), None, "time")
    return np.where(missing, ARRIVAL, values.astype(np.int64) * factor)


def _text_times(texts: list[str | None]) -> NDArray[np.int64] | None:
    row = 0
    try:
        return nanoseconds(msgspec.convert(texts, list[Zoned | None]))
    except msgspec.ValidationError as error:
        place = re.search(r"\$\[(\d+)\]`$", str(error))
        row = int(place[1]) if place else 0
    raise refuse_field(row, "time")


def _values(pyarrow: Any, column: Any, field: str) -> tuple[Any, NDArray[np.int64] | None]:
    """A dictionary's values and where each row's is; a plain column and None."""
    if not pyarrow.types.is_dictionary(column.type):
        return column, None
    _refuse_rows(_nulls(column.indices), None, field)
    return column.dictionary, column.indices.cast(pyarrow.int64()).to_numpy(zero_copy_only=False)


def _check_lengths(pyarrow: Any, values: Any, places: NDArray[np.int64] | None, field: str) -> None:
    """Of texts, before they are copied; an empty one is no user and no region."""
    if not len(values):
        return
    begin, end = values.offset, values.offset + len(values)
    if pyarrow.types.is_string_view(values.type):
        # 16 bytes a row, the first 4 of them its length.
        lengths = np.frombuffer(values.buffers()[1], dtype="<i4", count=4 * end)[::4][begin:]
    else:
        kind = "<i8" if pyarrow.types.is_large_string(values.type) else "<i4"
        lengths = np.diff(np.frombuffer(values.buffers()[1], dtype=kind, count=end + 1)[begin:])
    wrong = ((lengths < 1) | (lengths > _LONGEST)) & ~_nulls(values)
    if places is not None and wrong.any():
        raise refuse_field(None, field)  # also one that no row has
    _refuse_rows(wrong, places, field)


def _nulls(values: Any) -> NDArray[np.bool_]:
    if not values.null_count:
        return np.zeros(len(values), dtype=np.bool_)
    found: NDArray[np.bool_] = values.is_null().to_numpy(zero_copy_only=False)
    return found


def _refuse_rows(
    wrong: NDArray[np.bool_], places: NDArray[np.int64] | None, field: str, *, unknown: bool = False
) -> None:
    if wrong.any():
        rows = wrong if places is None else wrong[places]
        if rows.any():
            raise refuse_field(int(np.argmax(rows)), field, unknown=unknown)
