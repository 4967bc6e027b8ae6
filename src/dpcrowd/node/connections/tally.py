"""Counts of refused connections, with one report per minute, so that a flood does not fill the log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

__all__ = ["Tally"]

_MOST_ADDRESSES = 1000
OTHERS = "others"


class Tally:
    """Refused connections by reason and address.

    report  called with the counts since the last report, by reason and by address
    """

    def __init__(self, report: Callable[[Counter[str], Counter[str]], None], every: float = 60.0) -> None:
        self._report, self._every = report, every
        self.totals: Counter[str] = Counter()
        self._reasons: Counter[str] = Counter()
        self._addresses: Counter[str] = Counter()
        self._reported = float("-inf")

    def add(self, reason: str, address: str) -> None:
        """Count one refused connection."""
        self.totals[reason] += 1
        self._reasons[reason] += 1
        if address not in self._addresses and len(self._addresses) >= _MOST_ADDRESSES:
            address = OTHERS
        self._addresses[address] += 1

    def report_if_due(self, now: float) -> None:
        """Report the counts, unless the last report was less than a minute ago."""
        if self._reasons and now - self._reported >= self._every:
            reasons, addresses = self._reasons, self._addresses
            self._reasons, self._addresses, self._reported = Counter(), Counter(), now
            self._report(reasons, addresses)
