"""A batch of check-ins: the rows of one body as users, regions and times, their slots, and their keyed hashes.

Every row is accepted or refused by itself, by its own content and the clock: one person's row never decides about
another's. A refused row is named by its number and a reason. `ROW_REASONS` is the only list of the reasons: the answers
of the API, their descriptions and the OpenAPI document are derived from it.

Times are RFC 3339 (read to microseconds) or milliseconds outside and whole nanoseconds UTC inside. There is no clock
here: the time at which a batch arrived is passed in.

One person is one user, however an id was typed: a text is stripped of spaces and brought to Unicode's normal form C, so
that "Zoë" is one user whether the ë is one character or two, and the number 42 and the text "42" are the same user.
Otherwise a person would count twice in a slot, and the noise covers one. Users become keyed hashes at once (BLAKE2b, 16
bytes). The key is new in each slot and deleted with it, so that hashes of two slots cannot be matched, and those of a
slot that is over cannot be tried out against a list of users.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Annotated, Literal, NamedTuple, get_args
from unicodedata import normalize

import msgspec
import numpy as np
from numpy.typing import NDArray

from dpcrowd.node.collect import HASH_BYTES, IntakeRefused, checkins_record
from dpcrowd.node.slots import SECOND, SlotClock, rfc3339

__all__ = [
    "ALLOWED",
    "ARRIVAL",
    "LAST_NS",
    "LONGEST_USER",
    "MILLISECOND",
    "MOST_ROWS",
    "NAMED_ROWS",
    "ROW_REASONS",
    "SECONDS",
    "Batch",
    "BodyRefused",
    "HashedPart",
    "RowReason",
    "RowReasonTexts",
    "RowRefusal",
    "Zoned",
    "are_plain",
    "hash_users",
    "keep_rows",
    "nanoseconds",
    "parse_time",
    "refuse_malformed",
    "row_text",
    "slots_of",
    "user_bytes",
]

ARRIVAL = -1
"""In `Batch.times_ns`: this check-in has no time of its own, the time at which it arrived counts."""
MOST_ROWS = 1_000_000
"""Of one body, however small the format makes them."""
NAMED_ROWS = 1_000
"""In an answer: more would make it as long as the body."""
LONGEST_USER = 256
"""Upper bound on the length of a user id, in characters, as it was sent."""
LAST_NS = 2**63 - 1
MILLISECOND = 1_000_000
SECONDS = range(978_307_200, 4_102_444_800)
"""From 2001 to 2100 in seconds. As milliseconds, these are days of January and February 1970, which nobody means."""
_LARGEST_HASH = 1 << 64
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Zoned = Annotated[datetime, msgspec.Meta(tz=True)]

RowReason = Literal["late", "future", "unknown-region", "user", "region", "time", "malformed"]
"""The reasons for which a row is refused, as the API names them; `ROW_REASONS` explains each."""
RowRefusal = tuple[int, RowReason]
"""The number of a row of the body, counted from 0, and the reason for which it is not taken."""

ALLOWED = {
    "user": f"a text of 1 to {LONGEST_USER} characters, not all of them spaces, or a whole number",
    "region": "the name of a region of network.toml",
    "time": "an RFC 3339 time with an offset, or a whole number of milliseconds, not seconds, since 1970; from 1970 to "
    "2262",
}


class RowReasonTexts(NamedTuple):
    """A reason for which a row is refused, explained.

    request      the reason of a request of which every row is refused, if this is the reason of its first row
    status       the HTTP status of that request
    text         a sentence for whoever sent the row
    description  what the reason means, for the description of the API
    """

    request: str
    status: int
    text: str
    description: str


def _field_texts(name: str) -> RowReasonTexts:
    text = f"{name}: missing or not allowed; allowed: {ALLOWED[name]}."
    return RowReasonTexts("field", 400, text, "the field is missing or not allowed")


ROW_REASONS: dict[RowReason, RowReasonTexts] = {
    "late": RowReasonTexts("late", 409, "time: of a slot that is sealed.", "its slot is sealed"),
    "future": RowReasonTexts(
        "future", 400, "time: later than this server's clock allows.", "its time is ahead of the server's clock"
    ),
    "unknown-region": RowReasonTexts(
        "unknown-region",
        400,
        f"region: unknown; allowed: {ALLOWED['region']}.",
        "network.toml has no such region",
    ),
    "user": _field_texts("user"),
    "region": _field_texts("region"),
    "time": _field_texts("time"),
    "malformed": RowReasonTexts(
        "field",
        400,
        "not a check-in; allowed: an object of user, region and, if wanted, time, and no other field.",
        "it is not a check-in",
    ),
}
# A reason without its texts would be noticed only when the other rows of its body have been counted.
assert tuple(ROW_REASONS) == get_args(RowReason), "every reason of RowReason needs its texts in ROW_REASONS"


class BodyRefused(Exception):
    """A body of which nothing is accepted. Neither the word `reason` nor the sentence `text` repeats anything of it."""

    def __init__(self, status: int, reason: str, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.reason = reason
        self.text = text


@dataclass(frozen=True, repr=False)
class HashedPart:
    """Rows of one slot: their numbers in the batch, as they are counted, and as the journal keeps them."""

    rows: list[int]
    users: list[bytes]
    regions: list[int]
    record: bytes


@dataclass(frozen=True, eq=False)
class Batch:
    """The check-ins of a body that are well formed, in their order.

    users     as bytes; the text "42" and the number 42 are the same user, or a user could count twice in a slot
    regions   numbers
    times_ns  nanoseconds since 1970, `ARRIVAL` where a row has none; None if no row has one
    places    the number that each row has in the body; None: all rows of the body are here
    refused   the other rows of the body
    """

    users: list[bytes]
    regions: list[int]
    times_ns: NDArray[np.int64] | None = None
    places: list[int] | None = None
    refused: tuple[RowRefusal, ...] = ()

    def __len__(self) -> int:
        return len(self.users)

    def __repr__(self) -> str:
        return "Batch(...)"  # a log line that formats a batch must not show anybody

    def hashed(self, rows: NDArray[np.intp], key: bytes, keep: float = 1.0) -> HashedPart:
        """Return the rows of one slot, which are in ascending order, with users as hashes by the slot's key.

        keep  the part of the users that is counted, chosen by their hashes, where load is shed; 1: all
        """
        numbers: list[int] = rows.tolist()
        users, regions = self.users, self.regions
        if len(numbers) < len(users):
            users, regions = [users[row] for row in numbers], [regions[row] for row in numbers]
        hashes = hash_users(users, key)
        if keep < 1.0:
            below = int(keep * _LARGEST_HASH)
            places = [place for place, user in enumerate(hashes) if int.from_bytes(user[:8], "little") < below]
            numbers, regions = [numbers[place] for place in places], [regions[place] for place in places]
            hashes = [hashes[place] for place in places]
        return HashedPart(numbers, hashes, regions, checkins_record(hashes, regions))

    def in_body(self, refused: Iterable[RowRefusal]) -> list[RowRefusal]:
        """Return refused rows by their numbers in the body, together with those that were refused before, in order."""
        places = self.places
        later = refused if places is None else ((places[row], reason) for row, reason in refused)
        return sorted([*self.refused, *later])


def keep_rows(
    users: list[bytes], regions: list[int], times_ns: NDArray[np.int64] | None, wrong: dict[int, RowReason]
) -> Batch:
    """Return a batch without the rows that are wrong, by number and reason."""
    if not wrong:
        return Batch(users, regions, times_ns)
    places = [row for row in range(len(users)) if row not in wrong]
    return Batch(
        [users[row] for row in places],
        [regions[row] for row in places],
        None if times_ns is None else times_ns[places],
        places,
        tuple(sorted(wrong.items())),
    )


def row_text(refused: RowRefusal) -> str:
    """Return a sentence about a refused row."""
    row, reason = refused
    return f"row {row}: {ROW_REASONS[reason].text}"


def refuse_malformed(what: str) -> BodyRefused:
    """Return the refusal of bytes that are not what the content type says."""
    return BodyRefused(400, "malformed", f"the body is not {what}.")


# ---------------------------------------------------------------------------------------------------------- times


def parse_time(text: str) -> int | None:
    """Return the nanoseconds of an RFC 3339 time with an offset; None if it is not one, or not from 1970 to 2262."""
    try:
        at_ns = _of_moment(msgspec.convert(text, Zoned))
    except msgspec.ValidationError:
        return None
    return at_ns if 0 <= at_ns <= LAST_NS else None


def nanoseconds(times: Sequence[datetime | int | None]) -> tuple[NDArray[np.int64] | None, list[int]]:
    """Return decoded times (a number: milliseconds) in nanoseconds, None if no row has one, and the wrong rows.

    Those are times that are out of range, and numbers of seconds.
    """
    if times.count(None) == len(times):
        return None, []
    exact = [
        ARRIVAL if time is None else time * MILLISECOND if isinstance(time, int) else _of_moment(time) for time in times
    ]
    # No time that was given can become ARRIVAL: milliseconds and microseconds are multiples of 1,000 ns.
    wrong: list[int] = []
    if max(exact) > LAST_NS or min(exact) < ARRIVAL:
        wrong = [row for row, at_ns in enumerate(exact) if not ARRIVAL <= at_ns <= LAST_NS]
        for row in wrong:
            exact[row] = ARRIVAL
    result = np.array(exact, dtype=np.int64)
    in_1970 = (result >= SECONDS.start * MILLISECOND) & (result < SECONDS.stop * MILLISECOND)
    if in_1970.any():
        seconds = [row for row in np.flatnonzero(in_1970).tolist() if isinstance(times[row], int)]
        result[seconds] = ARRIVAL
        wrong = sorted([*wrong, *seconds])
    return result, wrong


def slots_of(
    batch: Batch,
    arrived_ns: int,
    clock: SlotClock,
    *,
    grace_ns: int,
    future_ns: int,
    present_ns: int | None = None,
    sealed: int = -1,
) -> tuple[dict[int, NDArray[np.intp]], list[RowRefusal]]:
    """Return the rows of each slot, and those that are from the future or of a sealed slot, by their number here.

    A batch without rows is one of the slot in which it arrived.

    grace_ns    of the slot before the one that is open
    present_ns  the time of rows that have none, if it is not their arrival; such rows are never late
    sealed      the last slot that was sealed, whatever the clock says
    """
    if arrived_ns < clock.epoch_ns:
        raise IntakeRefused("unavailable", f"the network's first slot opens at {rfc3339(clock.epoch_ns)}.")
    present_ns = arrived_ns if present_ns is None else present_ns
    if batch.times_ns is None or not len(batch):
        return {clock.slot_of(present_ns): np.arange(len(batch))}, []
    own = batch.times_ns != ARRIVAL
    future = batch.times_ns > arrived_ns + future_ns
    slots = (np.where(own, batch.times_ns, present_ns) - clock.epoch_ns) // clock.length_ns
    # A slot is sealed once its end and the grace have passed: the slot open one grace ago is the first that is not.
    first = max(clock.slot_of(arrived_ns - grace_ns), sealed + 1, 0)
    late = own & (slots < first)
    refused: list[RowRefusal] = [
        (row, "future" if future[row] else "late") for row in np.flatnonzero(future | late).tolist()
    ]
    accepted = ~(future | late)
    return {int(slot): np.flatnonzero(accepted & (slots == slot)) for slot in np.unique(slots[accepted])}, refused


def _of_moment(moment: datetime) -> int:
    since = moment - _EPOCH
    return (since.days * 86_400 + since.seconds) * SECOND + since.microseconds * 1_000


# ---------------------------------------------------------------------------------------------------------- users


def user_bytes(users: Sequence[str | int]) -> list[bytes]:
    """Return each user as bytes; empty where nothing remains of a text, which is then not a user."""
    if not users:
        return []
    try:
        joined = "\n".join(users)  # type: ignore[arg-type]
    except TypeError:
        return user_bytes([str(user) for user in users])
    # Ids are hardly ever anything but ASCII without a space: all of them at once cost less than a look at each.
    if joined.isascii() and _spaces(raw := joined.encode()) == len(users) - 1:
        return raw.split(b"\n")
    texts = [str(user).strip() for user in users]
    return [(text if text.isascii() else normalize("NFC", text).strip()).encode() for text in texts]


def are_plain(texts: list[bytes]) -> bool:
    """Whether `user_bytes` would change none of these texts in UTF-8."""
    joined = b"".join(texts)
    return joined.isascii() and not _spaces(joined)


def _spaces(raw: bytes) -> int:
    """Count the bytes of an ASCII text that could be spaces: all spaces are among the first 33 characters."""
    return int(np.count_nonzero(np.frombuffer(raw, dtype=np.uint8) <= ord(" ")))


def hash_users(users: Iterable[bytes], key: bytes) -> list[bytes]:
    """Return a hash of 16 bytes for each user; `key` has 16 to 64 bytes."""
    if not 16 <= len(key) <= blake2b.MAX_KEY_SIZE:
        raise ValueError("a key for hashing users has 16 to 64 bytes.")
    # Copying the state that has the key is a quarter faster than a new keyed state for each user.
    keyed = blake2b(key=key, digest_size=HASH_BYTES).copy
    hashes: list[bytes] = []
    append = hashes.append
    for user in users:
        state = keyed()
        state.update(user)
        append(state.digest())
    return hashes
