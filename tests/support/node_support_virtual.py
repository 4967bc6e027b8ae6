"""Time as a test makes it: an event loop that never waits, clocks that can be set, random bytes that can be repeated.

Nothing here runs in a thread. Work for an executor is done at once, and when nobody has anything to do, time jumps to
the next timer. So a whole network of live nodes is one sequence of steps, and the same story twice is the same sequence
twice: what differs, differs for a reason.
"""

from __future__ import annotations

import asyncio
import hashlib
import heapq
import os
import random
import secrets
import selectors
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar
from unittest import mock

import anyio.to_thread

from dpcrowd.node.live.timing import WallClock

__all__ = ["SECOND", "SetClock", "VirtualLoop", "repeatable_bytes", "run_virtually", "wait_until"]

SECOND = 1_000_000_000
_TURNS = 1000  # of the loop, in which a start that waits for no timer is over
_LONGEST = 60.0  # seconds of virtual time
T = TypeVar("T")


class _NothingToRead(selectors.SelectSelector):
    """There are no sockets: to wait for them is to let time pass."""

    def __init__(self) -> None:
        super().__init__()
        self.pass_seconds: Callable[[float], None]

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise AssertionError("everybody waits for something that cannot happen any more")
        if timeout > 0:
            self.pass_seconds(timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time passes only while everybody sleeps.

    Time is kept in whole microseconds: with sums of floats, a timer that only one of two worlds has set, and cancelled,
    could change the last digit of every later time.
    """

    def __init__(self) -> None:
        selector = _NothingToRead()
        super().__init__(selector)
        selector.pass_seconds = self.skip
        self.microseconds = 0
        self._timers = 0

    def time(self) -> float:
        return self.microseconds / 1e6

    def skip(self, seconds: float) -> None:
        """Let time pass. Called while a task runs, it is a process that stands still."""
        self.microseconds += max(1, round(seconds * 1e6))

    _scheduled: list[asyncio.TimerHandle]  # asyncio's own heap

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        """Timers of one moment go off in the order in which they were set, whatever else was set in between."""
        self._timers += 1
        timer = _Timer(when, callback, args, self, context)
        timer.number = self._timers
        heapq.heappush(self._scheduled, timer)
        timer._scheduled = True
        return timer

    def call_soon_threadsafe(self, *_: Any, **__: Any) -> Any:  # type: ignore[override]
        raise AssertionError("a thread takes part in the story: when it is done is not a matter of the story")

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]
        """Done at once, in no time; whoever waits for it gives others a turn first, as with a thread."""
        done: asyncio.Future[T] = self.create_future()
        try:
            result = func(*args)
        except Exception as error:
            self.call_soon(_settle, done, done.set_exception, error)
        else:
            self.call_soon(_settle, done, done.set_result, result)
        return done


class _Timer(asyncio.TimerHandle):
    """asyncio's own handles of one moment are in no order."""

    number: int
    _scheduled: bool  # asyncio's own note

    def __lt__(self, other: Any) -> bool:
        return (self.when(), self.number) < (other.when(), other.number)


async def _at_once(func: Callable[..., T], *args: Any, **_: Any) -> T:
    """What Starlette would do in a thread."""
    return func(*args)


def _settle(done: asyncio.Future[Any], settle: Callable[[Any], None], outcome: Any) -> None:
    if not done.done():
        settle(outcome)


def run_virtually(story: Callable[[VirtualLoop], Coroutine[Any, Any, T]]) -> T:
    """The result of a coroutine that is given the loop in which it runs."""
    loop = VirtualLoop()
    in_thread = mock.patch.object(anyio.to_thread, "run_sync", _at_once)
    with in_thread, asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(story(loop))


async def wait_until(condition: Callable[[], bool]) -> None:
    """Give everybody else turns until a condition holds, at first without any time.

    Whoever waits for a timer then gets time, and a condition that never holds fails the test instead of hanging it.
    """
    loop, turns = asyncio.get_running_loop(), 0
    began = loop.time()
    while not condition():
        if loop.time() - began > _LONGEST:
            raise AssertionError(f"nothing has happened in {_LONGEST:g} s of virtual time")
        await asyncio.sleep(0 if turns < _TURNS else 0.01)
        turns += 1


class SetClock(WallClock):
    """A node's clock: UTC by the loop's time, as far `ahead` as the test has set it."""

    def __init__(self, loop: VirtualLoop, epoch_ns: int) -> None:
        self._loop, self._epoch_ns = loop, epoch_ns
        self.ahead_ns = 0
        """By how much the clock was set since."""

    def now(self) -> int:
        return self._epoch_ns + self.elapsed() + self.ahead_ns

    def elapsed(self) -> int:
        return self._loop.microseconds * 1_000


@contextmanager
def repeatable_bytes(now: Callable[[], int]) -> Iterator[None]:
    """Random bytes become a function of the time at which they are drawn, and of their number.

    Not of how often something was drawn before: a key that only one of two worlds needs must not change later ones.
    """

    def drawn(count: int | None = None) -> bytes:
        count = 32 if count is None else count
        return hashlib.shake_128(f"{now()} {count}".encode()).digest(count)

    with (
        mock.patch.object(secrets, "token_bytes", drawn),
        mock.patch.object(os, "urandom", drawn),
        mock.patch.object(random, "_urandom", drawn),
    ):
        yield
