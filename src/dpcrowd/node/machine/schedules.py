"""When the servers of a network sample, as their records show: whom a node waits for, and whose record is overdue.

A slot is released when the records of all origins that sample in it have arrived. The schedule is public; a server that
has missed a sample has moved its schedule, which shows in the slot of its next record (`Schedules`, by numbers of
servers). A server that has missed its last sample is not waited for until a record of it arrives (`AwaitedRecords`, by
their names, which are the same in all revisions).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from dpcrowd.arrays import Bools, Ints
from dpcrowd.node.machine.held_records import HeldRecords, Key
from dpcrowd.node.machine.revision import KnownRevisions, NetworkView, RecordTerms
from dpcrowd.sampling.schedule import samples_due

__all__ = ["AwaitedRecords", "Schedules"]


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


class AwaitedRecords:
    """Whose records a node waits for in a slot, and whose are overdue, by the names of their origins.

    revisions  by which origins are numbered, and when they sample
    held       records that have arrived
    schedules  who samples when, and who is missing; for those who show it, and nobody else changes it
    """

    def __init__(self, revisions: KnownRevisions, held: HeldRecords) -> None:
        self._revisions, self._held = revisions, held
        self._released: tuple[int, int] | None = None  # the first and the last slot that this run has released
        self.schedules = self._learn()

    def hear(self, origin: str, slot: int) -> None:
        """Learn from a record of an origin, or a proof, when it samples; of a server that has left nothing follows."""
        number = self._revisions.current.number(origin)
        if number is not None:
            self.schedules.hear(number, slot)

    def awaited(self, slot: int) -> set[str]:
        """Return the origins whose records of a slot are due and have not arrived."""
        names = self._revisions.current.names
        return self.lacking(slot, {names[number] for number in self.schedules.expected(slot)})

    def lacking(self, slot: int, origins: Iterable[str]) -> set[str]:
        """Return those of the origins whose records of a slot have not arrived."""
        held = self._held
        return {name for name in origins if Key(slot, name) not in held.records and Key(slot, name) not in held.proofs}

    def end_slot(self, slot: int) -> None:
        """Note who is missing when a slot is released."""
        self._released = slot if self._released is None else self._released[0], slot
        for name in self.awaited(slot):
            number = self._revisions.current.number(name)
            assert number is not None
            self.schedules.miss(number)

    def overdue(self, origin: str) -> int | None:
        """Return the slot in which an origin should have sampled next and of which there is no record; None: none.

        Why this server itself has no sample, it knows better (`NotSampled`).
        """
        view = self._revisions.current
        number = view.number(origin)
        if number is None or number == view.me or self._released is None:
            return None
        return self.schedules.overdue(number, *self._released)

    def is_final(self, slot: int) -> bool:
        """Whether a record of a slot would come too late."""
        return self._released is not None and slot <= self._released[1] - self._revisions.terms.lag

    def learn_again(self) -> None:
        """Forget who is missing, and learn from the records that are held."""
        self.schedules = self._learn()

    def take_over(self, before: NetworkView) -> None:
        """Remember across a revision when each origin has sampled last, which may be longer ago than the lag.

        Without that, every server that samples less than once in `lag` slots would be missing at once, since the first
        slot of this run. If the revision changes how often servers sample, nothing is overdue before it.

        before  the revision that was in use until now
        """
        schedules = self.schedules
        if not schedules.has_schedule_of(self._revisions.terms):
            self.schedules = self._learn(self._revisions.current.first_slot)
            return
        slots = {name: schedules.last_slot(number) for number, name in enumerate(before.names)}
        lasts = [Key(slot, name) for name, slot in slots.items() if slot is not None]
        self.schedules = self._learn(schedules.begins, lasts)

    def clear(self) -> None:
        """Begin as if no slot had been released."""
        self._released = None
        self.learn_again()

    def _learn(self, begins: int = 0, lasts: Iterable[Key] = ()) -> Schedules:
        """Return when others sample, from the records that are held and from the last ones of each origin."""
        view = self._revisions.current
        schedules = Schedules(self._revisions.terms, view.me, begins)
        for key in sorted({*self._held.records, *lasts}):
            number = view.number(key.origin)
            if number is not None:
                schedules.hear(number, key.slot)
        return schedules
