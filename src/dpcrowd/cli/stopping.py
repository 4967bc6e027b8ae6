"""An end that is asked for: the first SIGTERM or control-C is a wish, the second one is an order."""

from __future__ import annotations

import signal
import threading
import time
from types import FrameType, TracebackType
from typing import Any

__all__ = ["Stop"]

_NAP = 0.1


class Stop:
    """Inside a with block, a signal does not interrupt what runs: it is to look at `requested`, and come to an end.

    After the first signal the handlers from before are in place again, so the second one ends the program as it always
    does. Outside the main thread, where Python takes no signals, nothing is ever requested.
    """

    def __init__(self) -> None:
        self._number: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Stop:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._ask)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._restore()

    def requested(self) -> bool:
        """Whether a signal came."""
        return self._number is not None

    def sleep(self, seconds: float) -> None:
        """Until then, or until a signal comes."""
        end = time.monotonic() + seconds
        while not self.requested() and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, _NAP))

    def finish(self) -> None:
        """After the with block: end as the signal would have ended the program at once."""
        if self._number is not None:
            signal.raise_signal(self._number)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self._number = number
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._before = {}
