"""Taking check-ins: hashed at once, counted, and on disk before they are acknowledged.

A check-in that was counted and then could not be written is not acknowledged; whoever sends it again is still counted
once. A check-in whose slot is sealed while it is being written is acknowledged if it is among the sealed counts:
whether it is on disk is then moot, since a slot that was sealed is never restored from the journal. If it is not among
them, it is late. What happens to one slot never touches a request of another.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from dpcrowd.node.collect import Collector, NotTaken
from dpcrowd.node.ingest.batch import ARRIVAL, Batch
from dpcrowd.node.ingest.blobs import checkins_blob, counts_blob, replay
from dpcrowd.node.ingest.hashing import hash_users
from dpcrowd.node.ingest.times import RowsNotTaken, refuse_rows, slots_of
from dpcrowd.node.live.writer import Writer
from dpcrowd.node.slots import SlotClock
from dpcrowd.node.storage import StorageFailed
from dpcrowd.node.storage.journal import Journal, SlotForgotten

__all__ = ["Intake"]

_ATTEMPTS = 3
_SEALED_KNOWN = 100
_PASSED_OVER = "a slot of the body was passed over when the clock was set."

SlotRows = dict[int, NDArray[np.intp]]


class Intake:
    """Open slots of one node; used from one event loop.

    regions    the number of each region by its name; a check-in for a region that its slot does not have is not counted
    grace_of   nanoseconds for which a slot takes late check-ins after its close; less than a slot
    future_ns  how far ahead of this clock a check-in's time may be
    now        nanoseconds since 1970, for check-ins without a time whose slot was sealed while they waited
    """

    def __init__(
        self,
        journal: Journal,
        clock: SlotClock,
        *,
        grace_of: Callable[[int], int],
        future_ns: int,
        capacity: int,
        now: Callable[[], int],
    ) -> None:
        self._journal, self._clock, self._now = journal, clock, now
        self.regions: dict[str, int] = {}
        self._names: list[str] = []
        self._grace_of, self._future_ns = grace_of, future_ns
        self._collector = Collector(0, capacity)
        self._writer = Writer(journal, clock.opens, self._names)
        self._keys: dict[int, bytes] = {}
        self._counted: deque[int] = deque(maxlen=_SEALED_KNOWN)
        self.taken = 0  # a raw count: shown only to an operator who has asked for it

    def learn(self, regions: Sequence[str]) -> None:
        """Regions of a revision. Their numbers here stay the same whatever revision a slot belongs to."""
        for name in regions:
            if name not in self.regions:
                self.regions[name] = len(self._names)
                self._names.append(name)
        self._collector.regions = len(self._names)

    def restore(self, now_ns: int) -> set[int]:
        """After a start: count again what was acknowledged for slots that are not sealed; forget the rest.

        By the names of regions, whatever their order is now: `learn` all that may be needed before.
        """
        restored = set()
        for opens_ns in self._journal.pending():
            slot = self._clock.slot_of(opens_ns)
            over = max(self._first_open(now_ns), self._collector.sealed + 1)
            if self._clock.opens(slot) != opens_ns or slot < over:
                self._journal.forget(opens_ns)
                continue
            for found in replay(self._journal.batches(opens_ns), self.regions):
                if isinstance(found, dict):
                    with suppress(NotTaken):  # a slot is never given both, and if it were, the node has to start
                        self._collector.set_counts(slot, found)
                else:
                    self._collector.restore(slot, *found)
            restored.add(slot)
        return restored

    def begin_after(self, slot: int) -> None:
        """Slots up to this one were sealed in an earlier life, whatever the clock says now: none is opened again."""
        self._collector.seal(slot)

    def fed(self, slot: int) -> bool:
        """Whether any request was taken for a slot, an empty list too; until the slot after it is sealed."""
        return self._collector.fed(slot)

    async def take_checkins(self, batch: Batch, arrived_ns: int) -> None:
        """All rows or, with `NotTaken`, none. An empty batch feeds the slot in which it arrived."""
        slots, keys = await self._slots_and_keys(batch, arrived_ns)
        parts = {}
        for slot, rows in slots.items():
            users, regions = batch.part(rows)
            parts[slot] = hash_users(users, keys[slot]), regions
        self._writer.check()
        try:
            self._collector.add_all(parts)
        except NotTaken as no:
            if no.slot is None:
                raise
            raise RowsNotTaken(no.reason, str(no), slots[no.slot].tolist()) from None
        blobs = [(slot, checkins_blob(*rows)) for slot, rows in parts.items()]
        lost = self._uncounted(parts, await self._writer.write(blobs))
        if lost:
            rows = np.sort(np.concatenate([slots[slot] for slot in lost])).tolist()
            raise RowsNotTaken("late", _PASSED_OVER, rows)
        self.taken += len(batch)

    async def take_counts(self, slot: int, counts: Mapping[int, int], arrived_ns: int) -> None:
        """Counts by the numbers of regions; on disk when this returns."""
        if slot > self._clock.slot_of(arrived_ns + self._future_ns):
            raise NotTaken("future", f"slot {slot} is not open yet.")
        if slot < self._first_open(arrived_ns) or await self._key(slot) is None:
            raise NotTaken("late", f"slot {slot} is sealed.")
        self._writer.check()
        self._collector.set_counts(slot, counts)
        blob = counts_blob({self._names[region]: count for region, count in counts.items()})
        if self._uncounted([slot], await self._writer.write([(slot, blob)])):
            raise NotTaken("late", _PASSED_OVER)

    def seal(self, slot: int, regions: Sequence[str]) -> NDArray[np.int64]:
        """The counts of a slot by the regions of its revision, once; they go to the machine and nowhere else."""
        counts = self._collector.seal(slot)[[self.regions[name] for name in regions]]
        self._keys = {later: key for later, key in self._keys.items() if later > slot}
        self._writer.forget(slot)
        self._counted.append(slot)
        return counts

    async def close(self) -> None:
        """Wait for what is being written."""
        await self._writer.close()

    def _first_open(self, at_ns: int) -> int:
        """The first slot whose grace is not over. A grace is shorter than a slot: at most one slot is in it."""
        return self._clock.slot_of(at_ns - self._grace_of(self._clock.slot_of(at_ns) - 1))

    async def _slots_and_keys(self, batch: Batch, arrived_ns: int) -> tuple[SlotRows, dict[int, bytes]]:
        """The rows of each slot, and the keys of slots that are all open at this moment.

        On a busy machine a slot may be sealed before a request that arrived in it is looked at. Rows without a time
        then belong to the slot that is open now; they are never late.
        """
        present_ns = arrived_ns
        for _ in range(_ATTEMPTS):
            slots = slots_of(
                batch,
                arrived_ns,
                self._clock,
                grace_ns=self._grace_of(self._clock.slot_of(arrived_ns) - 1),
                future_ns=self._future_ns,
                present_ns=present_ns,
            )
            if self._all_open(batch, slots):
                keys = {slot: await self._key(slot) for slot in slots}
                found = {slot: key for slot, key in keys.items() if key is not None}
                if len(found) == len(slots) and self._all_open(batch, slots):
                    return slots, found
            present_ns = self._now()
        raise NotTaken("unavailable", "the clock is behind the last slot that was sealed; try again in a moment.")

    def _all_open(self, batch: Batch, slots: SlotRows) -> bool:
        """Whether no slot is sealed; rows whose own time is of a sealed slot are refused by number."""
        sealed = [rows for slot, rows in slots.items() if slot <= self._collector.sealed]
        if sealed and batch.times_ns is not None:
            wrong = np.zeros(len(batch), dtype=np.bool_)
            wrong[np.concatenate(sealed)] = True
            refuse_rows(wrong & (batch.times_ns != ARRIVAL), "late", "of a slot that is sealed")
        return not sealed

    async def _key(self, slot: int) -> bytes | None:
        """With which the users of a slot are hashed; None if the slot is over."""
        if slot <= self._collector.sealed:
            return None
        if slot not in self._keys:
            try:
                key = await asyncio.to_thread(self._journal.slot_key, self._clock.opens(slot))
            except SlotForgotten:
                return None
            except StorageFailed as failure:
                raise NotTaken("unavailable", f"check-ins cannot be kept now: {failure}") from None
            if slot <= self._collector.sealed:
                return None
            self._keys[slot] = key
        return self._keys[slot]

    def _uncounted(self, slots: Iterable[int], forgotten: set[int]) -> set[int]:
        """After a write: whatever is neither on disk for an open slot nor among the counts of a sealed one is late."""
        over = {slot for slot in slots if slot <= self._collector.sealed} | forgotten
        return over - set(self._counted)
