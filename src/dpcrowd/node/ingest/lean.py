"""pyarrow in a node: loaded on first use, and with as little memory as it goes.

`pyarrow.array` and `to_numpy` import pandas if it is installed, and `cast` and its like import all of
`pyarrow.compute`: 60 MB of memory that a node has no other use for. So columns are made from and read through their
buffers here (`from_buffers`, `buffers`, `view`, `to_pylist`), and the system's allocator gives memory back.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["integers", "load", "nulls", "packed"]


def load() -> Any:
    """Import pyarrow; ImportError without it."""
    import pyarrow

    pyarrow.set_memory_pool(pyarrow.system_memory_pool())
    return pyarrow


def integers(pyarrow: Any, column: Any) -> NDArray[Any]:
    """Return the values of a column of whole numbers or timestamps; where a row is null, anything."""
    kind, end = column.type, column.offset + len(column)
    if not len(column):
        return np.empty(0, dtype=np.int64)
    sign = "u" if pyarrow.types.is_unsigned_integer(kind) else "i"
    return np.frombuffer(column.buffers()[1], dtype=f"<{sign}{kind.bit_width // 8}", count=end)[column.offset :]


def nulls(column: Any) -> NDArray[np.bool_]:
    """Return which rows are null."""
    if column.null_count in (0, len(column)):
        return np.full(len(column), column.null_count > 0)
    bits = np.frombuffer(column.buffers()[0], dtype=np.uint8)
    valid = np.unpackbits(bits, count=column.offset + len(column), bitorder="little")
    result: NDArray[np.bool_] = valid[column.offset :] == 0
    return result


def packed(pyarrow: Any, flags: NDArray[np.bool_]) -> Any:
    """Return flags as a buffer of bits."""
    return pyarrow.py_buffer(np.packbits(flags, bitorder="little"))
