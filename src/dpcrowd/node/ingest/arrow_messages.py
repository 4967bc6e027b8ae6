"""Arrow's framing, as far as it has to be known before a body is read: where is a file's stream, is it compressed.

A compressed buffer says itself how large it becomes, so that a small body could ask for any amount of memory; pyarrow
has no setting that refuses it. Whether a message has such buffers stands in its metadata, a FlatBuffer: `Message` has
its header as field 2, `DictionaryBatch` its `RecordBatch` as field 1, `RecordBatch` its compression as field 3
(Message.fbs of the format).
"""

from __future__ import annotations

import struct
from typing import Any

__all__ = ["compressed", "stream_of_file"]

_MAGIC = b"ARROW1"
_HEADER, _DICTIONARY_DATA, _COMPRESSION = 2, 1, 3


def stream_of_file(body: bytes) -> memoryview:
    """What stands between the first mark of a file and its footer: a stream with the same batches."""
    if len(body) < 24 or not body.startswith(_MAGIC) or not body.endswith(_MAGIC):
        raise ValueError("not an Arrow file")
    (footer,) = struct.unpack_from("<i", body, len(body) - 10)
    end = len(body) - 10 - footer
    if footer < 0 or end < 8:
        raise ValueError("not an Arrow file")
    return memoryview(body)[8:end]


def compressed(pyarrow: Any, stream: Any) -> bool:
    """Whether any message of a stream has compressed buffers; raises if it is not a stream."""
    messages = pyarrow.ipc.MessageReader.open_stream(stream)
    return any(_compressed(message.type, message.metadata.to_pybytes()) for message in messages)


def _compressed(kind: str, metadata: bytes) -> bool:
    if kind not in ("record batch", "dictionary"):
        return False
    (root,) = struct.unpack_from("<I", metadata, 0)
    batch = _table(metadata, root, _HEADER)
    if kind == "dictionary" and batch is not None:
        batch = _table(metadata, batch, _DICTIONARY_DATA)
    return batch is None or _field(metadata, batch, _COMPRESSION) is not None


def _field(buffer: bytes, table: int, number: int) -> int | None:
    """Where a table's field is, or None if it has none: its vtable has the size first, then a u16 a field."""
    vtable = table - int(struct.unpack_from("<i", buffer, table)[0])
    (size,) = struct.unpack_from("<H", buffer, vtable)
    at = 4 + 2 * number
    offset = int(struct.unpack_from("<H", buffer, vtable + at)[0]) if at + 2 <= size else 0
    return table + offset if offset else None


def _table(buffer: bytes, table: int, number: int) -> int | None:
    at = _field(buffer, table, number)
    return None if at is None else at + int(struct.unpack_from("<I", buffer, at)[0])
