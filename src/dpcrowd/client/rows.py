"""Check-ins and counts as bodies of requests. An error names a row and a field, and never quotes the value.

Check-ins may be rows or columns, and columns may come from any library, none of which is imported for it: a table is
whatever has named columns, a length, and returns a column by its name. Errors never quote names of columns: in a file
without a header, these are the first user.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import msgspec
import numpy as np

from dpcrowd.errors import BadInput, counted
from dpcrowd.node.ingest.batch import LONGEST_USER

__all__ = [
    "ALLOWED",
    "UNREADABLE",
    "CheckinRow",
    "CheckinRows",
    "Encoding",
    "checkin_rows",
    "columns_of",
    "content_type",
    "counts_body",
    "encode",
    "plain",
    "read_row",
]

Encoding = Literal["msgpack", "json"]
_TYPES = {"msgpack": "application/msgpack", "json": "application/json"}
ALLOWED = {
    "user": f"a text of 1 to {LONGEST_USER} characters, or a whole number",
    "region": "the name of a region",
    "time": "a datetime with a time zone, RFC 3339 text with an offset, or milliseconds, not seconds, since 1970",
}
_WORD = 1 << 63
UNREADABLE = float("nan")
"""Stands for an entry that no column of a check-in may have."""
_NEEDED, _ALLOWED = {"user", "region"}, {"user", "region", "time"}


class CheckinRow(msgspec.Struct, omit_defaults=True, gc=False):
    """One user in one region, as sent to a node."""

    user: str | int
    region: str
    time: datetime | str | int | None = None

    def __repr__(self) -> str:
        return "CheckinRow(...)"  # without the user


@dataclass(frozen=True, repr=False)
class CheckinRows:
    """Rows to send, and rows that no node would take. It has no repr, since it contains user ids.

    numbers  numbers of the rows to send, in the caller's argument
    wrong    (number, reason) of the other rows
    """

    rows: list[CheckinRow]
    numbers: Sequence[int]
    wrong: list[tuple[int, str]]

    def problem(self) -> BadInput:
        """Return the error for the first wrong row."""
        number, reason = self.wrong[0]
        if reason in ALLOWED:
            return BadInput(f"row {number}: the {reason} is missing or not allowed; allowed: {ALLOWED[reason]}.")
        return BadInput(f"row {number} is not a check-in; allowed: a mapping with user, region and, optionally, time.")


def content_type(encoding: str) -> str:
    """Return the Content-Type of an encoding."""
    if encoding not in _TYPES:
        raise BadInput(f"encoding is '{encoding}'; allowed: msgpack, json.")
    return _TYPES[encoding]


def checkin_rows(users: Any, regions: Any, times: Any) -> CheckinRows:
    """Read columns (a single region or time is that of all rows); or, without regions, a table, mappings or NDJSON.

    A wrong row does not affect the others. Columns that do not fit together raise `BadInput`.
    """
    table = columns_of(users)
    if table is not None:
        if regions is not None or times is not None:
            raise BadInput("regions or times were given beside a table, which has its own; give columns, or the table.")
        users, regions, times = table["user"], table["region"], table.get("time")
    if isinstance(users, (str, bytes, int, Mapping)) or not isinstance(users, Iterable):
        raise BadInput(
            "users is a single value; allowed: a list of users, or of {'user', 'region', 'time'?}, or a table."
        )
    values = plain(users)
    if regions is None:
        if times is not None:
            raise BadInput(
                "times were given without regions; give both columns, or rows of {'user', 'region', 'time'}."
            )
        return _sort_out([read_row(value) for value in values])
    places = _column("regions", regions, len(values))
    moments = _column("times", times, len(values))
    return _sort_out([_row(*fields) for fields in zip(values, places, moments, strict=True)])


def _sort_out(results: list[CheckinRow | str | None]) -> CheckinRows:
    """Separate check-ins from the reasons of wrong rows; None, an empty line, is neither."""
    rows = [row for row in results if isinstance(row, CheckinRow)]
    if len(rows) == len(results):
        return CheckinRows(rows, range(len(rows)), [])
    numbers = [number for number, row in enumerate(results) if isinstance(row, CheckinRow)]
    return CheckinRows(rows, numbers, [(number, row) for number, row in enumerate(results) if isinstance(row, str)])


def encode(rows: Sequence[CheckinRow], encoding: str) -> bytes:
    """Return the body of a request."""
    return msgspec.msgpack.encode(rows) if encoding == "msgpack" else msgspec.json.encode(rows)


def counts_body(slot: int, counts: Mapping[str, Any]) -> bytes:
    """Return the body of a request with the distinct users of one slot by region."""
    numbers: dict[str, int] = {}
    for region, count in counts.items():
        number = count.item() if hasattr(count, "item") else count
        if not isinstance(region, str) or type(number) is not int or number < 0:
            raise BadInput("counts is not allowed; give a mapping of names of regions to whole numbers >= 0.")
        numbers[region] = number
    if type(slot) is not int or slot < 0:
        raise BadInput(f"slot is {slot!r}; allowed: a whole number >= 0.")
    return msgspec.msgpack.encode({"slot": slot, "counts": numbers})


def _column(name: str, values: Any, size: int) -> list[Any]:
    if values is None or isinstance(values, (str, int, datetime)):
        return [values] * size
    column = plain(values)
    if len(column) != size:
        raise BadInput(
            f"{len(column)} {name} were given for {counted(size, 'user')}; allowed: one per user, or one for all."
        )
    return column


def read_row(value: Any) -> CheckinRow | str | None:
    """Read a mapping or a line of NDJSON; return the check-in, why it is wrong, or None for an empty line."""
    if isinstance(value, CheckinRow):
        return value
    if isinstance(value, (str, bytes)):
        if not value.strip():
            return None
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return "malformed"
    if not isinstance(value, Mapping) or not {"user", "region"} <= value.keys() <= {"user", "region", "time"}:
        return "malformed"
    return _row(value["user"], value["region"], value.get("time"))


def _wrong_field(user: Any, region: Any, time: Any) -> str | None:
    """Return the first field of a check-in that no node would take; None if there is none."""
    if isinstance(user, str):
        if not 1 <= len(user) <= LONGEST_USER or not _encodable(user):
            return "user"
    elif type(user) is not int or not -_WORD <= user < 2 * _WORD:
        return "user"
    if not isinstance(region, str) or not _encodable(region):
        return "region"
    if isinstance(time, datetime):
        return "time" if time.tzinfo is None else None
    return None if time is None or (isinstance(time, str) and _encodable(time)) or _is_word(time) else "time"


def _row(user: Any, region: Any, time: Any) -> CheckinRow | str:
    field = _wrong_field(user, region, time)
    if field is not None:
        return field
    if isinstance(time, datetime) and type(time) is not datetime:  # pandas has a subclass
        time = datetime.fromisoformat(time.isoformat(timespec="microseconds"))
    return CheckinRow(user, region, time)


def _is_word(number: object) -> bool:
    return type(number) is int and 0 <= number < _WORD


def _encodable(text: str) -> bool:
    # Checked before encoding: the error of the encoder would quote the text.
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def columns_of(table: Any) -> dict[str, Any] | None:
    """Return the columns of a table of pandas, polars or Arrow, or of a dict of columns; None if it is not a table."""
    names = _names(table)
    if names is None:
        return None
    if len(names) != len(set(names)) or not _NEEDED <= set(names) <= _ALLOWED:
        raise BadInput(
            "users is a table with other columns; allowed: user, region and, optionally, time, and no others."
        )
    return {name: table[name] for name in names}


def plain(values: Iterable[Any]) -> list[Any]:
    """Return the entries of a list, an array or a series as Python values; `UNREADABLE` if Python has no such value."""
    dtype = getattr(values, "dtype", None)
    if isinstance(dtype, np.dtype) and dtype.kind == "M":
        stamps = np.asarray(values)
        numbers = stamps.astype("datetime64[ms]").astype(np.int64).tolist()  # numpy's times are UTC
        # Not None, which means a row without a time: it would count when it arrives.
        return [UNREADABLE if bad else number for number, bad in zip(numbers, np.isnat(stamps).tolist(), strict=True)]
    if hasattr(values, "to_pylist"):
        values = _microseconds(values)
    try:
        return _as_list(values)
    except (OverflowError, ValueError):
        if not hasattr(values, "to_pylist") and dtype is None:
            raise  # an error of the caller's own generator
        # A single entry, such as a time after the year 9999, makes the conversion of the column fail.
        return _one_by_one(values)


def _as_list(values: Any) -> list[Any]:
    for method in ("to_pylist", "tolist"):
        if hasattr(values, method):
            return list(getattr(values, method)())
    return list(values)


def _one_by_one(values: Any) -> list[Any]:
    values = getattr(values, "iloc", values)  # pandas: by position, not by label
    entries = []
    for position in range(len(values)):
        try:
            entry = values[position]
            entries.append(entry.as_py() if hasattr(entry, "as_py") else entry)
        except (OverflowError, ValueError):
            entries.append(UNREADABLE)
    return entries


def _names(table: Any) -> list[str] | None:
    """Return the names of the columns of a table; None if it is not a table."""
    if isinstance(table, Mapping):
        # A single check-in is a mapping as well: its user is one value.
        return None if isinstance(table.get("user"), (str, bytes, int, float)) else list(table)
    if not hasattr(table, "__len__"):
        return None  # also for a lazy query of polars
    for attribute in ("column_names", "columns"):
        names = getattr(table, attribute, None)
        if names is not None:
            return [name if isinstance(name, str) else "" for name in names]
    return None


def _microseconds(column: Any) -> Any:
    """Convert nanoseconds, which Python does not have: Arrow would refuse the column, and quote a row."""
    kind: Any = getattr(column, "type", None)
    if getattr(kind, "unit", None) != "ns" or not hasattr(kind, "tz"):
        return column
    import pyarrow

    return column.cast(pyarrow.timestamp("us", kind.tz), safe=False)
