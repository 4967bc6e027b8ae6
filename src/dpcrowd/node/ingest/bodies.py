"""Bodies of check-ins and of counts: JSON, NDJSON, MessagePack, Arrow; typed while they are decoded.

Every row is taken or refused by itself. A refusal says which row and which field, and repeats nothing of the body:
msgspec's own texts hold names of unknown fields, so they are read for the field only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated

import msgspec
import numpy as np

from dpcrowd.node.ingest.batch import (
    LONGEST_USER,
    MOST_ROWS,
    Batch,
    BodyRefused,
    RowReason,
    keep_rows,
    nanoseconds,
    refuse_malformed,
    user_bytes,
)

__all__ = ["CHECKIN_TYPES", "COUNTS_TYPES", "CheckIn", "Counts", "decode_checkins", "decode_counts"]

_MOST = 2**40  # people, or slots
_MOST_TOTAL = 2**53 - 1  # people in all regions: a server refuses more, so that sums of regions are exact
User = Annotated[
    str, msgspec.Meta(min_length=1, max_length=LONGEST_USER, extra_json_schema={"pattern": r"\S"})
]  # the pattern is for the description only: `user_bytes` refuses what is all spaces
Time = Annotated[datetime, msgspec.Meta(tz=True)]


class CheckIn(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """One user in one region."""

    user: Annotated[
        User | int,
        msgspec.Meta(
            description='Taken without spaces around it and in Unicode\'s normal form C (NFC). The text "42" and the '
            "number 42 are the same user."
        ),
    ]
    region: Annotated[str, msgspec.Meta(description="The name of a region of network.toml.")]
    time: Annotated[
        Time | int | None,
        msgspec.Meta(
            description="With an offset; as a whole number, milliseconds since 1970: numbers that can only be seconds "
            "are refused. Without it, the time of arrival counts."
        ),
    ] = None


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
_msgpack_parts = msgspec.msgpack.Decoder(list[msgspec.Raw])
_NO_ROW = CheckIn("", "")
_json_counts = msgspec.json.Decoder(Counts)
_msgpack_counts = msgspec.msgpack.Decoder(Counts)

_PLACE = re.compile(r"- at `\$\.(user|region|time)`$")
_MISSING = re.compile(r"^Object missing required field `(user|region)`")
_FIELDS: dict[str, RowReason] = {"user": "user", "region": "region", "time": "time"}
_UNKNOWN = "Object contains unknown field"  # whose name follows, and may look like a place
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)
"""In JSON: a pair of surrogates, one without the other (which is the group), or anything else."""


def decode_checkins(content_type: str | None, body: bytes, regions: Mapping[str, int]) -> Batch:
    """Decode the check-ins of a body; `regions` gives each region's number. `BodyRefused`: it is not a list of rows."""
    kind = _kind(content_type, CHECKIN_TYPES)
    if kind in (_ARROW_STREAM, _ARROW_FILE):
        from dpcrowd.node.ingest.arrow import decode_arrow

        return decode_arrow(body, regions, file=kind == _ARROW_FILE)
    wrong: dict[int, RowReason] = {}
    rows = _decode_rows(kind, body, wrong)
    if isinstance(rows, BodyRefused):
        raise rows
    number = regions.get
    numbers = [number(row.region, -1) for row in rows]
    if -1 in numbers:
        wrong |= {row: "unknown-region" for row, region in enumerate(numbers) if region < 0 and row not in wrong}
    times_ns, out_of_range = nanoseconds([row.time for row in rows])
    wrong |= {row: "time" for row in out_of_range if row not in wrong}
    users = user_bytes([row.user for row in rows])
    if not all(users):
        wrong |= {row: "user" for row, user in enumerate(users) if not user and row not in wrong}
    return keep_rows(users, numbers, times_ns, wrong)


def decode_counts(content_type: str | None, body: bytes, regions: Mapping[str, int]) -> tuple[int, dict[int, int]]:
    """Decode (slot, {number of a region: count}) of a body. A refusal does not say which region or count is wrong."""
    decoded = _decode_counts(_kind(content_type, COUNTS_TYPES), body)
    if isinstance(decoded, BodyRefused):
        raise decoded
    if not regions.keys() >= decoded.counts.keys():
        raise BodyRefused(400, "unknown-region", "counts: an unknown region; allowed: the regions of network.toml.")
    if sum(decoded.counts.values()) > _MOST_TOTAL:
        raise BodyRefused(400, "field", "counts: their sum is too large; allowed: less than 2^53 in all regions.")
    return decoded.slot, {regions[region]: count for region, count in decoded.counts.items()}


