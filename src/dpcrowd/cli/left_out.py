"""Lines that a feed has left out, as its operator hears of them: some by number, all of them as totals by reason."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

import click

from dpcrowd.client.delivery import explanation

__all__ = ["LeftOutLines"]

_NAMED = 20
_SECONDS = 60.0
_UNNAMED = "not named by the node"


class LeftOutLines:
    """The first lines of each minute are told by number and reason; the totals once per minute, and at the end.

    total  of all lines that were left out
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.total = 0
        self._now = now
        self._counts: Counter[str] = Counter()
        self._named = self._reported = 0
        self._report_at = now() + _SECONDS

    def line(self, number: int, reason: str) -> None:
        """One line."""
        self._add(reason, 1)
        self._named += 1
        if self._named <= _NAMED:
            click.echo(f"dpcrowd: left out: line {number}: {explanation(reason)}.", err=True)

    def unnamed(self, count: int) -> None:
        """More of a request than a node names."""
        self._add(_UNNAMED, count)

    def report(self) -> None:
        """To be called often: says the totals if a minute has passed and they have changed."""
        if self._now() < self._report_at:
            return
        self._report_at = self._now() + _SECONDS
        self._named = 0
        if self.total > self._reported:
            self._say("so far")

    def sum_up(self) -> None:
        """At the end."""
        if self.total:
            self._say("in all")

    def _add(self, reason: str, count: int) -> None:
        self.total += count
        self._counts[reason] += count

    def _say(self, when: str) -> None:
        self._reported = self.total
        reasons = ", ".join(f"{count} {reason}" for reason, count in self._counts.most_common())
        lines = "line" if self.total == 1 else "lines"
        click.echo(f"dpcrowd: left out: {self.total} {lines} {when}: {reasons}.", err=True)
