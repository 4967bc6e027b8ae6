"""A lane to each neighbour: in order, in a thread of its own when it must wait, and never in another's way.

Zenoh's put may block: with congestion control BLOCK (the default drops messages) it waits while the queue to a
neighbour that does not read is full, up to five seconds. So puts run in threads. Each neighbour has at most one put
under way and a short queue behind it; when that is full the oldest message goes, since in this protocol the newest
slot is worth most.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor

__all__ = ["Lane"]


class Lane:
    """Hands payloads over to one neighbour. Lives in the event loop's thread; only `put` runs elsewhere."""

    def __init__(self, put: Callable[[bytes], None], pool: Executor, *, depth: int = 16) -> None:
        self._put = put
        self._pool = pool
        self._waiting: deque[bytes] = deque(maxlen=depth)
        self._under_way: asyncio.Task[None] | None = None
        self.dropped = 0
        """Messages that made room for newer ones, or that the transport refused."""

    def offer(self, payload: bytes) -> None:
        """Queue a message and return at once."""
        self.dropped += len(self._waiting) == self._waiting.maxlen
        self._waiting.append(payload)
        if self._under_way is None:
            self._under_way = asyncio.get_running_loop().create_task(self._run())

    async def drain(self) -> None:
        """Wait until everything queued has been handed over."""
        if self._under_way is not None:
            await asyncio.shield(self._under_way)

    def abandon(self) -> None:
        """Forget what is queued; a put that is under way in its thread ends by itself."""
        self._waiting.clear()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._waiting:
                try:
                    await loop.run_in_executor(self._pool, self._put, self._waiting.popleft())
                except Exception:
                    # A session that is being closed refuses puts; a message that does not leave is a lost message,
                    # which the protocol allows, and the lane must live on for the next.
                    self.dropped += 1
        finally:
            self._under_way = None
