"""What a body of check-ins becomes: the rows that can be taken, and the others by their number and a reason.

One person's row never decides about another's: a row that cannot be taken is named and left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "ALLOWED",
    "ARRIVAL",
    "MOST_ROWS",
    "NAMED_ROWS",
    "Batch",
    "BodyRefused",
    "RefusedRow",
    "keep_rows",
    "refuse_malformed",
    "row_text",
]

ARRIVAL = -1
"""In `Batch.times_ns`: this check-in has no time of its own, the time at which it arrived counts."""
MOST_ROWS = 1_000_000
"""Of one body, however small the format makes them."""
NAMED_ROWS = 1_000
"""In an answer: more would make it as long as the body."""

RefusedRow = tuple[int, str]
"""The number of a row of the body, counted from 0, and the reason for which it is not taken."""

ALLOWED = {
    "user": "a text of 1 to 256 characters, not all of them spaces, or a whole number",
    "region": "the name of a region of network.toml",
    "time": "an RFC 3339 time with an offset, or a whole number of milliseconds, not seconds, since 1970; from 1970 to "
    "2262",
}
_TEXTS = {
    "malformed": "not a check-in; allowed: an object of user, region and, if wanted, time, and no other field.",
    "unknown-region": f"region: unknown; allowed: {ALLOWED['region']}.",
    "late": "time: of a slot that is sealed.",
    "future": "time: later than this server's clock allows.",
    **{name: f"{name}: missing or not allowed; allowed: {allowed}." for name, allowed in ALLOWED.items()},
}


class BodyRefused(Exception):
    """A body of which nothing is taken. `reason` is a word, `text` a sentence: neither repeats anything of the body."""

    def __init__(self, status: int, reason: str, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.reason = reason
        self.text = text


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
    refused: tuple[RefusedRow, ...] = ()

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

    def in_body(self, refused: Iterable[RefusedRow]) -> list[RefusedRow]:
        """Refused rows of this batch by their numbers in the body, and those that were refused before, in order."""
        places = self.places
        later = refused if places is None else ((places[row], reason) for row, reason in refused)
        return sorted([*self.refused, *later])


def keep_rows(
    users: list[bytes], regions: list[int], times_ns: NDArray[np.int64] | None, wrong: dict[int, str]
) -> Batch:
    """A batch without the rows that are wrong, by number and reason."""
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


def row_text(refused: RefusedRow) -> str:
    """A sentence about a row that is not taken."""
    row, reason = refused
    return f"row {row}: {_TEXTS[reason]}"


def refuse_malformed(what: str) -> BodyRefused:
    """Bytes that are not what the content type says."""
    return BodyRefused(400, "malformed", f"the body is not {what}.")
