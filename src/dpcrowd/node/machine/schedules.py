"""When the servers of a network sample, as their records show: whom a node waits for, and whose record is overdue."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dpcrowd.arrays import Bools, Ints
from dpcrowd.node.machine.revision import RecordTerms
from dpcrowd.sampling.schedule import samples_due

__all__ = ["Schedules"]


@dataclass
class Schedules:
    """When other servers sample, as far as their records show, by their numbers.

    A server that could not sample when it was due samples in the next slot that allows it, and all its later samples
    move with it. So the schedule of an origin is the public one, moved by the fewest slots with which its records are
    where they are.

    begins  the first slot of this schedule: earlier records follow another one, and say nothing about this one
    """

    terms: RecordTerms
    me: int
    begins: int = 0
    missing: set[int] = field(default_factory=set)
    _shift: Ints = field(init=False)
    _last: Ints = field(init=False)
    _offsets: Ints = field(init=False)

    def __post_init__(self) -> None:
        self._offsets = np.array(self.terms.offsets, dtype=np.int64)
        self._shift, self._last = np.zeros_like(self._offsets), np.full_like(self._offsets, -1)

    def hear(self, number: int, slot: int) -> None:
        """Learn from a record of an origin."""
        if slot < max(self._last[number], self.begins):
            return
        self._last[number] = slot
        self.missing.discard(number)
        if self.terms.moves:
            delays = np.arange(self._interval + 1)
            self._shift[number] += int(np.argmax(self._due_slots(number, slot - delays)))

    def miss(self, number: int) -> None:
        """Note that the record of an origin that was due has not arrived."""
        self.missing.add(number)

    def overdue(self, number: int, since: int, now: int) -> int | None:
        """Return the first slot up to `now` in which an origin should have sampled after its last record; None: none.

        since  the first slot from which on records of all slots were taken
        """
        terms, last, interval = self.terms, int(self._last[number]), self._interval
        first = max(since, self.begins) if last < 0 else last + 1
        slots = range(first, min(now + 1, first + interval, now + 1 if terms.ends is None else terms.ends))
        if last < 0 and terms.moves:  # how far its schedule has moved before is not known: any slot of an interval
            return slots[-1] if len(slots) == interval else None
        due = np.flatnonzero(self._due_slots(number, np.arange(slots.start, max(slots.stop, slots.start))))
        return slots[int(due[0])] if len(due) else None

    def last_slot(self, number: int) -> int | None:
        """Return the slot of the last record of an origin, however long ago; None: there was none."""
        return int(self._last[number]) if self._last[number] >= 0 else None

    def has_schedule_of(self, terms: RecordTerms) -> bool:
        """Whether servers sample as often, and until the same slot, under other terms as under these."""
        mine = self.terms
        return (terms.samples, terms.length, terms.moves, terms.ends) == (
            mine.samples, mine.length, mine.moves, mine.ends,
        )  # fmt: skip

    def expected(self, slot: int) -> list[int]:
        """Return who is waited for in a slot."""
        due = np.flatnonzero(self._due(slot)).tolist()
        return [number for number in due if number != self.me and number not in self.missing]

    @property
    def _interval(self) -> int:
        """The most slots from one sample to the next."""
        return -(-self.terms.length // self.terms.samples)

    def _due_slots(self, number: int, slots: Ints) -> Bools:
        """Return in which of some slots a server samples."""
        return samples_due(slots - self._shift[number], self.terms.samples, self.terms.length, self._offsets[number])

    def _due(self, slot: int) -> Bools:
        """Return who samples in a slot, (servers,)."""
        return samples_due(slot - self._shift, self.terms.samples, self.terms.length, self._offsets)