def _decode_rows(kind: str, body: bytes, wrong: dict[int, RowReason]) -> list[CheckIn] | BodyRefused:
    """Return all rows; those that are added to `wrong`, with a reason, are placeholders."""
    # A refusal is returned, not raised: raised here, it would carry the decoder's error, which may hold the body.
    good = _good_rows(kind, body)
    if good is not None:
        return good if len(good) <= MOST_ROWS else _too_many()
    parts = _parts(kind, body)
    if isinstance(parts, BodyRefused):
        return parts
    if len(parts) > MOST_ROWS:
        return _too_many()
    decode = (_msgpack_row if kind == _MSGPACK else _json_row).decode
    rows = []
    for number, part in enumerate(parts):
        try:
            rows.append(decode(part))
            continue
        except msgspec.ValidationError as error:
            wrong[number] = _reason_of(str(error))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            wrong[number] = "malformed"
        rows.append(_NO_ROW)
    return rows


def _good_rows(kind: str, body: bytes) -> list[CheckIn] | None:
    """Decode all rows at once; None if they have to be decoded one by one."""
    try:
        if kind != _LINES:
            return (_json_rows if kind == _JSON else _msgpack_rows).decode(body)
        rows = _json_row.decode_lines(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    # msgspec also takes rows that share a line, and rows of several lines; by itself, none of them would be taken.
    ends = np.count_nonzero(np.frombuffer(body, dtype=np.uint8) == ord("\n"))  # a third of the time of body.count
    return rows if len(rows) == ends + (body[-1:] != b"\n") else None


def _parts(kind: str, body: bytes) -> Sequence[msgspec.Raw | bytes] | BodyRefused:
    """Return the rows of a body, not decoded."""
    if kind == _LINES:
        return [line for line in body.split(b"\n") if line.strip()]
    try:
        return (_json_parts if kind == _JSON else _msgpack_parts).decode(body)
    except msgspec.ValidationError:
        return refuse_malformed('a list of check-ins, such as [{"user": "a1", "region": "north"}]')
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    # Half of a pair of surrogates is an id that was cut off somewhere: valid JSON, but msgspec gives up the whole body.
    # As a byte that is not UTF-8 it is the trouble of its own row.
    spoilt = _ESCAPE.sub(lambda match: b"\xff" if match[1] else match[0], body) if kind == _JSON else body
    return refuse_malformed(f"valid {kind}") if spoilt == body else _parts(kind, spoilt)


def _reason_of(problem: str) -> RowReason:
    """Return which field msgspec means; the match is with our own names of fields only."""
    match = _MISSING.search(problem) or _PLACE.search(problem)
    return _FIELDS[match[1]] if match and not problem.startswith(_UNKNOWN) else "malformed"


def _too_many() -> BodyRefused:
    return BodyRefused(413, "too-large", f"more than {MOST_ROWS} rows in one body; send several.")


def _decode_counts(kind: str, body: bytes) -> Counts | BodyRefused:
    try:
        return (_json_counts if kind == _JSON else _msgpack_counts).decode(body)
    except msgspec.ValidationError:
        return BodyRefused(
            400,
            "field",
            f'not counts; allowed: an object of "slot", a whole number from 0 to {_MOST:,}, and "counts", an object '
            f"that gives regions a whole number from 0 to {_MOST:,}, and no other field.",
        )
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return refuse_malformed(f"valid {kind}")


def _kind(content_type: str | None, allowed: tuple[str, ...]) -> str:
    name, _, parameters = (content_type or "").lower().partition(";")
    kind = _OTHER_NAMES.get(name.strip(), name.strip())
    charset = re.search(r"charset\s*=\s*\"?([^\s;\"]*)", parameters)
    if kind not in allowed or (charset and charset[1] not in ("utf-8", "utf8")):
        raise BodyRefused(
            415, "content-type", f"this Content-Type is not taken; allowed: {', '.join(allowed)} in UTF-8."
        )
    return kind
