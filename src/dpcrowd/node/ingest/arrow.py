"""Check-ins in Arrow's formats, stream and file; pyarrow is loaded with the first such body (`lean` says how).

Arrow bodies come from outside: columns are checked in full before they are read, and nothing is unpacked that could be
far larger than the body. Compressed buffers are refused, the values of a dictionary become Python objects once, and
texts have a largest length, since many rows may point at one long text.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from itertools import islice
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from dpcrowd.node.ingest import lean
from dpcrowd.node.ingest.arrow_messages import compressed, stream_of_file
from dpcrowd.node.ingest.batch import (
    ALLOWED,
    ARRIVAL,
    MOST_ROWS,
    NAMED_ROWS,
    Batch,
    BodyRefused,
    refuse_field,
    refuse_malformed,
)
from dpcrowd.node.ingest.times import LAST_NS, MILLISECOND, Zoned, nanoseconds

__all__ = ["decode_arrow"]

_LONGEST = 1024
"""Bytes of a text: 256 characters of a user."""
_MOST_TEXT = 64 << 20
"""Bytes of all texts of a column, since any number of its rows may be views of the same one."""
_UNITS = {"s": 1_000_000_000, "ms": MILLISECOND, "us": 1_000, "ns": 1}
_COLUMNS = (["region", "user"], ["region", "time", "user"])


def decode_arrow(body: bytes, regions: Mapping[str, int], *, file: bool) -> Batch:
    """Check-ins of an Arrow stream or file with the columns user, region and, if wanted, time."""
    try:
        pyarrow = lean.load()
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
    _refuse_rows(lean.nulls(values), places, "user")
    if pyarrow.types.is_integer(values.type):
        users = [b"%d" % user for user in lean.integers(pyarrow, values).tolist()]
    else:
        _check_lengths(pyarrow, values, places, "user")
        users = values.view(_bytes_of(pyarrow, values.type)).to_pylist()
    return users if places is None else [users[place] for place in places.tolist()]


def _regions(pyarrow: Any, column: Any, regions: Mapping[str, int]) -> list[int]:
    values, places = _values(pyarrow, column, "region")
    _refuse_rows(lean.nulls(values), places, "region")
    _check_lengths(pyarrow, values, places, "region")
    numbers = np.array([regions.get(name, -1) for name in values.to_pylist()], dtype=np.int64)
    _refuse_rows(numbers < 0, places, "region", unknown=True)
    found: list[int] = (numbers if places is None else numbers[places]).tolist()
    return found


def _times(pyarrow: Any, column: Any) -> NDArray[np.int64] | None:
    missing = lean.nulls(column)
    if missing.all():
        return None
    if not (pyarrow.types.is_integer(column.type) or pyarrow.types.is_timestamp(column.type)):
        _check_lengths(pyarrow, column, None, "time")
        return _text_times(column.to_pylist())
    factor = _UNITS[column.type.unit] if pyarrow.types.is_timestamp(column.type) else MILLISECOND
    values = np.where(missing, 0, lean.integers(pyarrow, column))
    _refuse_rows((values < 0) | (values > LAST_NS // factor), None, "time")
    return np.where(missing, ARRIVAL, values.astype(np.int64) * factor)


def _text_times(texts: list[str | None]) -> NDArray[np.int64] | None:
    with suppress(msgspec.ValidationError):
        return nanoseconds(msgspec.convert(texts, list[Zoned | None]))
    wrong = (row for row, text in enumerate(texts) if text is not None and not _is_time(text))
    raise refuse_field(list(islice(wrong, NAMED_ROWS)), "time")


def _is_time(text: str) -> bool:
    try:
        msgspec.convert(text, Zoned)
    except msgspec.ValidationError:
        return False
    return True


def _values(pyarrow: Any, column: Any, field: str) -> tuple[Any, NDArray[np.int64] | None]:
    """A dictionary's values and where each row's is; a plain column and None."""
    if not pyarrow.types.is_dictionary(column.type):
        return column, None
    _refuse_rows(lean.nulls(column.indices), None, field)
    return column.dictionary, lean.integers(pyarrow, column.indices).astype(np.int64)


def _bytes_of(pyarrow: Any, kind: Any) -> Any:
    """The type of the same texts as bytes."""
    if pyarrow.types.is_string_view(kind):
        return pyarrow.binary_view()
    return pyarrow.large_binary() if pyarrow.types.is_large_string(kind) else pyarrow.binary()


def _check_lengths(pyarrow: Any, values: Any, places: NDArray[np.int64] | None, field: str) -> None:
    """Of texts, before they are copied; an empty one is no user and no region."""
    if not len(values):
        return
    begin, end = values.offset, values.offset + len(values)
    if pyarrow.types.is_string_view(values.type):
        # 16 bytes a row, the first 4 of them its length.
        lengths = np.frombuffer(values.buffers()[1], dtype="<i4", count=4 * end)[::4][begin:]
        if lengths.sum(dtype=np.int64) > _MOST_TEXT:
            raise BodyRefused(413, "too-large", f"column {field}: more than {_MOST_TEXT} bytes of text; send several.")
    else:
        kind = "<i8" if pyarrow.types.is_large_string(values.type) else "<i4"
        lengths = np.diff(np.frombuffer(values.buffers()[1], dtype=kind, count=end + 1)[begin:])
    wrong = ((lengths < 1) | (lengths > _LONGEST)) & ~lean.nulls(values)
    if places is not None and wrong.any():
        raise refuse_field((), field)  # also one that no row has
    _refuse_rows(wrong, places, field)


def _refuse_rows(
    wrong: NDArray[np.bool_], places: NDArray[np.int64] | None, field: str, *, unknown: bool = False
) -> None:
    if wrong.any():
        rows = np.flatnonzero(wrong if places is None else wrong[places])[:NAMED_ROWS].tolist()
        if rows:
            raise refuse_field(rows, field, unknown=unknown)
