"""The node's clock: UTC by the system, and a watch on it that does not trust it."""

from __future__ import annotations

import asyncio
import time

__all__ = ["WallClock"]

SECOND = 1_000_000_000
_LONGEST_NAP = 0.5  # a clock that jumps while the node sleeps is noticed this soon
_JUMP = SECOND


class WallClock:
    """UTC in nanoseconds. Jumps show as a difference to the monotonic clock, which nobody sets."""

    def __init__(self) -> None:
        self._offset = time.time_ns() - time.monotonic_ns()

    def now(self) -> int:
        return time.time_ns()

    def jumped(self) -> int | None:
        """By how many nanoseconds the clock was set since the last call; None if by less than a second."""
        offset = time.time_ns() - time.monotonic_ns()
        moved = offset - self._offset
        if abs(moved) < _JUMP:
            return None
        self._offset = offset
        return moved

    async def sleep_until(self, at_ns: int) -> None:
        """In short naps: the clock may be set forward or back meanwhile."""
        while (left := at_ns - self.now()) > 0:
            await asyncio.sleep(min(left / SECOND, _LONGEST_NAP))
