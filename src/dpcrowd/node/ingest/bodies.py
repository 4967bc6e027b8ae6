"""Bodies of check-ins and of counts: JSON, NDJSON, MessagePack, Arrow; typed while they are decoded.

A body is taken whole or refused whole. A refusal names the wrong rows, the field of the first, what is allowed there,
and repeats nothing of the body: msgspec's own texts hold names of unknown fields, so they are read for the place only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated

import msgspec

from dpcrowd.node.ingest.batch import MOST_ROWS, NAMED_ROWS, Batch, BodyRefused, refuse_field, refuse_malformed
from dpcrowd.node.ingest.times import nanoseconds

__all__ = ["CHECKIN_TYPES", "COUNTS_TYPES", "CheckIn", "Counts", "decode_checkins", "decode_counts"]

_MOST = 2**40  # people, or slots; sums over regions stay exact in the filters' float64
User = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
Time = Annotated[datetime, msgspec.Meta(tz=True)]


class CheckIn(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """One user in one region.

    Without a time, the time of arrival counts. The text "42" and the number 42 are the same user.
    """

    user: User | int
    region: str
    time: Time | int | None = None


class Counts(msgspec.Struct, forbid_unknown_fields=True):
    """Distinct users by region in one slot, counted elsewhere; a region that is not named has 0."""

    slot: Annotated[int, msgspec.Meta(ge=0, le=_MOST)]
    counts: dict[str, Annotated[int, msgspec.Meta(ge=0, le=_MOST)]]


_JSON = "application/json"
_LINES = "application/x-ndjson"
_MSGPACK = "application/msgpack"
_ARROW_STREAM = "application/vnd.apache.arrow.stream"
_ARROW_FILE = "application/vnd.apache.arrow.file"
_OTHER_NAMES = {
    "application/ndjson": _LINES,
    "application/jsonl": _LINES,
    "application/x-msgpack": _MSGPACK,
    "application/vnd.msgpack": _MSGPACK,
}
CHECKIN_TYPES = (_JSON, _LINES, _MSGPACK, _ARROW_STREAM, _ARROW_FILE)
COUNTS_TYPES = (_JSON, _MSGPACK)

_json_rows = msgspec.json.Decoder(list[CheckIn])
_json_row = msgspec.json.Decoder(CheckIn)
_msgpack_rows = msgspec.msgpack.Decoder(list[CheckIn])
_msgpack_row = msgspec.msgpack.Decoder(CheckIn)
_json_parts = msgspec.json.Decoder(list[msgspec.Raw])
_json_part = msgspec.json.Decoder(msgspec.Raw)
_msgpack_parts = msgspec.msgpack.Decoder(list[msgspec.Raw])
_json_counts = msgspec.json.Decoder(Counts)
_msgpack_counts = msgspec.msgpack.Decoder(Counts)

# At the end of what msgspec says: whatever a body's own names hold stands before it.
_PLACE = re.compile(r"- at `(?:key` in `)?\$\[(\d+)\](?:\.(user|region|time))?`$")
_MISSING = re.compile(r"^Object missing required field `(user|region)`")


def decode_checkins(content_type: str | None, body: bytes, regions: Mapping[str, int]) -> Batch:
    """Check-ins of a body; `regions` gives each region's number. `BodyRefused` if a single row is wrong."""
    kind = _kind(content_type, CHECKIN_TYPES)
    if kind in (_ARROW_STREAM, _ARROW_FILE):
        from dpcrowd.node.ingest.arrow import decode_arrow

        return decode_arrow(body, regions, file=kind == _ARROW_FILE)
    rows = _decode_rows(kind, body)
    if isinstance(rows, BodyRefused):
        raise rows
    if len(rows) > MOST_ROWS:
        raise BodyRefused(413, "too-large", f"more than {MOST_ROWS} rows in one body; send several.")
    number = regions.get
    numbers = [number(row.region, -1) for row in rows]
    if -1 in numbers:
        raise refuse_field([row for row, found in enumerate(numbers) if found < 0], "region", unknown=True)
    return Batch(_user_bytes([row.user for row in rows]), numbers, nanoseconds([row.time for row in rows]))


def decode_counts(content_type: str | None, body: bytes, regions: Mapping[str, int]) -> tuple[int, dict[int, int]]:
    """(slot, {number of a region: count}) of a body. Which region or count is wrong is not said."""
    given = _decode_counts(_kind(content_type, COUNTS_TYPES), body)
    if isinstance(given, BodyRefused):
        raise given
    if not regions.keys() >= given.counts.keys():
        raise BodyRefused(400, "unknown-region", "counts: an unknown region; allowed: the regions of network.toml.")
    return given.slot, {regions[region]: count for region, count in given.counts.items()}


def _decode_rows(kind: str, body: bytes) -> list[CheckIn] | BodyRefused:
    # A refusal is returned, not raised: raised here, it would carry the decoder's error, which may hold the body.
    try:
        if kind == _LINES:
            return _json_row.decode_lines(body)
        return (_json_rows if kind == _JSON else _msgpack_rows).decode(body)
    except msgspec.ValidationError as error:
        problem = str(error)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return refuse_malformed(f"valid {kind}")
    return _refusal(problem, kind, body)


def _decode_counts(kind: str, body: bytes) -> Counts | BodyRefused:
    try:
        return (_json_counts if kind == _JSON else _msgpack_counts).decode(body)
    except msgspec.ValidationError:
        return BodyRefused(
            400,
            "field",
            'not counts; allowed: an object of "slot", a whole number >= 0, and "counts", an object that gives regions '
            "a whole number >= 0, and no other field.",
        )
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return refuse_malformed(f"valid {kind}")


def _refusal(problem: str, kind: str, body: bytes) -> BodyRefused:
    """What msgspec says, for its place alone; the match is with our own names of fields only."""
    place, missing = _PLACE.search(problem), _MISSING.search(problem)
    if place is None:
        return refuse_malformed("a list of check-ins")
    first = int(place[1])
    return refuse_field([first, *_wrong_after(first, kind, body)], missing[1] if missing else place[2])


def _wrong_after(first: int, kind: str, body: bytes) -> list[int]:
    """The other rows that are no check-ins, for msgspec stops at the first: whoever sends can leave all out at once."""
    try:
        if kind == _LINES:
            parts = _json_part.decode_lines(body)
        else:
            parts = (_json_parts if kind == _JSON else _msgpack_parts).decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []  # what stands behind the first wrong row is not even of the format
    decode = (_msgpack_row if kind == _MSGPACK else _json_row).decode
    wrong: list[int] = []
    for row in range(first + 1, len(parts)):
        try:
            decode(parts[row])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            wrong.append(row)
            if len(wrong) == NAMED_ROWS:
                break
    return wrong


def _user_bytes(users: list[str | int]) -> list[bytes]:
    try:
        return list(map(str.encode, users))  # type: ignore[arg-type]
    except TypeError:
        return [user.encode() if isinstance(user, str) else b"%d" % user for user in users]


def _kind(content_type: str | None, allowed: tuple[str, ...]) -> str:
    name, _, parameters = (content_type or "").lower().partition(";")
    kind = _OTHER_NAMES.get(name.strip(), name.strip())
    charset = re.search(r"charset\s*=\s*\"?([^\s;\"]*)", parameters)
    if kind not in allowed or (charset and charset[1] not in ("utf-8", "utf8")):
        raise BodyRefused(
            415, "content-type", f"this Content-Type is not taken; allowed: {', '.join(allowed)} in UTF-8."
        )
    return kind
