"""A stream over several connections, without I/O: when to go on, how long to wait, when to give up."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dpcrowd.client.events import Events
from dpcrowd.client.steps import Reply, Silence, problem, retry_after
from dpcrowd.client.tables import Estimates

__all__ = ["IDLE_SECONDS", "Watch"]

IDLE_SECONDS = 45.0
"""A node says something every 15 seconds, if only that it is there."""
_FIRST_WAIT, _LONGEST_WAIT = 0.2, 5.0


class Watch:
    """`now` gives seconds that nobody sets back."""

    def __init__(
        self, after: int | None, seconds: float | None, patience: float | None, now: Callable[[], float]
    ) -> None:
        self.events = Events(after)
        self._now, self._patience = now, patience
        self._until = None if seconds is None else now() + seconds
        self._alone_since: float | None = now()
        self._failures = 0

    @property
    def left(self) -> float | None:
        """Seconds to listen."""
        return None if self._until is None else self._until - self._now()

    def over(self) -> bool:
        """Whether the time to listen has passed."""
        left = self.left
        return left is not None and left <= 0

    def connected(self) -> None:
        """The node answers."""
        self.events.begin()

    def heard(self, chunk: bytes) -> Iterator[Estimates]:
        """Releases; whatever came, the node is there."""
        self._alone_since, self._failures = None, 0
        return self.events.feed(chunk)

    def wait(self, failure: Reply | Silence) -> float:
        """Seconds before the next connection; raises what will not pass, or has not passed for too long."""
        now = self._now()
        if self._alone_since is None:
            self._alone_since = now
        wait: float = min(_FIRST_WAIT * 2**self._failures, _LONGEST_WAIT)
        if isinstance(failure, Reply):
            if failure.status not in (429, 502, 503, 504):
                raise problem(failure)
            wait = max(wait, retry_after(failure.retry_after) or 0.0)
        elif not failure.passing:
            raise problem(failure)
        if self._patience is not None and now + wait - self._alone_since > self._patience:
            raise problem(failure)
        self._failures = min(self._failures + 1, 10)
        return wait if self.left is None else max(0.0, min(wait, self.left))
