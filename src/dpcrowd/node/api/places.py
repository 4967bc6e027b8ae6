"""Places for connections to the API, which either wait for a request or are busy with one.

    waiting  connected, but without the complete header of a request, or between two requests; the newest is always
             accepted, and replaces the oldest of the address with the most connections (`WaitingConnections`)
    busy     from the header of a request to the end of its answer; if all of these places are taken, or too many by one
             address, a request is answered with 503. Streams, which are long, get at most half of these places

There are as many places as the process has descriptors for, so that storage and neighbours always have theirs. A few
places for busy connections are reserved for this machine: its operator has to get an answer when others do not.

Nothing here reveals how many connections there are, or whose: those who send check-ins connect here, and their number
may be close to a raw count. Only whether a limit was reached in the last minute is public.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from typing import Protocol

from dpcrowd.node.connections.waiting import WaitingConnections

__all__ = ["Connection", "Places"]

log = logging.getLogger("dpcrowd.node")

HEADER_SECONDS = 10.0
REQUEST_SECONDS = 75.0  # for a header with its body; a body of check-ins has 60 s, and then gets an answer
READ_SECONDS = 60.0  # for a client to continue reading
CLOSE_SECONDS = 10.0
_MINUTE = 60.0
_RESERVED = 8


class Connection(Protocol):
    """What `Places` needs of a connection."""

    address: str

    def end(self) -> None:
        """End the connection at once."""
        ...

    def stuck(self, now: float) -> bool:
        """Whether the other side has not read or written for too long."""
        ...


class Places:
    """The places of one API.

    most  upper bound on the number of connections
    """

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.most_waiting = max(most // 4, 2)
        self._most_busy = max(most - self.most_waiting, 4)
        self._most_streams = self._most_busy // 2
        self._reserved = min(_RESERVED, self._most_busy // 4)
        self._clock = clock
        self._waiting: WaitingConnections[Connection] = WaitingConnections(self.most_waiting)
        self._busy: dict[Connection, bool] = {}
        """By connection, whether it is a stream."""
        self._by_address: Counter[tuple[str, bool]] = Counter()
        self._streams = 0
        self._limited = float("-inf")
        self._logged = float("-inf")

    def __len__(self) -> int:
        return len(self._waiting) + len(self._busy)

    @property
    def limited(self) -> bool:
        """Whether a connection was ended or refused in the last minute because there were too many."""
        return self._clock() - self._limited < _MINUTE

    def wait(self, connection: Connection) -> None:
        """Give a place to a connection that waits for a request."""
        self.leave(connection)
        displaced = self._waiting.enter(connection, connection.address, self._clock())
        if displaced is not None:
            self._limit_reached("too many connections have no complete request")
            displaced.end()

    def work(self, connection: Connection, *, stream: bool = False) -> bool:
        """Give a place to a connection with a complete header; return False if there is none."""
        if connection in self._busy:  # pipelined requests
            return True
        address = connection.address
        most = self._most_streams if stream else self._most_busy - (0 if _is_loopback(address) else self._reserved)
        if (self._streams if stream else len(self._busy)) >= most:
            self._limit_reached("too many streams are open" if stream else "too many requests are open")
            return False
        if self._by_address[address, stream] >= max(most // 2, 1):
            self._limit_reached("one address has too many requests or streams open")
            return False
        self._waiting.leave(connection)
        self._busy[connection] = stream
        self._by_address[address, stream] += 1
        self._streams += stream
        return True

    def leave(self, connection: Connection) -> None:
        """Free the place of a connection."""
        self._waiting.leave(connection)
        stream = self._busy.pop(connection, None)
        if stream is not None:
            kind = connection.address, stream
            self._by_address[kind] -= 1
            if not self._by_address[kind]:
                del self._by_address[kind]
            self._streams -= stream

    def sweep(self) -> None:
        """End connections that have been idle or stuck for too long."""
        now = self._clock()
        for connection in self._waiting.overdue(now - HEADER_SECONDS):
            self._waiting.leave(connection)
            connection.end()
        for connection in [one for one in self._busy if one.stuck(now)]:
            connection.end()

    def _limit_reached(self, what: str) -> None:
        self._limited = now = self._clock()
        if now - self._logged >= _MINUTE:
            self._logged = now
            text = "the limit of connections to the API was reached: %s; see docs/failures.md."
            log.warning(text, what, extra={"event": "connections"})


def _is_loopback(address: str) -> bool:
    return address.startswith("127.") or address == "::1"
