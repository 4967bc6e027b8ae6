"""Log lines for links that come up and go down; a link that does so all the time must not fill the log.

A neighbour whose certificate has expired, or whose clock is wrong, may be linked and parted with at every attempt. So
the first few changes within a minute are told one by one, as a restart makes them, and what comes after that once per
minute: the state at that moment, and the number of changes since the line before. A link that has come back and stays
is told at once, so that the log does not end with a loss that is over.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["LinkLog"]

log = logging.getLogger("dpcrowd.node")

_MINUTE = 60.0
_STAYS = 4.0  # seconds: a link that is refused does not last for so long
_ONE_BY_ONE = 4  # changes within a minute: a restart, and a handshake that is made once more


@dataclass
class _Link:
    up: bool = False
    changes: deque[float] = field(default_factory=lambda: deque(maxlen=_ONE_BY_ONE + 1))  # when, the last few
    logged_at: float = 0.0
    held: int = 0  # changes since the last line


class LinkLog:
    """The links of one node. `now` gives seconds that nobody sets back."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._links: dict[str, _Link] = {}

    def change(self, neighbour: str, up: bool) -> None:
        """A link came up or went down."""
        link, now = self._links.setdefault(neighbour, _Link()), self._now()
        link.up = up
        link.changes.append(now)
        often = len(link.changes) > _ONE_BY_ONE and now - link.changes[0] < _MINUTE
        if often or link.held:
            link.held += 1
            return
        link.logged_at = now
        _write(neighbour, up, "")

    def closed(self) -> None:
        """The node has closed all links itself, which no link reports; what was held back is over."""
        for neighbour, link in self._links.items():
            if link.up:
                _write(neighbour, False, ": this server has closed its links")
            link.up, link.held = False, 0

    def look(self) -> None:
        """Write the lines that were held back, if it is time; to be called every now and then."""
        now = self._now()
        for neighbour, link in self._links.items():
            stays = link.up and now - link.changes[-1] >= _STAYS
            if link.held and (stays or now - link.logged_at >= _MINUTE):
                changes, seconds = link.held, now - link.logged_at
                link.held, link.logged_at = 0, now
                more = f" now; its link comes and goes: {changes} changes in {seconds:.0f} s."
                if changes == 1:
                    more = f", for {now - link.changes[-1]:.0f} s now"
                _write(neighbour, link.up, more)


def _write(neighbour: str, up: bool, more: str) -> None:
    log.info(
        "neighbour %s%s",
        "up" if up else "down",
        more,
        extra={"event": "neighbour-up" if up else "neighbour-down", "neighbour": neighbour},
    )
