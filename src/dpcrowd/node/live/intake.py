"""Taking check-ins: hashed at once, counted, and on disk before they are acknowledged.

Requests that arrive while the disk is busy share the next commit: the disk's flush is what costs, not the bytes. A
check-in that was counted and then could not be written is not acknowledged; whoever sends it again is still counted
once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from dpcrowd.node.collect import Collector, NotTaken, pack_batch, unpack_batch
from dpcrowd.node.ingest.batch import Batch
from dpcrowd.node.ingest.hashing import hash_users
from dpcrowd.node.ingest.times import slots_of
from dpcrowd.node.slots import SlotClock
from dpcrowd.node.storage import StorageFailed
from dpcrowd.node.storage.journal import Journal

__all__ = ["Intake"]

T = TypeVar("T")

_CHECKINS, _COUNTS = b"u", b"n"
_MOST_WAITING = 10_000


class Intake:
    """Open slots of one node; used from one event loop.

    regions  the number of each region by its name; a check-in for a region that its slot does not have is not counted
    """

    def __init__(self, journal: Journal, clock: SlotClock, *, grace_ns: int, future_ns: int, capacity: int) -> None:
        self._journal, self._clock = journal, clock
        self.regions: dict[str, int] = {}
        self._grace_ns, self._future_ns = grace_ns, future_ns
        self._collector = Collector(0, capacity)
        self._keys: dict[int, bytes] = {}
        self.taken = 0  # a raw count: shown only to an operator who has asked for it
        self._waiting: list[tuple[int, bytes, asyncio.Future[None]]] = []
        self._writer: asyncio.Task[None] | None = None

    def learn(self, regions: Sequence[str]) -> None:
        """Regions of a revision. Their numbers here stay the same whatever revision a slot belongs to."""
        for name in regions:
            self.regions.setdefault(name, len(self.regions))
        self._collector.regions = len(self.regions)

    def restore(self, now_ns: int) -> set[int]:
        """After a start: count again what was acknowledged for slots that are not sealed; forget the rest."""
        restored = set()
        for opens_ns in self._journal.pending():
            slot = self._clock.slot_of(opens_ns)
            if self._clock.opens(slot) != opens_ns or self._clock.closes(slot) + self._grace_ns <= now_ns:
                self._journal.forget(opens_ns)
                continue
            for blob in self._journal.batches(opens_ns):
                self._count_again(slot, blob)
            restored.add(slot)
        return restored

    def _count_again(self, slot: int, blob: bytes) -> None:
        if blob[:1] == _COUNTS:
            self._collector.set_counts(slot, msgspec.msgpack.decode(blob[1:], type=dict[int, int]))
        else:
            self._collector.add(slot, *unpack_batch(blob[1:]))

    async def take_checkins(self, batch: Batch, arrived_ns: int) -> None:
        slots = slots_of(batch, arrived_ns, self._clock, grace_ns=self._grace_ns, future_ns=self._future_ns)
        written = []
        for slot, rows in slots.items():
            key = await self._key(slot)
            users, regions = batch.part(rows)
            hashes = hash_users(users, key)
            self._collector.add(slot, hashes, regions)
            written.append(self._write(slot, _CHECKINS + pack_batch(hashes, regions)))
        await asyncio.gather(*written)
        self.taken += len(batch)

    async def take_counts(self, slot: int, counts: Mapping[int, int], arrived_ns: int) -> None:
        if slot > self._clock.slot_of(arrived_ns + self._future_ns):
            raise NotTaken("future", f"slot {slot} is not open yet.")
        if self._clock.closes(slot) + self._grace_ns <= arrived_ns:
            raise NotTaken("late", f"slot {slot} is sealed.")
        await self._key(slot)
        self._collector.set_counts(slot, counts)
        await self._write(slot, _COUNTS + msgspec.msgpack.encode(dict(counts)))

    def seal(self, slot: int, regions: Sequence[str]) -> NDArray[np.int64]:
        """The counts of a slot by the regions of its revision, once; they go to the machine and nowhere else."""
        self._keys = {later: key for later, key in self._keys.items() if later > slot}
        return self._collector.seal(slot)[[self.regions[name] for name in regions]]

    async def close(self) -> None:
        """Wait for what is being written."""
        if self._writer is not None:
            await asyncio.gather(self._writer, return_exceptions=True)

    async def _key(self, slot: int) -> bytes:
        if slot not in self._keys:
            self._keys[slot] = await self._stored(lambda: self._journal.slot_key(self._clock.opens(slot)))
        return self._keys[slot]

    async def _stored(self, call: Callable[[], T]) -> T:
        try:
            return await asyncio.to_thread(call)
        except StorageFailed as failure:
            raise NotTaken("unavailable", f"check-ins cannot be kept now: {failure}") from None

    def _write(self, slot: int, blob: bytes) -> asyncio.Future[None]:
        if len(self._waiting) >= _MOST_WAITING:
            raise NotTaken("full", "the disk is behind; try again in a moment.")
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((self._clock.opens(slot), blob, done))
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._write_all())
        return done

    async def _write_all(self) -> None:
        while self._waiting:
            group, self._waiting = self._waiting, []
            batches = [(opens_ns, blob) for opens_ns, blob, _ in group]
            try:
                await self._stored(lambda batches=batches: self._journal.append_all(batches))  # type: ignore[misc]
            except Exception as error:
                for _, _, done in group:
                    if not done.done():
                        done.set_exception(error)
            else:
                for _, _, done in group:
                    if not done.done():
                        done.set_result(None)
