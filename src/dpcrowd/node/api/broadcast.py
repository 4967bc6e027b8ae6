"""Pass each release to many readers, with a bounded queue per reader, so that a slow reader costs only that queue.

A reader that falls behind loses the oldest releases, and learns how many.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from dpcrowd.node.release import SlotRelease

__all__ = ["Broadcast", "Lost"]


@dataclass(frozen=True)
class Lost:
    """The number of releases that a slow reader did not get."""

    slots: int


class _Queue:
    """The releases that one reader has not read yet."""

    def __init__(self, size: int) -> None:
        self.items: deque[SlotRelease] = deque()
        self.size = size
        self.lost = 0
        self.closed = False
        self.news = asyncio.Event()

    def put(self, item: SlotRelease) -> None:
        if len(self.items) >= self.size:
            self.items.popleft()
            self.lost += 1
        self.items.append(item)
        self.news.set()

    async def read(self) -> AsyncIterator[SlotRelease | Lost]:
        while True:
            if self.lost:
                lost, self.lost = Lost(self.lost), 0
                yield lost
            elif self.items:
                yield self.items.popleft()
            elif self.closed:
                return
            else:
                self.news.clear()
                await self.news.wait()


class Broadcast:
    """The readers of one node; used from one event loop."""

    def __init__(self, size: int = 64) -> None:
        self._size = size
        self._queues: set[_Queue] = set()
        self._closed = False

    @property
    def readers(self) -> int:
        """The number of readers."""
        return len(self._queues)

    def publish(self, item: SlotRelease) -> None:
        """Pass a release to all readers; never waits."""
        for queue in self._queues:
            queue.put(item)

    @asynccontextmanager
    async def subscribe(self) -> AsyncIterator[AsyncIterator[SlotRelease | Lost]]:
        """Yield an iterator over all releases from now on; it ends when the broadcast is closed."""
        queue = _Queue(self._size)
        queue.closed = self._closed
        self._queues.add(queue)
        try:
            yield queue.read()
        finally:
            self._queues.discard(queue)

    def close(self) -> None:
        """End all streams, after what is still queued; a server can stop only after its streams."""
        self._closed = True
        self.end_streams()

    def end_streams(self) -> None:
        """End the streams of the current readers; new ones may still subscribe, if they have the right."""
        for queue in self._queues:
            queue.closed = True
            queue.news.set()
