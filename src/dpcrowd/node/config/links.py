"""The links of a network, slot by slot, as neighbour lists and degrees; a link may begin and end.

A link holds in slots from_slot <= t < until_slot of the revision. The number of neighbours of a server increases only
where a link begins, so only those slots have to be examined for the maximum.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpcrowd.node.config.kinds import InvalidValue
from dpcrowd.sampling.schedule import spread_phases

__all__ = ["Links", "TimedLink", "refuse_duplicates"]


@dataclass(frozen=True)
class TimedLink:
    """An undirected link of servers `low` < `high` (numbers) in slots first <= t < until; until None: without end."""

    low: int
    high: int
    first: int
    until: int | None

    def holds(self, slot: int) -> bool:
        """Whether the link exists in a slot."""
        return self.first <= slot and (self.until is None or slot < self.until)

    def overlaps(self, other: TimedLink) -> bool:
        """Whether both links hold in some slot."""
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
        """Return the numbers of a server's neighbours in a slot, ascending."""
        return sorted(other for other, link in self._of[server] if link.holds(slot))

    def max_degree(self, first: int | None = None, until: int | None = None) -> int:
        """Return the largest number of neighbours of any server in any slot first <= t < until of the revision."""
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
        """Return the servers that never have a neighbour."""
        return [number for number, around in enumerate(self._of) if not around]

    def hops(self, most: int | None = None) -> NDArray[np.int64]:
        """Return how many links a record travels between two servers, (servers, servers); -1: it does not arrive.

        A link counts whenever it holds: records wait for it.

        most  the reach
        """
        servers = len(self._of)
        hops = np.full((servers, servers), -1, dtype=np.int64)
        for origin in range(servers):
            hops[origin, origin], frontier, step = 0, [origin], 0
            while frontier and (most is None or step < most):
                step += 1
                near = {other for one in frontier for other, _ in self._of[one] if hops[origin, other] < 0}
                frontier = sorted(near)
                hops[origin, frontier] = step
        return hops

    def phases(self, interval: int) -> NDArray[np.int64]:
        """Return the public phases of staggered sampling, as the simulator: by the graph, or by number if it varies."""
        servers = len(self._of)
        if self.change:
            return np.arange(servers, dtype=np.int64) % interval
        rows = [sorted(other for other, _ in around) for around in self._of]
        indptr = np.concatenate(([0], np.cumsum([len(row) for row in rows]))).astype(np.int64)
        indices = np.array([other for row in rows for other in row], dtype=np.int64)
        return spread_phases(indptr, indices, interval)


def refuse_duplicates(links: Sequence[TimedLink]) -> None:
    """Refuse two links between the same servers that hold in a common slot."""
    places: dict[tuple[int, int], list[int]] = {}
    for place, link in enumerate(links):
        before = places.setdefault((link.low, link.high), [])
        for other in before:
            if links[other].overlaps(link):
                raise InvalidValue(
                    f"link[{place}]",
                    f"joins the same two servers as link[{other}] in the same slots; give each link once.",
                )
        before.append(place)
