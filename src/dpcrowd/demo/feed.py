"""Sending the crowd's check-ins: each person to the server it is pinned to, at the start of each slot.

Check-ins carry no time, so the time of arrival counts; a slot whose check-ins were not all on disk before it closed has
no known truth, since some may have been counted in the next one.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpcrowd.demo.crowd import Present, Source
from dpcrowd.demo.node_client import NodeClient
from dpcrowd.node.slots import SECOND, SlotClock

__all__ = ["Fed", "Feeder", "checkins_of"]

_AFTER_OPENING_NS = 5_000_000


@dataclass(frozen=True)
class Fed:
    """A slot that was fed; truth is None if some check-ins came too late, `seconds` how long sending took."""

    slot: int
    truth: int | None
    seconds: float


def checkins_of(
    present: Present, server: int, server_of: NDArray[np.int64], regions: Sequence[str]
) -> tuple[list[int], list[str]]:
    """Users and regions of the check-ins of one server in one slot."""
    mine = server_of[present.people] == server
    return present.people[mine].tolist(), [regions[where] for where in present.regions[mine].tolist()]


class Feeder:
    """A thread that feeds; `fed` gives each slot once it has been sent, then None at the end of the source.

    An error of the thread comes out of `fed` as well.
    """

    def __init__(
        self, source: Source, clients: Sequence[NodeClient], server_of: NDArray[np.int64], clock: SlotClock
    ) -> None:
        self._source, self._clients, self._server_of, self._clock = source, tuple(clients), server_of, clock
        self._stop = threading.Event()
        self._queue: queue.Queue[Fed | Exception | None] = queue.Queue()
        self._thread = threading.Thread(target=self._run, name="feeder", daemon=True)

    def __enter__(self) -> Feeder:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()  # every request has a time limit, so this ends

    def fed(self, timeout: float) -> Fed | None:
        """The next slot; raises queue.Empty if there was none for so many seconds."""
        item = self._queue.get(timeout=timeout)
        if isinstance(item, Exception):
            raise item
        return item

    def _run(self) -> None:
        try:
            with ThreadPoolExecutor(len(self._clients)) as pool:
                for item in self._feed(pool):
                    self._queue.put(item)
            self._queue.put(None)
        except Exception as error:  # raised again where somebody can see it
            self._queue.put(error)

    def _feed(self, pool: ThreadPoolExecutor) -> Iterator[Fed]:
        clock, numbers = self._clock, range(len(self._clients))
        following = max(clock.slot_of(time.time_ns()) + 1, 0)
        for present in self._source.slots():
            ready = [checkins_of(present, number, self._server_of, self._source.regions) for number in numbers]
            slot = max(following, clock.slot_of(time.time_ns()) + 1)
            if not self._wait_until(clock.opens(slot) + _AFTER_OPENING_NS):
                return
            began = time.monotonic()
            list(pool.map(lambda client, rows: client.send(*rows), self._clients, ready))
            in_time = time.time_ns() < clock.closes(slot)
            yield from (Fed(missed, None, 0.0) for missed in range(following, slot))
            yield Fed(slot, present.total if in_time else None, time.monotonic() - began)
            following = slot + 1

    def _wait_until(self, at_ns: int) -> bool:
        """False if the feeder was stopped meanwhile."""
        while (left := at_ns - time.time_ns()) > 0:
            if self._stop.wait(min(left / SECOND, 0.5)):
                return False
        return not self._stop.is_set()
