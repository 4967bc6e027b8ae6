"""Who hears whom, slot by slot: links that may begin and end, as neighbour lists and degrees.

A link holds in slots from_slot <= t < until_slot of the revision. The number of neighbours of a server only rises where
a link begins, so the largest one is found by looking at those slots alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpcrowd.node.config.kinds import InvalidValue
from dpcrowd.sampling.schedule import spread_phases

__all__ = ["Links", "TimedLink", "refuse_twice"]


@dataclass(frozen=True)
class TimedLink:
    """An undirected link of servers `low` < `high` (numbers) in slots first <= t < until; until None: for good."""

    low: int
    high: int
    first: int
    until: int | None

    def holds(self, slot: int) -> bool:
        return self.first <= slot and (self.until is None or slot < self.until)

    def meets(self, other: TimedLink) -> bool:
        """Whether both hold in some slot."""
        return (other.until is None or self.first < other.until) and (self.until is None or other.first < self.until)


class Links:
    """All links of a revision that is valid from slot `start` on."""

    def __init__(self, servers: int, links: Iterable[TimedLink], start: int) -> None:
        self._start = start
        self._links = [link for link in links if link.until is None or link.until > start]
        self._of: list[list[tuple[int, TimedLink]]] = [[] for _ in range(servers)]
        for link in self._links:
            self._of[link.low].append((link.high, link))
            self._of[link.high].append((link.low, link))

    def neighbours(self, server: int, slot: int) -> list[int]:
        """The numbers of a server's neighbours in a slot, ascending."""
        return sorted(other for other, link in self._of[server] if link.holds(slot))

    def max_degree(self, first: int | None = None, until: int | None = None) -> int:
        """The most neighbours that any server has in any slot first <= t < until of the revision."""
        first = self._start if first is None else max(first, self._start)
        most = 0
        for around in self._of:
            steps: list[tuple[int, int]] = []
            for _, link in around:
                begins = max(link.first, first)
                if (until is not None and begins >= until) or (link.until is not None and link.until <= begins):
                    continue
                steps.append((begins, 1))
                if link.until is not None:
                    steps.append((link.until, -1))
            now = 0
            for _, step in sorted(steps):  # at one slot ends (-1) come before beginnings: the intervals are half open
                now += step
                most = max(most, now)
        return most

    @property
    def change(self) -> bool:
        """Whether some link begins or ends while the revision is valid."""
        return any(link.first > self._start or link.until is not None for link in self._links)

    def isolated(self) -> list[int]:
        """Servers that never have a neighbour."""
        return [number for number, around in enumerate(self._of) if not around]

    def phases(self, interval: int) -> NDArray[np.int64]:
        """Public phases of staggered sampling, as in the simulator: over the graph, by number if it changes."""
        servers = len(self._of)
        if self.change:
            return np.arange(servers, dtype=np.int64) % interval
        rows = [sorted(other for other, _ in around) for around in self._of]
        indptr = np.concatenate(([0], np.cumsum([len(row) for row in rows]))).astype(np.int64)
        indices = np.array([other for row in rows for other in row], dtype=np.int64)
        return spread_phases(indptr, indices, interval)


def refuse_twice(links: Sequence[TimedLink]) -> None:
    """Refuse two links between the same servers that hold in a common slot."""
    seen: dict[tuple[int, int], list[int]] = {}
    for place, link in enumerate(links):
        before = seen.setdefault((link.low, link.high), [])
        for other in before:
            if links[other].meets(link):
                raise InvalidValue(
                    f"link[{place}]", f"the same two servers as link[{other}], in the same slots; give each link once."
                )
        before.append(place)
