"""What the log says of storage that does not work: when it begins, once per minute while it lasts, and when it is over.

Something is to be stored several times per slot. A disk that is full for a night would fill the log with one sentence,
and with it perhaps the same disk.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

__all__ = ["StorageLog"]

log = logging.getLogger("dpcrowd.node")

_EVERY = 60.0
_WORKS = "storing works again; the node may sample."


class StorageLog:
    """Of one node. Those who use storage are known by a word; each says whether it worked for it."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._failing: set[str] = set()
        self._logged_at = 0.0
        self._since = 0  # failures that the log does not have yet

    def failed(self, user: str, text: str) -> None:
        """It did not work for this user."""
        began, now = not self._failing, self._now()
        self._failing.add(user)
        self._since = 1 if began else self._since + 1
        if not began and now - self._logged_at < _EVERY:
            return
        more = "" if began else f" ({self._since} times in the last {now - self._logged_at:.0f} s)"
        log.error("%s%s", text, more, extra={"event": "storage-failed"})
        self._logged_at, self._since = now, 0

    def works(self, user: str, text: str = _WORKS) -> None:
        """It worked for this user; told once nobody is left for whom it does not."""
        if user in self._failing:
            self._failing.remove(user)
            if not self._failing:
                log.warning(text, extra={"event": "storage-mended"})
