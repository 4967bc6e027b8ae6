"""Columns of tables, from whatever library, as Python's own values; none of these libraries is imported for it.

A table is known by what it can do: it has named columns, a length, and gives a column by its name. Names of columns are
never repeated in a refusal: a file without a header has its first user there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from dpcrowd.errors import BadInput

__all__ = ["columns_of", "plain"]

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
    """Python's own values of a list, an array or a series."""
    dtype = getattr(values, "dtype", None)
    if isinstance(dtype, np.dtype) and dtype.kind == "M":
        stamps = np.asarray(values)
        if np.isnat(stamps).any():
            raise BadInput("times: an entry is not a time; leave times out where there are none.")
        return [int(one) for one in stamps.astype("datetime64[ms]").astype(np.int64)]  # numpy's times are UTC
    if hasattr(values, "to_pylist"):
        return list(_microseconds(values).to_pylist())
    return list(values.tolist()) if hasattr(values, "tolist") else list(values)


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
