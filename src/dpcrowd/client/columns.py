"""Columns of tables, from whatever library, as Python's own values; none of these libraries is imported for it.

A table is known by what it can do: it has named columns, a length, and gives a column by its name. Names of columns are
never repeated in a refusal: a file without a header has its first user there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from dpcrowd.errors import BadInput

__all__ = ["UNREADABLE", "columns_of", "plain"]

UNREADABLE = float("nan")
"""Stands for an entry that no column of a check-in may have."""
_NEEDED, _ALLOWED = {"user", "region"}, {"user", "region", "time"}


def columns_of(given: Any) -> dict[str, Any] | None:
    """The columns of a table of check-ins: pandas, polars, Arrow, or a dict of columns. None: it is no table."""
    names = _names(given)
    if names is None:
        return None
    if len(names) != len(set(names)) or not _NEEDED <= set(names) <= _ALLOWED:
        raise BadInput(
            "users: given a table of other columns; allowed: user, region and, if wanted, time, and no other."
        )
    return {name: given[name] for name in names}


def plain(values: Iterable[Any]) -> list[Any]:
    """Python's own values of a list, an array or a series; `UNREADABLE` for an entry that Python cannot hold."""
    dtype = getattr(values, "dtype", None)
    if isinstance(dtype, np.dtype) and dtype.kind == "M":
        stamps = np.asarray(values)
        numbers = stamps.astype("datetime64[ms]").astype(np.int64).tolist()  # numpy's times are UTC
        # Not None, which is a row without a time: it would count as of now.
        return [UNREADABLE if bad else number for number, bad in zip(numbers, np.isnat(stamps).tolist(), strict=True)]
    if hasattr(values, "to_pylist"):
        values = _microseconds(values)
    try:
        return _listed(values)
    except (OverflowError, ValueError):
        if not hasattr(values, "to_pylist") and dtype is None:
            raise  # of the caller's own generator
        return _one_by_one(values)  # one entry, such as a time after the year 9999, spoils the whole column


def _listed(values: Any) -> list[Any]:
    for method in ("to_pylist", "tolist"):
        if hasattr(values, method):
            return list(getattr(values, method)())
    return list(values)


def _one_by_one(values: Any) -> list[Any]:
    values = getattr(values, "iloc", values)  # pandas: by place, not by label
    entries = []
    for place in range(len(values)):
        try:
            entry = values[place]
            entries.append(entry.as_py() if hasattr(entry, "as_py") else entry)
        except (OverflowError, ValueError):
            entries.append(UNREADABLE)
    return entries


def _names(given: Any) -> list[str] | None:
    if isinstance(given, Mapping):
        # One check-in is a mapping as well: its user is one value.
        return None if isinstance(given.get("user"), (str, bytes, int, float)) else list(given)
    if not hasattr(given, "__len__"):
        return None  # also a query that polars has not carried out yet
    for attribute in ("column_names", "columns"):
        names = getattr(given, attribute, None)
        if names is not None:
            return [name if isinstance(name, str) else "" for name in names]
    return None


def _microseconds(column: Any) -> Any:
    """Python has no nanoseconds: Arrow would refuse the column, and quote a row."""
    kind: Any = getattr(column, "type", None)
    if getattr(kind, "unit", None) != "ns" or not hasattr(kind, "tz"):
        return column
    import pyarrow

    return column.cast(pyarrow.timestamp("us", kind.tz), safe=False)
