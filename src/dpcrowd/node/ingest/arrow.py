"""Check-ins in Arrow's formats, stream and file; pyarrow is loaded with the first such body (`lean` says how).

Arrow bodies come from outside: columns are checked in full before they are read, and nothing is unpacked that could be
far larger than the body. Compressed buffers are refused, the values of a dictionary become Python objects once, and
texts have a largest length, since many rows may point at one long text.

A compressed buffer says itself how large it becomes, so that a small body could ask for any amount of memory; pyarrow
has no setting that refuses it. Whether a message has such buffers stands in its metadata, a FlatBuffer: `Message` has
its header as field 2, `DictionaryBatch` its `RecordBatch` as field 1, `RecordBatch` its compression as field 3
(Message.fbs of the format).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from dpcrowd.node.ingest import lean
from dpcrowd.node.ingest.batch import (
    ALLOWED,
    ARRIVAL,
    LAST_NS,
    LONGEST_USER,
    MILLISECOND,
    MOST_ROWS,
    SECONDS,
    Batch,
    BodyRefused,
    RowReason,
    Zoned,
    are_plain,
    keep_rows,
    nanoseconds,
    refuse_malformed,
    user_bytes,
)

__all__ = ["decode_arrow"]

_LONGEST = 4 * LONGEST_USER
"""Bytes of a text: as many as the longest user may have."""
_MOST_TEXT = 64 << 20
"""Bytes of all texts of a column, since any number of its rows may be views of the same one."""
_UNITS = {"s": 1_000_000_000, "ms": MILLISECOND, "us": 1_000, "ns": 1}
_COLUMNS = (["region", "user"], ["region", "time", "user"])
_MAGIC = b"ARROW1"
_HEADER, _DICTIONARY_DATA, _COMPRESSION = 2, 1, 3


def decode_arrow(body: bytes, regions: Mapping[str, int], *, file: bool) -> Batch:
    """Return the check-ins of an Arrow stream or file with the columns user, region and, if wanted, time."""
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
    wrong: dict[int, RowReason] = {}
    users = _users(pyarrow, columns["user"], wrong)
    numbers = _regions(pyarrow, columns["region"], regions, wrong)
    times = _times(pyarrow, columns["time"], wrong) if "time" in columns else None
    return keep_rows(users, numbers, times, wrong)


def _read(pyarrow: Any, body: bytes, *, file: bool) -> dict[str, Any] | BodyRefused:
    """Return the columns, {} without rows, or a refusal; pyarrow has many kinds of errors for such bytes."""
    try:
        stream = pyarrow.py_buffer(_stream_of_file(body) if file else body)
        if _has_compression(pyarrow, stream):
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
        allowed = types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)
        if name != "region":
            allowed = allowed or types.is_integer(kind)
        if name == "time":
            allowed = allowed or types.is_null(kind) or (types.is_timestamp(kind) and kind.tz is not None)
        if not allowed:
            return BodyRefused(400, "field", f"column {name}: a type that is not taken; allowed: {ALLOWED[name]}.")
    return None


def _users(pyarrow: Any, column: Any, wrong: dict[int, RowReason]) -> list[bytes]:
    values, places = _values(pyarrow, column, "user", wrong)
    bad = lean.nulls(values)
    if pyarrow.types.is_integer(values.type):
        users = [b"%d" % user for user in lean.integers(pyarrow, values).tolist()]
    else:
        users, bad = _text_users(pyarrow, values, bad)
    _refuse(wrong, bad, places, "user")
    return users if places is None else [users[place] for place in places.tolist()]


def _text_users(pyarrow: Any, values: Any, missing: NDArray[np.bool_]) -> tuple[list[bytes], NDArray[np.bool_]]:
    """Return the users, and which of them are not valid."""
    lengths = _lengths(pyarrow, values, "user")
    if not missing.any() and lengths.min() > 0 and lengths.max() <= LONGEST_USER:
        users: list[bytes] = values.view(_bytes_of(pyarrow, values.type)).to_pylist()
        if are_plain(users):
            return users, missing
    texts = _texts(values, missing | (lengths < 1) | (lengths > _LONGEST))
    users = user_bytes(texts)
    bad = [not user or len(text) > LONGEST_USER for user, text in zip(users, texts, strict=True)]
    return users, np.array(bad, dtype=np.bool_)


def _regions(pyarrow: Any, column: Any, regions: Mapping[str, int], wrong: dict[int, RowReason]) -> list[int]:
    values, places = _values(pyarrow, column, "region", wrong)
    bad = lean.nulls(values) | _wrong_lengths(pyarrow, values, "region")
    _refuse(wrong, bad, places, "region")
    numbers = np.array([regions.get(name, -1) for name in _texts(values, bad)], dtype=np.int64)
    _refuse(wrong, numbers < 0, places, "unknown-region")
    result: list[int] = (numbers if places is None else numbers[places]).tolist()
    return result


def _texts(values: Any, bad: NDArray[np.bool_]) -> list[str]:
    """Return the texts of a column, together hardly larger than the body (`_lengths`); empty where they are bad."""
    texts: list[str] = values.to_pylist()
    return texts if not bad.any() else ["" if wrong else text for text, wrong in zip(texts, bad.tolist(), strict=True)]


def _times(pyarrow: Any, column: Any, wrong: dict[int, RowReason]) -> NDArray[np.int64] | None:
    missing = lean.nulls(column)
    if missing.all():
        return None
    if not (pyarrow.types.is_integer(column.type) or pyarrow.types.is_timestamp(column.type)):
        bad = _wrong_lengths(pyarrow, column, "time")
        return _text_times(_texts(column, missing | bad), missing, bad, wrong)
    factor = _UNITS[column.type.unit] if pyarrow.types.is_timestamp(column.type) else MILLISECOND
    values = np.where(missing, 0, lean.integers(pyarrow, column))
    bad = (values < 0) | (values > LAST_NS // factor)
    if pyarrow.types.is_integer(column.type):
        bad |= (values >= SECONDS.start) & (values < SECONDS.stop)
    _refuse(wrong, bad, None, "time")
    return np.where(missing | bad, ARRIVAL, np.where(bad, 0, values).astype(np.int64) * factor)


def _text_times(
    texts: list[str], missing: NDArray[np.bool_], bad: NDArray[np.bool_], wrong: dict[int, RowReason]
) -> NDArray[np.int64] | None:
    usable = [text if there else None for text, there in zip(texts, (~(missing | bad)).tolist(), strict=True)]
    moments = _all_moments(usable)
    if moments is None:
        moments = [None if text is None else _moment(text) for text in usable]
    _refuse(wrong, np.array([moment is None for moment in moments], dtype=np.bool_) & ~missing, None, "time")
    times, out_of_range = nanoseconds(moments)
    for row in out_of_range:
        wrong.setdefault(row, "time")
    return times


def _all_moments(texts: list[str | None]) -> list[datetime | None] | None:
    with suppress(msgspec.ValidationError):
        return msgspec.convert(texts, list[Zoned | None])
    return None


def _moment(text: str) -> datetime | None:
    with suppress(msgspec.ValidationError):
        return msgspec.convert(text, Zoned)
    return None


def _values(
    pyarrow: Any, column: Any, field: RowReason, wrong: dict[int, RowReason]
) -> tuple[Any, NDArray[np.int64] | None]:
    """Return a dictionary's values and where each row's is; a plain column and None."""
    if not pyarrow.types.is_dictionary(column.type):
        return column, None
    missing = lean.nulls(column.indices)
    _refuse(wrong, missing, None, field)
    # Without any values all rows are null; each of them still has to have a place.
    values = column.dictionary if len(column.dictionary) else pyarrow.nulls(1, column.dictionary.type)
    places = lean.integers(pyarrow, column.indices).astype(np.int64)
    places[missing] = 0
    return values, places


def _bytes_of(pyarrow: Any, kind: Any) -> Any:
    """Return the type of the same texts as bytes."""
    if pyarrow.types.is_string_view(kind):
        return pyarrow.binary_view()
    return pyarrow.large_binary() if pyarrow.types.is_large_string(kind) else pyarrow.binary()


def _wrong_lengths(pyarrow: Any, values: Any, field: str) -> NDArray[np.bool_]:
    """Return where texts are empty, or longer than any that is allowed."""
    lengths = _lengths(pyarrow, values, field)
    return np.asarray(((lengths < 1) | (lengths > _LONGEST)) & ~lean.nulls(values))


def _lengths(pyarrow: Any, values: Any, field: str) -> NDArray[Any]:
    """Return the bytes of each text, before any is copied; where a row is null, anything."""
    begin, end = values.offset, values.offset + len(values)
    if pyarrow.types.is_string_view(values.type):
        # 16 bytes per row, the first 4 of them its length.
        lengths = np.frombuffer(values.buffers()[1], dtype="<i4", count=4 * end)[::4][begin:]
        lengths = np.where(lean.nulls(values), 0, lengths)  # a null may say that it is of any length, below 0 too
        if lengths.sum(dtype=np.int64) > _MOST_TEXT:
            raise BodyRefused(413, "too-large", f"column {field}: more than {_MOST_TEXT} bytes of text; send several.")
        return lengths
    kind = "<i8" if pyarrow.types.is_large_string(values.type) else "<i4"
    return np.diff(np.frombuffer(values.buffers()[1], dtype=kind, count=end + 1)[begin:])


def _refuse(
    wrong: dict[int, RowReason], bad: NDArray[np.bool_], places: NDArray[np.int64] | None, reason: RowReason
) -> None:
    """Note the rows whose value is bad, unless something was wrong with them before."""
    if bad.any():
        for row in np.flatnonzero(bad if places is None else bad[places]).tolist():
            wrong.setdefault(row, reason)


# ---------------------------------------------------------------------------------------------------- framing


def _stream_of_file(body: bytes) -> memoryview:
    """Return what stands between the first mark of a file and its footer: a stream with the same batches."""
    if len(body) < 24 or not body.startswith(_MAGIC) or not body.endswith(_MAGIC):
        raise ValueError("not an Arrow file")
    (footer,) = struct.unpack_from("<i", body, len(body) - 10)
    end = len(body) - 10 - footer
    if footer < 0 or end < 8:
        raise ValueError("not an Arrow file")
    return memoryview(body)[8:end]


def _has_compression(pyarrow: Any, stream: Any) -> bool:
    """Whether any message of a stream has compressed buffers; raises if it is not a stream."""
    messages = pyarrow.ipc.MessageReader.open_stream(stream)
    return any(_is_compressed(message.type, message.metadata.to_pybytes()) for message in messages)


def _is_compressed(kind: str, metadata: bytes) -> bool:
    if kind not in ("record batch", "dictionary"):
        return False
    (root,) = struct.unpack_from("<I", metadata, 0)
    batch = _flat_table(metadata, root, _HEADER)
    if kind == "dictionary" and batch is not None:
        batch = _flat_table(metadata, batch, _DICTIONARY_DATA)
    return batch is None or _flat_field(metadata, batch, _COMPRESSION) is not None


def _flat_field(buffer: bytes, table: int, number: int) -> int | None:
    """Return where a table's field is; None if it has none. Its vtable has the size first, then one u16 per field."""
    vtable = table - int(struct.unpack_from("<i", buffer, table)[0])
    (size,) = struct.unpack_from("<H", buffer, vtable)
    at = 4 + 2 * number
    offset = int(struct.unpack_from("<H", buffer, vtable + at)[0]) if at + 2 <= size else 0
    return table + offset if offset else None


def _flat_table(buffer: bytes, table: int, number: int) -> int | None:
    at = _flat_field(buffer, table, number)
    return None if at is None else at + int(struct.unpack_from("<I", buffer, at)[0])
