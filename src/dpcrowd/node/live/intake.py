"""Taking check-ins: hashed at once, counted, and on disk before they are acknowledged.

Each row is taken or refused by itself, by its own content and the clock: no answer depends on what others have sent.
Nobody is turned away for lack of memory; a slot with more users than memory holds is counted from the journal when it
is sealed. If load has to be shed, a public rate decides by the keyed hash of each user (`keep` of network.toml).

A check-in that was counted and then could not be written is not acknowledged; whoever sends it again is still counted
once. A check-in whose slot is sealed while it is being written is acknowledged if it is among the sealed counts:
whether it is on disk is then moot, since a slot that was sealed is never restored from the journal. If it is not among
them, it is late. What happens to one slot never touches a request of another.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from dpcrowd.node.collect import Collector, HashedRows, NotTaken, Rows, count_distinct
from dpcrowd.node.ingest.batch import Batch, RefusedRow
from dpcrowd.node.ingest.blobs import checkins_blob, counts_blob, replay
from dpcrowd.node.ingest.hashing import hash_users
from dpcrowd.node.ingest.times import rfc3339, slots_of
from dpcrowd.node.live.writer import Writer
from dpcrowd.node.slots import SlotClock
from dpcrowd.node.storage import StorageFailed
from dpcrowd.node.storage.journal import Journal

__all__ = ["Intake"]

_ATTEMPTS = 3
_SEALED_KNOWN = 100
_LARGEST_HASH = 1 << 64

SlotRows = dict[int, NDArray[np.intp]]


class Intake:
    """Open slots of one node; used from one event loop.

    regions    the number of each region by its name; a check-in for a region that its slot does not have is not counted
    grace_of   nanoseconds for which a slot takes late check-ins after its close; less than a slot
    keep_of    the part of the users of a slot that is counted, chosen by their keyed hashes; 1: all
    future_ns  how far ahead of this clock a check-in's time may be
    capacity   distinct users of a slot that are counted in memory
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
        keep_of: Callable[[int], float] = lambda _: 1.0,
    ) -> None:
        self._journal, self._clock, self._now = journal, clock, now
        self.regions: dict[str, int] = {}
        self._names: list[str] = []
        self._grace_of, self._keep_of, self._future_ns = grace_of, keep_of, future_ns
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

    def restore(self, now_ns: int) -> None:
        """After a start: count again what was acknowledged for slots that are not sealed; forget the rest.

        By the names of regions, whatever their order is now: `learn` all that may be needed before.
        """
        for opens_ns in self._journal.pending():
            slot = self._clock.slot_of(opens_ns)
            over = max(self.first_open(now_ns), self._collector.sealed + 1)
            if self._clock.opens(slot) != opens_ns or slot < over:
                self._journal.forget(opens_ns)
                continue
            for content in replay(self._journal.batches(opens_ns), self.regions):
                if isinstance(content, dict):
                    self._collector.set_counts(slot, content)
                else:
                    users, numbers = content
                    self._collector.add(slot, [user.tobytes() for user in users], numbers.tolist())

    def begin_after(self, slot: int) -> None:
        """Slots up to this one were sealed in an earlier life, whatever the clock says now: none is opened again."""
        self._collector.seal(slot)

    @property
    def sealed(self) -> int:
        """The last slot that takes nothing any more, with all before it; -1: none."""
        return self._collector.sealed

    def begin_again(self, slot: int) -> None:
        """Slots after this one are opened again, by a clock that was ahead; what was taken for them is void."""
        self._collector = Collector(len(self._names), self._collector.capacity)
        self._collector.seal(slot)
        self._keys.clear()
        self._counted.clear()
        self._writer.forget_all()

    def fed(self, slot: int) -> bool:
        """Whether any request was taken for a slot, an empty list too; until the slot after it is sealed."""
        return self._collector.fed(slot)

    async def take_checkins(self, batch: Batch, arrived_ns: int) -> list[RefusedRow]:
        """Take what can be taken; gives the rows of the body that were refused. An empty batch feeds the present slot.

        `NotTaken`: nothing can be taken at present, whatever the rows.
        """
        slots, keys, refused = await self._slots_and_keys(batch, arrived_ns)
        if not slots:
            return batch.in_body(refused)
        parts: dict[int, Rows] = {}
        for slot, rows in slots.items():
            users, regions = batch.part(rows)
            parts[slot] = self._kept(slot, hash_users(users, keys[slot]), regions)
        self._writer.check()
        for slot, part in parts.items():
            self._collector.add(slot, *part)
        blobs = [(slot, checkins_blob(*part)) for slot, part in parts.items()]
        lost = self._uncounted(parts, await self._writer.write(blobs))
        refused += [(row, "late") for slot in lost for row in slots[slot].tolist()]
        self.taken += len(batch) - len(refused)
        return batch.in_body(refused)

    def _kept(self, slot: int, users: Sequence[bytes], regions: Sequence[int]) -> Rows:
        keep = self._keep_of(slot)
        if keep >= 1.0:
            return users, regions
        below = int(keep * _LARGEST_HASH)
        chosen = [row for row, user in enumerate(users) if int.from_bytes(user[:8], "little") < below]
        return [users[row] for row in chosen], [regions[row] for row in chosen]

    async def take_counts(self, slot: int, counts: Mapping[int, int], arrived_ns: int) -> None:
        """Counts by the numbers of regions; on disk when this returns."""
        if slot > self._clock.slot_of(arrived_ns + self._future_ns):
            raise NotTaken("future", f"slot {slot} is not open yet.")
        if slot < self.first_open(arrived_ns) or await self._key(slot) is None:
            raise NotTaken("late", f"slot {slot} is sealed.")
        self._writer.check()
        self._collector.set_counts(slot, counts)
        blob = counts_blob({self._names[region]: count for region, count in counts.items()})
        if self._uncounted([slot], await self._writer.write([(slot, blob)])):
            raise NotTaken("late", f"slot {slot} was passed over when the clock was set.")

    def seal(self, slot: int, regions: Sequence[str]) -> NDArray[np.int64] | None:
        """The counts of a slot by the regions of its revision, once; they go to the machine and nowhere else.

        None: there are more users than memory holds; `count_journal` counts them.
        """
        counts = self._collector.seal(slot)
        self._keys = {later: key for later, key in self._keys.items() if later > slot}
        self._writer.forget(slot)
        self._counted.append(slot)
        return None if counts is None else counts[self._places(regions)]

    async def count_journal(self, slot: int, regions: Sequence[str]) -> NDArray[np.int64]:
        """The counts of a sealed slot from the disk, before it is forgotten there."""
        await self._writer.flush()
        opens_ns, numbers = self._clock.opens(slot), dict(self.regions)

        def read() -> Iterator[HashedRows]:
            for content in replay(self._journal.batches(opens_ns), numbers):
                if not isinstance(content, dict):
                    yield content

        counts = await asyncio.to_thread(count_distinct, read, len(numbers), self._collector.capacity)
        return counts[self._places(regions)]

    def _places(self, regions: Sequence[str]) -> list[int]:
        return [self.regions[name] for name in regions]

    async def close(self) -> None:
        """Wait for what is being written."""
        await self._writer.close()

    def first_open(self, at_ns: int) -> int:
        """The first slot whose grace is not over. A grace is shorter than a slot: at most one slot is in it."""
        return self._clock.slot_of(at_ns - self._grace_of(self._clock.slot_of(at_ns) - 1))

    async def _slots_and_keys(
        self, batch: Batch, arrived_ns: int
    ) -> tuple[SlotRows, dict[int, bytes], list[RefusedRow]]:
        """The rows of each slot, the keys of these slots, which are all open at this moment, and the other rows.

        On a busy machine a slot may be sealed before a request that arrived in it is looked at. Rows without a time
        then belong to the slot that is open now; they are never late.
        """
        present_ns = arrived_ns
        for _ in range(_ATTEMPTS):
            slots, refused = slots_of(
                batch,
                arrived_ns,
                self._clock,
                grace_ns=self._grace_of(self._clock.slot_of(arrived_ns) - 1),
                future_ns=self._future_ns,
                present_ns=present_ns,
                sealed=self._collector.sealed,
            )
            keys = {slot: key for slot in slots if (key := await self._key(slot)) is not None}
            if all(slot in keys and slot > self._collector.sealed for slot in slots):
                return slots, keys, refused
            present_ns = self._now()
        opens = rfc3339(self._clock.opens(self.sealed + 1))
        raise NotTaken("unavailable", f"the clock went back: the next slot for check-ins opens at {opens}.")

    async def _key(self, slot: int) -> bytes | None:
        """With which the users of a slot are hashed; None if the slot is over."""
        if slot <= self._collector.sealed:
            return None
        if slot not in self._keys:
            try:
                key = await asyncio.to_thread(self._journal.slot_key, self._clock.opens(slot))
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
