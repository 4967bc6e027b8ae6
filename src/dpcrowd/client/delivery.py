"""The outcome of sending check-ins: how many rows the node has taken, which it refused, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from dpcrowd.client.rows import ALLOWED

__all__ = ["Delivery", "RefusedRow", "explanation"]

_MOST_SHOWN = 5
_EXPLANATIONS = {
    "late": "its time is in a slot that is sealed",
    "future": "its time is later than the node's clock allows",
    "unknown-region": "the network has no region of this name",
    "malformed": "not a JSON object with user, region and, optionally, time",
    "field": "a field is missing or not allowed",
    "mixed": "its slot has counts, and cannot have check-ins as well",
    "too-large": "larger than the node takes in one request",
    **{field: f"missing or not allowed; allowed: {allowed}" for field, allowed in ALLOWED.items()},
}


class RefusedRow(NamedTuple):
    """A row that was not taken.

    row     its number in the caller's argument, counted from 0
    reason  a word for programs: late, future, unknown-region, user, region, time or malformed. A node of 0.1.0 may
            also give "field" (one of the three fields) or "mixed".
    """

    row: int
    reason: str


@dataclass(frozen=True, eq=False, repr=False)
class Delivery(int):
    """The outcome of sending check-ins. It is also an integer: the number of rows that were taken.

    accepted       number of rows that are on the node's disk
    refused        rows that were left out, in ascending order; a node names at most the first 1,000 per request
    refused_count  number of rows that were left out, named or not
    """

    accepted: int
    refused: tuple[RefusedRow, ...] = ()
    refused_count: int = 0

    def __new__(cls, accepted: int, refused: tuple[RefusedRow, ...] = (), refused_count: int = 0) -> Delivery:
        return super().__new__(cls, accepted)

    def __repr__(self) -> str:
        more = ", ..." if len(self.refused) > _MOST_SHOWN else "," if len(self.refused) == 1 else ""
        refused = ", ".join(map(repr, self.refused[:_MOST_SHOWN]))
        return f"Delivery(accepted={self.accepted}, refused=({refused}{more}), refused_count={self.refused_count})"

    def __str__(self) -> str:
        return int.__repr__(self)  # a program of 0.1.0 that prints what it sent prints a number

    def in_words(self) -> str:
        """Return the first refused rows and their reasons, as text."""
        parts = [f"row {row} ({reason})" for row, reason in self.refused[:_MOST_SHOWN]]
        more = self.refused_count - len(parts)
        return ", ".join(parts) + (f" and {more} more (see `delivery`)" if more else "")


def explanation(reason: str) -> str:
    """Return a reason with its meaning, if it is known; nothing of the row."""
    return f"{reason}: {_EXPLANATIONS[reason]}" if reason in _EXPLANATIONS else reason
