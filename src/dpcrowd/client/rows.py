"""Check-ins and counts as bodies. A refusal names a row and a field, and never shows what stands there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec

from dpcrowd.client.columns import columns_of, plain
from dpcrowd.errors import BadInput

__all__ = ["ALLOWED", "Encoding", "checkin_rows", "content_type", "counts_body", "encode", "wrong_field"]

Encoding = Literal["msgpack", "json"]
_TYPES = {"msgpack": "application/msgpack", "json": "application/json"}
ALLOWED = {
    "user": "a text of 1 to 256 characters, or a whole number",
    "region": "the name of a region",
    "time": "a datetime with a time zone, RFC 3339 text with an offset, or milliseconds since 1970",
}
_WORD = 1 << 63


class _CheckIn(msgspec.Struct, omit_defaults=True, gc=False):
    user: str | int
    region: str
    time: datetime | str | int | None = None


def content_type(encoding: str) -> str:
    """Of a body."""
    if encoding not in _TYPES:
        raise BadInput(f"encoding: given '{encoding}'; allowed: msgpack, json.")
    return _TYPES[encoding]


def checkin_rows(users: Any, regions: Any, times: Any) -> list[_CheckIn]:
    """Columns (a single region or time stands for all rows), or a table or rows as mappings if there are no regions."""
    table = columns_of(users)
    if table is not None:
        if regions is not None or times is not None:
            raise BadInput("regions, times: given beside a table, which has its own; give columns, or the table alone.")
        users, regions, times = table["user"], table["region"], table.get("time")
    if isinstance(users, (str, bytes, int, Mapping)) or not isinstance(users, Iterable):
        raise BadInput(
            "users: given one value; allowed: a list of users, or of {'user', 'region', 'time'?}, or a table."
        )
    given = plain(users)
    if regions is None:
        if times is not None:
            raise BadInput("times: given without regions; give both as columns, or rows of {'user', 'region', 'time'}.")
        return [_row(row, *_fields(row, one)) for row, one in enumerate(given)]
    places = _column("regions", regions, len(given))
    moments = _column("times", times, len(given))
    return [_row(row, *fields) for row, fields in enumerate(zip(given, places, moments, strict=True))]


def encode(rows: Sequence[_CheckIn], encoding: str) -> bytes:
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


def _fields(row: int, given: Any) -> tuple[Any, Any, Any]:
    if not isinstance(given, Mapping) or not {"user", "region"} <= given.keys() <= {"user", "region", "time"}:
        raise BadInput(f"row {row}: not a check-in; allowed: a mapping of user, region and, if wanted, time.")
    return given["user"], given["region"], given.get("time")


def wrong_field(user: Any, region: Any, time: Any) -> str | None:
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


def _row(row: int, user: Any, region: Any, time: Any) -> _CheckIn:
    field = wrong_field(user, region, time)
    if field is not None:
        raise BadInput(f"row {row}: {field}: missing or not allowed; allowed: {ALLOWED[field]}.")
    if isinstance(time, datetime) and type(time) is not datetime:  # pandas has a class of its own
        time = datetime.fromisoformat(time.isoformat(timespec="microseconds"))
    return _CheckIn(user, region, time)


def _is_word(number: object) -> bool:
    return type(number) is int and 0 <= number < _WORD


def _encodable(text: str) -> bool:
    # Looked at before encoding: the error of the encoder would carry the text.
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)
