"""The stream of releases without I/O: server-sent events of /v1/stream as releases, and when to connect again.

`StreamState` turns bytes into releases. `Watch` decides, over several connections, when to go on, how long to wait, and
when to give up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

import msgspec

from dpcrowd.client.errors import NodeFailed
from dpcrowd.client.steps import Reply, Silence, problem, retry_after
from dpcrowd.client.tables import Estimates, from_json

__all__ = ["IDLE_SECONDS", "StreamState", "Watch"]

IDLE_SECONDS = 45.0
"""A node sends something at least every 15 seconds, to keep the connection."""
_FIRST_WAIT, _LONGEST_WAIT = 0.2, 5.0
_MOST_LINE = 256 << 20


class StreamState:
    """The state of a stream over all its connections.

    last  the slot that was received last; a new connection continues after it
    """

    def __init__(self, after: int | None) -> None:
        self.last = after
        self._lost = 0
        self.begin()

    def begin(self) -> None:
        """Begin a new connection: an incomplete event of the old one is dropped, and will be sent again."""
        self._parts: list[bytes] = []
        self._size = 0
        self._fields: dict[str, str] = {}

    @property
    def headers(self) -> dict[str, str]:
        after = {} if self.last is None else {"last-event-id": str(self.last)}
        return {"accept": "text/event-stream", **after}

    def feed(self, chunk: bytes) -> Iterator[Estimates]:
        """Yield the releases that are complete with this chunk."""
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            complete = b"".join([*self._parts, line])
            self._parts, self._size = [], 0
            yield from self._line(complete.rstrip(b"\r"))
        self._parts.append(rest)
        self._size += len(rest)
        if self._size > _MOST_LINE:
            raise _not_a_node()

    def _line(self, line: bytes) -> Sequence[Estimates]:
        if line:
            name, _, value = line.decode("utf-8", "replace").partition(":")
            self._fields[name] = value.removeprefix(" ")
            return ()
        fields, self._fields = self._fields, {}
        if fields.get("event") == "lost":
            self._lost += _lost_slots(fields.get("data", ""))
        elif fields.get("event") == "estimates":
            return (self._release(fields),)
        return ()  # a comment that keeps the connection open, or an event of a newer node

    def _release(self, fields: dict[str, str]) -> Estimates:
        number = fields.get("id", "")
        release = None
        if number.isascii() and number.isdecimal() and len(number) < 16:
            with suppress(ValueError, OverflowError):
                release = from_json(fields.get("data", ""), self._lost)
        if release is None:
            raise _not_a_node()
        self.last, self._lost = int(number), 0
        return release


class _Lost(msgspec.Struct):
    slots: int


def _lost_slots(data: str) -> int:
    with suppress(msgspec.MsgspecError):
        return msgspec.json.decode(data, type=_Lost).slots
    raise _not_a_node()


def _not_a_node() -> NodeFailed:
    text = "the stream was not sent by a dpcrowd node of a known version; check the URL."
    return NodeFailed(text, status=200, reason="not-a-node", text=text)


class Watch:
    """When a stream goes on, waits or gives up; `now` is a monotonic clock, in seconds."""

    def __init__(
        self, after: int | None, seconds: float | None, patience: float | None, now: Callable[[], float]
    ) -> None:
        self.events = StreamState(after)
        self._now, self._patience = now, patience
        self._until = None if seconds is None else now() + seconds
        self._silent_since: float | None = now()
        self._failures = 0

    @property
    def remaining(self) -> float | None:
        """Seconds for which to go on listening; None: for ever."""
        return None if self._until is None else self._until - self._now()

    def over(self) -> bool:
        """Whether the time to listen has passed."""
        remaining = self.remaining
        return remaining is not None and remaining <= 0

    def connected(self) -> None:
        """Begin a new connection: the node has answered."""
        self.events.begin()

    def receive(self, chunk: bytes) -> Iterator[Estimates]:
        """Yield the releases of a chunk; any chunk shows that the node is there."""
        self._silent_since, self._failures = None, 0
        return self.events.feed(chunk)

    def wait(self, failure: Reply | Silence) -> float:
        """Return the seconds before the next connection; raise a failure that lasts, or has lasted for too long."""
        now = self._now()
        if self._silent_since is None:
            self._silent_since = now
        wait: float = min(_FIRST_WAIT * 2**self._failures, _LONGEST_WAIT)
        if isinstance(failure, Reply):
            if failure.status not in (429, 502, 503, 504):
                raise problem(failure)
            wait = max(wait, retry_after(failure.retry_after) or 0.0)
        elif not failure.temporary:
            raise problem(failure)
        if self._patience is not None and now + wait - self._silent_since > self._patience:
            raise problem(failure)
        self._failures = min(self._failures + 1, 10)
        return wait if self.remaining is None else max(0.0, min(wait, self.remaining))
