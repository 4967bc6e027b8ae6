"""Log lines of problems that recur: each is logged when it begins, then once per minute, and when it ends.

LinkLog     links that come up and go down
FloodLog    messages that the transport has dropped unread
StorageLog  storage that does not work

The link to a neighbour whose certificate has expired may come up and go down at every attempt, and a disk that is full
overnight fails several times per slot: one repeated sentence would fill the log, and with it perhaps the same disk.
"""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from dpcrowd.errors import counted

__all__ = ["FloodLog", "LinkLog", "SampleLog", "StorageLog"]

log = logging.getLogger("dpcrowd.node")

_MINUTE = 60.0
_STAYS = 4.0  # seconds: a link that is refused does not last this long
_ONE_BY_ONE = 4  # changes within a minute: a restart, and a handshake that is made once more
_WORKS = "storing works again; the node may sample."


@dataclass
class _Link:
    up: bool = False
    changes: deque[float] = field(default_factory=lambda: deque(maxlen=_ONE_BY_ONE + 1))  # when, the last few
    logged_at: float = 0.0
    unlogged: int = 0  # changes since the last line


class LinkLog:
    """The links of one node. `now` gives seconds that nobody sets back.

    The first few changes within a minute are logged one by one, as a restart makes them, and what comes after that once
    per minute: the state at that moment, and the number of changes since the line before. A link that has come back and
    stays is logged at once, so that the log does not end with a loss that is over.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._links: dict[str, _Link] = {}

    def change(self, neighbour: str, up: bool) -> None:
        """Note that a link came up or went down."""
        link, now = self._links.setdefault(neighbour, _Link()), self._now()
        link.up = up
        link.changes.append(now)
        often = len(link.changes) > _ONE_BY_ONE and now - link.changes[0] < _MINUTE
        if often or link.unlogged:
            link.unlogged += 1
            return
        link.logged_at = now
        _write(neighbour, up, "")

    def closed(self) -> None:
        """Note that the node has closed all links itself, which no link reports; what was held back is over."""
        for neighbour, link in self._links.items():
            if link.up:
                _write(neighbour, False, ": this server has closed its links")
            link.up, link.unlogged = False, 0

    def look(self) -> None:
        """Write the lines that were held back, if it is time; to be called every now and then."""
        now = self._now()
        for neighbour, link in self._links.items():
            stays = link.up and now - link.changes[-1] >= _STAYS
            if link.unlogged and (stays or now - link.logged_at >= _MINUTE):
                changes, seconds = link.unlogged, now - link.logged_at
                link.unlogged, link.logged_at = 0, now
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


class FloodLog:
    """The neighbours of one node: who floods, and how much. `now` gives seconds that nobody sets back."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._logged: dict[str, int] = {}  # messages that the log has
        self._logged_at: dict[str, float] = {}

    def look(self, dropped: Mapping[str, int]) -> None:
        """Log what was dropped since the links were opened, by neighbour; to be called every now and then."""
        now = self._now()
        for name, count in dropped.items():
            logged = self._logged.get(name, 0)
            fresh = count - logged if count >= logged else count  # the links were opened anew
            since = now - self._logged_at.get(name, -math.inf)
            if not fresh or since < _MINUTE:
                continue
            self._logged[name], self._logged_at[name] = count, now
            were = "1 message was" if fresh == 1 else f"{fresh} messages were"
            span = "" if since > 2 * _MINUTE else f" in the last {since:.0f} s"
            text = f"{were} dropped unread{span}: too many at once, or too large; or this neighbour does not read."
            log.warning(
                "messages refused",
                extra={"event": "message-refused", "sender": name, "reason": "flood", "text": text},
            )


class SampleLog:
    """Own samples that were paid for and not used. The first one is logged at once, others once per minute."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._logged_at = -math.inf
        self._since = 0  # samples that the log does not have yet

    def unused(self, text: str) -> None:
        """Note that a sample was not used."""
        self._since, now = self._since + 1, self._now()
        if (passed := now - self._logged_at) < _MINUTE:
            return
        more = f" ({counted(self._since, 'sample')} in the last {passed:.0f} s)" if self._since > 1 else ""
        log.error("%s%s", text, more, extra={"event": "own-absurd"})
        self._logged_at, self._since = now, 0

    def used(self) -> None:
        """Note that a sample was used: one that is not is logged at once again."""
        self._logged_at, self._since = -math.inf, 0


class StorageLog:
    """Storage of one node. Each user of storage has a name, and says whether storing worked for it."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._failing: set[str] = set()
        self._logged_at = 0.0
        self._since = 0  # failures that the log does not have yet

    def failed(self, user: str, text: str) -> None:
        """Note that storing did not work for this user."""
        began, now = not self._failing, self._now()
        self._failing.add(user)
        self._since = 1 if began else self._since + 1
        if not began and now - self._logged_at < _MINUTE:
            return
        more = "" if began else f" ({counted(self._since, 'time')} in the last {now - self._logged_at:.0f} s)"
        log.error("%s%s", text, more, extra={"event": "storage-failed"})
        self._logged_at, self._since = now, 0

    def works(self, user: str, text: str = _WORKS) -> None:
        """Note that storing worked for this user; logged once it works for all."""
        if user in self._failing:
            self._failing.remove(user)
            if not self._failing:
                log.warning(text, extra={"event": "storage-mended"})
