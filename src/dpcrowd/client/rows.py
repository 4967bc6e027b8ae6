"""Check-ins and counts as bodies. A refusal names a row and a field, and never shows what stands there."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import msgspec
import numpy as np

from dpcrowd.errors import BadInput

__all__ = []

Encoding = Literal["msgpack", "json"]
_TYPES = {"msgpack": "application/msgpack", "json": "application/json"}
ALLOWED = {
    "user": "a text of 1 to 256 characters, or a whole number",
    "region": "the name of a region",
    "time": "a datetime with a time zone, RFC 3339 text with an offset, or milliseconds, not seconds, since 1970",
}
_WORD = 1 << 63
UNREADABLE = float("nan")
"""Stands for an entry that no column of a check-in may have."""
_NEEDED, _ALLOWED = {"user", "region"}, {"user", "region", "time"}


class CheckIn(msgspec.Struct, omit_defaults=True, gc=False):
    """One user in one region, as it is sent."""

    user: str | int
    region: str
    time: datetime | str | int | None = None

    def __repr__(self) -> str:
        return "CheckIn(...)"  # nobody is shown


@dataclass(frozen=True, repr=False)
class CheckinRows:
    """Rows to send, and those that no node would take. It has no repr: it holds user ids.

    numbers  of the rows to send, in what was given
    wrong    (number, reason) of the others
    """

    rows: list[CheckIn]
    numbers: Sequence[int]
    wrong: list[tuple[int, str]]

    def problem(self) -> BadInput:
        """The refusal of the first wrong row."""
        number, reason = self.wrong[0]
        if reason in ALLOWED:
            return BadInput(f"row {number}: {reason}: missing or not allowed; allowed: {ALLOWED[reason]}.")
        return BadInput(f"row {number}: not a check-in; allowed: a mapping of user, region and, if wanted, time.")


def content_type(encoding: str) -> str:
    """Of a body."""
    if encoding not in _TYPES:
        raise BadInput(f"encoding: given '{encoding}'; allowed: msgpack, json.")
    return _TYPES[encoding]


def checkin_rows(users: Any, regions: Any, times: Any) -> CheckinRows:
    """Columns (a single region or time stands for all rows); or, without regions, a table, mappings or lines of NDJSON.

    What is wrong with a single row is no reason to refuse the others. `BadInput` if the columns do not fit.
    """
    table = columns_of(users)
    if table is not None:
        if regions is not None or times is not None:
            raise BadInput("regions, times: given beside a table, which has its own; give columns, or the table alone.")
        users, regions, times = table["user"], table["region"], table.get("time")
    if isinstance(users, (str, bytes, int, Mapping)) or not isinstance(users, Iterable):
        raise BadInput(
            "users: given one value; allowed: a list of users, or of {'user', 'region', 'time'?}, or a table."
        )
    values = plain(users)
    if regions is None:
        if times is not None:
            raise BadInput("times: given without regions; give both as columns, or rows of {'user', 'region', 'time'}.")
        return _divided([read_row(value) for value in values])
    places = _column("regions", regions, len(values))
    moments = _column("times", times, len(values))
    return _divided([_row(*fields) for fields in zip(values, places, moments, strict=True)])


def _divided(read: list[CheckIn | str | None]) -> CheckinRows:
    """Check-ins, and reasons of what is none; None is neither."""
    rows = [row for row in read if isinstance(row, CheckIn)]
    if len(rows) == len(read):
        return CheckinRows(rows, range(len(rows)), [])
    numbers = [number for number, row in enumerate(read) if isinstance(row, CheckIn)]
    return CheckinRows(rows, numbers, [(number, row) for number, row in enumerate(read) if isinstance(row, str)])


def encode(rows: Sequence[CheckIn], encoding: str) -> bytes:
    """A body."""
    return msgspec.msgpack.encode(rows) if encoding == "msgpack" else msgspec.json.encode(rows)


def counts_body(slot: int, counts: Mapping[str, Any]) -> bytes:
    """Distinct users by region in one slot."""
    made: dict[str, int] = {}
    for region, count in counts.items():
        plain = count.item() if hasattr(count, "item") else count
        if not isinstance(region, str) or type(plain) is not int or plain < 0:
            raise BadInput("counts: allowed: names of regions, each with a whole number >= 0.")
        made[region] = plain
    if type(slot) is not int or slot < 0:
        raise BadInput("slot: allowed: a whole number >= 0.")
    return msgspec.msgpack.encode({"slot": slot, "counts": made})


def _column(name: str, values: Any, size: int) -> list[Any]:
    if values is None or isinstance(values, (str, int, datetime)):
        return [values] * size
    column = plain(values)
    if len(column) != size:
        raise BadInput(f"{name}: given {len(column)}, but {size} users; allowed: one each, or one for all.")
    return column


def read_row(value: Any) -> CheckIn | str | None:
    """A check-in from a mapping or a line of NDJSON; or why it is none; None: an empty line."""
    if isinstance(value, CheckIn):
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
    """The first field of a check-in that no node takes; None: nothing that can be told without asking one."""
    if isinstance(user, str):
        if not 1 <= len(user) <= 256 or not _encodable(user):
            return "user"
    elif type(user) is not int or not -_WORD <= user < 2 * _WORD:
        return "user"
    if not isinstance(region, str) or not _encodable(region):
        return "region"
    if isinstance(time, datetime):
        return "time" if time.tzinfo is None else None
    return None if time is None or (isinstance(time, str) and _encodable(time)) or _is_word(time) else "time"


def _row(user: Any, region: Any, time: Any) -> CheckIn | str:
    field = _wrong_field(user, region, time)
    if field is not None:
        return field
    if isinstance(time, datetime) and type(time) is not datetime:  # pandas has a class of its own
        time = datetime.fromisoformat(time.isoformat(timespec="microseconds"))
    return CheckIn(user, region, time)


def _is_word(number: object) -> bool:
    return type(number) is int and 0 <= number < _WORD


def _encodable(text: str) -> bool:
    # Looked at before encoding: the error of the encoder would carry the text.
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


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
