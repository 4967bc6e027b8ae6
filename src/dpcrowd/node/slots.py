"""Slots and times: slot t is open from epoch + t L to epoch + (t + 1) L, in whole nanoseconds UTC."""

from __future__ import annotations

from dataclasses import dataclass

from dpcrowd.errors import BadInput
from dpcrowd.privacy.units import utc_text

__all__ = ["SlotClock", "rfc3339"]

SECOND = 1_000_000_000
_SHORTEST, _LONGEST = SECOND, 86_400 * SECOND


@dataclass(frozen=True)
class SlotClock:
    """When slots open and close. Times before the epoch are in no slot."""

    epoch_ns: int
    length_ns: int

    def __post_init__(self) -> None:
        if not _SHORTEST <= self.length_ns <= _LONGEST:
            raise BadInput(f"a slot of {self.length_ns / SECOND:g} s; allowed: 1 s to 1 day.")

    def slot_of(self, at_ns: int) -> int:
        """Return the slot that is open at a time; negative before the epoch."""
        return (at_ns - self.epoch_ns) // self.length_ns

    def opens(self, slot: int) -> int:
        return self.epoch_ns + slot * self.length_ns

    def closes(self, slot: int) -> int:
        return self.opens(slot + 1)


def rfc3339(at_ns: int) -> str:
    """Return a time in UTC as text, with as much of a fraction as it has; for the years 1 to 9999."""
    return utc_text(at_ns, exact=True)
