"""The node's clock: UTC by the system, and a watch on it that does not trust it."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

__all__ = ["ClockWatch", "Look", "WallClock"]

SECOND = 1_000_000_000
NAP = 0.5
"""A clock that jumps while the node sleeps is noticed this soon, in seconds."""
_JUMP = SECOND
_FROZEN = 2 * SECOND
_FROZEN_PART = 10  # of a slot: whoever was away for less has missed little of it
_SNAPSHOT = 10 * SECOND


class WallClock:
    """UTC in nanoseconds, and the time that has passed, which nobody can set."""

    def now(self) -> int:
        return time.time_ns()

    def elapsed(self) -> int:
        """Return nanoseconds since some moment. A sleeping machine goes on counting, where the system lets it."""
        clock = getattr(time, "CLOCK_BOOTTIME", None)
        return time.monotonic_ns() if clock is None else time.clock_gettime_ns(clock)

    async def sleep_until(self, at_ns: int) -> None:
        """Sleep in short naps: the clock may be set forward or back meanwhile."""
        while (remaining_ns := at_ns - self.now()) > 0:
            await asyncio.sleep(min(remaining_ns / SECOND, NAP))


@dataclass(frozen=True)
class Look:
    """What has happened to time since the last look.

    moved_ns  by how much UTC was set
    still_ns  for how long nothing ran, if that is much of a slot
    half      the slots that are open now have been seen in part only
    doubtful  this may be a snapshot of a machine that has lived on since
    """

    moved_ns: int
    still_ns: int
    half: bool
    doubtful: bool


class ClockWatch:
    """Compares UTC with the time that has passed; to be asked every `NAP`, and before anything is sealed."""

    def __init__(self, clock: WallClock, slot_ns: int) -> None:
        self._clock = clock
        self._offset = clock.now() - clock.elapsed()
        self._last = clock.elapsed()
        self.patience_ns = max(_FROZEN, slot_ns // _FROZEN_PART)

    def look(self) -> Look:
        """Compare the clocks; to be called often, since the time between two calls shows a process that stood still."""
        now = self._clock.elapsed()
        away, self._last = now - self._last, now
        moved = self._jumped()
        return Look(
            moved_ns=moved,
            still_ns=away if away >= self.patience_ns else 0,
            half=moved > 0 or away >= self.patience_ns,
            doubtful=moved > 0 or away >= _SNAPSHOT,
        )

    def _jumped(self) -> int:
        """Return by how many nanoseconds UTC was set since the last jump; 0 below a second: small steps add up."""
        moved = self._clock.now() - self._clock.elapsed() - self._offset
        if abs(moved) < _JUMP:
            return 0
        self._offset += moved
        return moved
