"""Log lines for messages that the transport has dropped unread: who floods, and how much, once per minute at most."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping

__all__ = ["FloodLog"]

log = logging.getLogger("dpcrowd.node")

_MINUTE = 60.0


class FloodLog:
    """The neighbours of one node. `now` gives seconds that nobody sets back."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._told: dict[str, int] = {}  # messages that the log has
        self._told_at: dict[str, float] = {}

    def look(self, dropped: Mapping[str, int]) -> None:
        """What was dropped since the links were opened, by neighbour; to be called every now and then."""
        now = self._now()
        for name, count in dropped.items():
            told = self._told.get(name, 0)
            fresh = count - told if count >= told else count  # the links were opened anew
            since = now - self._told_at.get(name, -math.inf)
            if not fresh or since < _MINUTE:
                continue
            self._told[name], self._told_at[name] = count, now
            were = "1 message was" if fresh == 1 else f"{fresh} messages were"
            span = "" if since > 2 * _MINUTE else f" in the last {since:.0f} s"
            text = f"{were} dropped unread{span}: too many at once, or too large; or this neighbour does not read."
            log.warning(
                "messages refused",
                extra={"event": "message-refused", "sender": name, "reason": "flood", "text": text},
            )
