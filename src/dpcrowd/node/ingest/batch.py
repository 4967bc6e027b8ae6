"""What a body of check-ins becomes, and how it is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["ARRIVAL", "MOST_ROWS", "NAMED_ROWS", "Batch", "BodyRefused", "refuse_field", "refuse_malformed"]

ARRIVAL = -1
"""In `Batch.times_ns`: this check-in has no time of its own, the time at which it arrived counts."""
MOST_ROWS = 1_000_000
"""Of one body, however small the format makes them."""
NAMED_ROWS = 1_000
"""In a refusal: more would make the answer as long as the body."""

ALLOWED = {
    "user": "a text of 1 to 256 characters, or a whole number",
    "region": "the name of a region of network.toml",
    "time": "an RFC 3339 time with an offset, or milliseconds since 1970 as a whole number, from 1970 to 2262",
}


class BodyRefused(Exception):
    """A body that is not taken. `reason` is a word, `text` a sentence: neither repeats anything of the body.

    rows  the first of those that are wrong, so that they can be left out; None: not known which, or it is not the rows
    """

    def __init__(self, status: int, reason: str, text: str, rows: Sequence[int] | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.reason = reason
        self.text = text
        self.rows = None if rows is None else tuple(rows[:NAMED_ROWS])


@dataclass(frozen=True, eq=False)
class Batch:
    """Check-ins in the order of their body; a row is known by its place in it, counted from 0.

    users     as bytes; the text "42" and the number 42 are the same user, or a user could count twice in a slot
    regions   numbers
    times_ns  nanoseconds since 1970, `ARRIVAL` where a row has none; None if no row has one
    """

    users: list[bytes]
    regions: list[int]
    times_ns: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.users)

    def __repr__(self) -> str:
        return "Batch(...)"  # a log line that formats a batch must not show anybody

    def part(self, rows: Sequence[int] | NDArray[np.intp]) -> tuple[list[bytes], list[int]]:
        """Users and regions of some rows, which are in ascending order."""
        if len(rows) == len(self.users):
            return self.users, self.regions
        places = rows.tolist() if isinstance(rows, np.ndarray) else rows
        return [self.users[place] for place in places], [self.regions[place] for place in places]


def refuse_field(rows: Sequence[int], field: str | None, *, unknown: bool = False) -> BodyRefused:
    """Rows that have a wrong field (that of the first is named), or the name of an unknown region.

    No rows: it is not known which. No field: the first is no check-in at all, or has a field too many.
    """
    where = f"row {rows[0]}" if rows else "a row"
    if field is None:
        text = f"{where}: not a check-in; allowed: an object of user, region and, if wanted, time, and no other field."
    else:
        text = f"{where}: {field}: missing or not allowed; allowed: {ALLOWED[field]}."
    return BodyRefused(400, "unknown-region" if unknown else "field", text, rows or None)


def refuse_malformed(what: str) -> BodyRefused:
    """Bytes that are not what the content type says."""
    return BodyRefused(400, "malformed", f"the body is not {what}.")
