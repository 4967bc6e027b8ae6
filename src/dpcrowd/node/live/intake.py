"""Taking check-ins: hashed at once, counted, and on disk before they are acknowledged.

Each row is taken or refused by itself, by its own content and the clock: no answer depends on what others have sent.
Nobody is turned away for lack of memory; a slot with more users than memory holds is counted from the journal when it
is sealed. If load has to be shed, a public rate decides by the keyed hash of each user (`keep` of network.toml).

A check-in that was counted and then could not be written is not acknowledged; whoever sends it again is still counted
once. A check-in whose slot is sealed while it is being written is acknowledged if it is among the sealed counts:
whether it is on disk is then moot, since a slot that was sealed is never restored from the journal. If it is not among
them, it is late. What happens to one slot never touches a request of another.

Requests that arrive while the disk is busy share the next commit (`Writer`): the flush is what costs, not the bytes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dpcrowd.node.collect import (
    Collector,
    HashedRows,
    IntakeRefused,
    count_distinct,
    counts_record,
    names_record,
    replay,
)
from dpcrowd.node.ingest.batch import Batch, HashedPart, RowRefusal, slots_of
from dpcrowd.node.slots import SlotClock, rfc3339
from dpcrowd.node.storage import StorageError
from dpcrowd.node.storage.journal import Journal

__all__ = ["Intake", "Writer"]

_ATTEMPTS = 3
_SEALED_KNOWN = 100

_STEP = 10_000  # rows that are hashed and counted in one go: some milliseconds
_MOST_WAITING = 10_000
_SECONDS_TO_CLOSE = 10.0
_hashers = ThreadPoolExecutor(1, thread_name_prefix="dpcrowd-hash")

SlotRows = dict[int, NDArray[np.intp]]
SlotRecord = tuple[int, bytes]
"""A slot and a record of the journal."""


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
        self.unkept: set[int] = set()  # slots of which something could not be written
        self.taken = 0  # a raw count: shown only to an operator who has asked for it

    def learn(self, regions: Sequence[str]) -> None:
        """Add the regions of a revision. Their numbers here stay the same whatever revision a slot belongs to."""
        for name in regions:
            if name not in self.regions:
                self.regions[name] = len(self._names)
                self._names.append(name)
        self._collector.regions = len(self._names)

    def restore(self, now_ns: int) -> None:
        """Count again, after a start, what was acknowledged for slots that are not sealed; forget the rest.

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
        """Never open slots up to this one again: they were sealed in an earlier run, whatever the clock says now."""
        self._collector.seal(slot)

    @property
    def sealed(self) -> int:
        """The last slot that takes nothing any more, with all before it; -1: none."""
        return self._collector.sealed

    def begin_again(self, slot: int) -> None:
        """Open slots after this one again, by a clock that was ahead; what was accepted for them is void."""
        self._collector = Collector(len(self._names), self._collector.capacity)
        self._collector.seal(slot)
        self._keys.clear()
        self._counted.clear()
        self.unkept.clear()
        self._writer.forget_all()

    def fed(self, slot: int) -> bool:
        """Whether any request was taken for a slot, an empty list too; until the slot after it is sealed."""
        return self._collector.fed(slot)

    async def take_checkins(self, batch: Batch, arrived_ns: int) -> list[RowRefusal]:
        """Accept what can be accepted; return the refused rows of the body. An empty batch feeds the open slot.

        `IntakeRefused`: nothing can be taken at present, whatever the rows.
        """
        collector = self._collector
        slots, parts, refused = await self._slots_and_parts(batch, arrived_ns)
        if not slots:
            return batch.in_body(refused)
        self._writer.check()
        for slot, part in parts.items():
            refused += [(row, "late") for row in await self._count(collector, slot, part)]
        if collector is not self._collector:
            raise IntakeRefused("unavailable", "the clock was accepted meanwhile: send this again.")
        try:
            forgotten = await self._writer.write([(slot, part.record) for slot, part in parts.items()])
        except IntakeRefused:
            self.unkept |= parts.keys()
            raise
        lost = self._uncounted(parts, forgotten)
        refused = sorted({*refused, *((row, "late") for slot in lost for row in slots[slot].tolist())})
        self.taken += len(batch) - len(refused)
        return batch.in_body(refused)

    async def _count(self, collector: Collector, slot: int, part: HashedPart) -> list[int]:
        """Count the rows of a slot, in steps, so that many rows do not keep other requests waiting.

        Gives the rows that are not among the slot's counts, because it was sealed in between.
        """
        for start in range(0, max(len(part.users), 1), _STEP):
            if slot <= collector.sealed:
                return part.rows[start:]
            end = start + _STEP
            collector.add(slot, part.users[start:end], part.regions[start:end])
            if end < len(part.users):
                await asyncio.sleep(0)
        return []

    async def take_counts(self, slot: int, counts: Mapping[int, int], arrived_ns: int) -> None:
        """Accept counts by the numbers of regions; they are on disk when this returns."""
        if slot > self._clock.slot_of(arrived_ns + self._future_ns):
            raise IntakeRefused("future", f"slot {slot} is not open yet.")
        if slot < self.first_open(arrived_ns) or await self._key(slot) is None:
            raise IntakeRefused("late", f"slot {slot} is sealed.")
        self._writer.check()
        self._collector.set_counts(slot, counts)
        record = counts_record({self._names[region]: count for region, count in counts.items()})
        if self._uncounted([slot], await self._writer.write([(slot, record)])):
            raise IntakeRefused("late", f"slot {slot} was passed over when the clock was set.")

    def seal(self, slot: int, regions: Sequence[str]) -> NDArray[np.int64] | None:
        """Return the counts of a slot by the regions of its revision, once; they go to the machine and nowhere else.

        None: there are more users than memory holds; `count_journal` counts them.
        """
        counts = self._collector.seal(slot)
        self._keys = {later: key for later, key in self._keys.items() if later > slot}
        self._writer.forget(slot)
        self._counted.append(slot)
        self.unkept = {later for later in self.unkept if later >= slot}
        return None if counts is None else counts[self._places(regions)]

    async def count_journal(self, slot: int, regions: Sequence[str]) -> NDArray[np.int64]:
        """Count a sealed slot from the disk, before it is forgotten there."""
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
        """Return the first slot whose grace is not over. A grace is shorter than a slot: at most one slot is in it."""
        return self._clock.slot_of(at_ns - self._grace_of(self._clock.slot_of(at_ns) - 1))

    async def _slots_and_parts(
        self, batch: Batch, arrived_ns: int
    ) -> tuple[SlotRows, dict[int, HashedPart], list[RowRefusal]]:
        """Return the rows of each slot, hashed with the keys of these slots, all open now, and the refused rows.

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
            if len(keys) == len(slots):
                hashing = partial(self._hash, batch, slots, keys)
                many = len(batch) > _STEP
                parts = await asyncio.get_running_loop().run_in_executor(_hashers, hashing) if many else hashing()
                if all(slot > self._collector.sealed for slot in slots):
                    return slots, parts, refused
            present_ns = self._now()
        opens = rfc3339(self._clock.opens(self.sealed + 1))
        raise IntakeRefused("unavailable", f"the clock went back: the next slot for check-ins opens at {opens}.")

    def _hash(self, batch: Batch, slots: SlotRows, keys: Mapping[int, bytes]) -> dict[int, HashedPart]:
        """Hash the users of each slot with its key; in a thread, if there are many."""
        return {slot: batch.hashed(rows, keys[slot], self._keep_of(slot)) for slot, rows in slots.items()}

    async def _key(self, slot: int) -> bytes | None:
        """Return the key with which the users of a slot are hashed; None if the slot is over."""
        if slot <= self._collector.sealed:
            return None
        if slot not in self._keys:
            try:
                key = await asyncio.to_thread(self._journal.slot_key, self._clock.opens(slot))
            except StorageError as failure:
                raise IntakeRefused("unavailable", f"check-ins cannot be kept now: {failure}") from None
            if slot <= self._collector.sealed:
                return None
            self._keys[slot] = key
        return self._keys[slot]

    def _uncounted(self, slots: Iterable[int], forgotten: set[int]) -> set[int]:
        """Return the late ones of slots: neither on disk while open nor among the counts of a sealed slot."""
        over = {slot for slot in slots if slot <= self._collector.sealed} | forgotten
        return over - set(self._counted)


class Writer:
    """Writes to the journal; used from one event loop. A slot that was forgotten meanwhile is passed over and told.

    opens  when a slot opens
    names  of the regions by their number; grows when a revision is learnt
    """

    def __init__(self, journal: Journal, opens: Callable[[int], int], names: Sequence[str]) -> None:
        self._journal, self._opens, self._names = journal, opens, names
        self._named: dict[int, int] = {}  # how many names the journal has of a slot
        self._waiting: list[tuple[Sequence[SlotRecord], asyncio.Future[set[int]]]] = []
        self._task: asyncio.Task[None] | None = None

    def check(self) -> None:
        """Refuse before anything is counted if the disk is too far behind: a limit on requests, not on people."""
        if len(self._waiting) >= _MOST_WAITING:
            raise IntakeRefused("unavailable", "the disk is behind; try again in a moment.")

    async def flush(self) -> None:
        """Wait until everything that was to be written by now is on disk, or could not be written."""
        with suppress(IntakeRefused):
            await self.write([])

    def write(self, parts: Sequence[SlotRecord]) -> asyncio.Future[set[int]]:
        """Write records in one commit; the result, once they are on disk, is the slots that were forgotten before."""
        result: asyncio.Future[set[int]] = asyncio.get_running_loop().create_future()
        self._waiting.append((parts, result))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._write_all())
        return result

    def forget(self, slot: int) -> None:
        """Forget what is known of a sealed slot, and of all before it."""
        self._named = {later: number for later, number in self._named.items() if later > slot}

    def forget_all(self) -> None:
        """Forget what is known of all slots: they are opened anew."""
        self._named.clear()

    async def close(self) -> None:
        """Wait for what is being written, but not for ever."""
        if self._task is not None:
            await asyncio.wait([self._task], timeout=_SECONDS_TO_CLOSE)

    async def _write_all(self) -> None:
        while self._waiting:
            group, self._waiting = self._waiting, []
            parts = [part for request, _ in group for part in request]
            try:
                forgotten = await self._write_group(parts)
            except Exception as error:
                for _, answer in group:
                    if not answer.done():
                        answer.set_exception(error)
            else:
                for request, answer in group:
                    if not answer.done():
                        answer.set_result({slot for slot, _ in request if slot in forgotten})

    async def _write_group(self, parts: Sequence[SlotRecord]) -> set[int]:
        size = len(self._names)
        unnamed = {slot for slot, _ in parts if self._named.get(slot, 0) < size}
        named = [(slot, names_record(self._names[:size])) for slot in sorted(unnamed)]
        batches = [(self._opens(slot), record) for slot, record in (*named, *parts)]
        try:
            forgotten_ns = await asyncio.to_thread(self._journal.append_all, batches)
        except StorageError as failure:
            raise IntakeRefused("unavailable", f"check-ins cannot be kept now: {failure}") from None
        forgotten = {slot for slot, _ in parts if self._opens(slot) in forgotten_ns}
        self._named |= dict.fromkeys(unnamed - forgotten, size)
        return forgotten
