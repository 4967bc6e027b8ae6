"""Ask a running node again and again, and keep its last state; one thread per node, so that none waits for another.

A node that does not answer keeps its last estimates; the state says since when it is away, and why.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from dpcrowd.arrays import Floats
from dpcrowd.client.client import Client
from dpcrowd.client.errors import NodeError, NotAllowed, RequestRefused
from dpcrowd.client.tables import Estimates
from dpcrowd.client.views import Budget, Network, Quality, Ready

__all__ = ["KEPT_SLOTS", "NodeState", "NodeWatch", "SlotEstimates"]

KEPT_SLOTS = 40
_TIMEOUT = 5.0
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 5.0
_MOST_ROWS = 40_000  # of the history that is read at the start


@dataclass(frozen=True, eq=False)
class SlotEstimates:
    """The estimates of one slot, one number per region; NaN as long as nothing is known."""

    slot: int
    regions: tuple[str, ...]
    estimate: Floats
    half: Floats
    total_half: float | None = None

    @property
    def total(self) -> tuple[float, float]:
        """The sum over all regions, and half of its 95% interval.

        The node knows how far the errors of regions go together (`filters.total`). One of an earlier version does not
        say it: then they are taken for independent.
        """
        half = self.total_half
        return float(self.estimate.sum()), float(np.sqrt(np.square(self.half).sum())) if half is None else half


@dataclass(frozen=True, eq=False)
class NodeState:
    """What is known of a node.

    releases    the last releases, oldest first
    quality     its calibration; None: it has not answered, or is of a version that has none
    away_since  since when it has not answered, or has answered in this way only; None: it has answered as it should
    problem     why it did not answer, or what it refused
    refused     whether it answered, but does not accept the token
    answered    whether it answered, with a refusal or another error
    """

    url: str
    network: Network | None = None
    budget: Budget | None = None
    ready: Ready | None = None
    releases: tuple[SlotEstimates, ...] = field(default=())
    quality: Quality | None = None
    away_since: datetime | None = None
    problem: str = ""
    refused: bool = False
    answered: bool = False

    @property
    def name(self) -> str:
        """The name of the server, or its address as long as it has never answered."""
        return self.network.server if self.network is not None else self.url.partition("://")[2] or self.url

    @property
    def last(self) -> SlotEstimates | None:
        return self.releases[-1] if self.releases else None


class NodeWatch:
    """The state of one node; `update` asks once, `start` asks in a thread until `close`."""

    def __init__(self, url: str, token: str | None, ca: Path | None, interval: float | None) -> None:
        self._client = Client(url, token, _TIMEOUT, retries=0, ca=ca)
        self._interval = interval
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self.state = NodeState(url)

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name=f"watch {self.state.url}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join(2 * _TIMEOUT)
        self._client.close()

    def update(self, now: datetime | None = None) -> None:
        """Ask for everything once; a failure is part of the state."""
        try:
            network, budget, ready = self._client.network(), self._client.budget(), self._client.ready()
            releases, quality = self._read_releases(network), self._read_quality()
        except NodeError as error:
            refused, answered = isinstance(error, NotAllowed), error.status is not None
            is_same = (self.state.refused, self.state.answered) == (refused, answered)
            since = (self.state.away_since if is_same else None) or now or datetime.now(UTC)
            self.state = replace(
                self.state, away_since=since, problem=_problem(error), refused=refused, answered=answered
            )
        else:
            self.state = NodeState(self.state.url, network, budget, ready, releases, quality)

    def _run(self) -> None:
        while not self._over.is_set():
            self.update()
            self._over.wait(self._pause())

    def _pause(self) -> float:
        if self._interval is not None:
            return self._interval
        network = self.state.network
        return _FIRST_PAUSE if network is None else max(0.5, min(network.slot_seconds / 2, _LONGEST_PAUSE))

    def _read_releases(self, network: Network) -> tuple[SlotEstimates, ...]:
        """Read the releases that came since the last question; at the start, as many as are shown."""
        latest = _split(self._client.latest())
        if not latest:
            return ()
        earlier = tuple(release for release in self.state.releases if release.slot < latest[-1].slot)
        last = earlier[-1] if earlier else None
        slots = max(1, min(KEPT_SLOTS, _MOST_ROWS // max(len(network.regions), 1)))
        first = max(latest[-1].slot - slots + 1, 0 if last is None else last.slot + 1)
        missed = _split(self._client.estimates(first, latest[-1].slot - 1)) if first < latest[-1].slot else ()
        halves = self._total_halves(slots + 1)  # another release may have come meanwhile
        fresh = (replace(release, total_half=halves.get(release.slot)) for release in (*missed, *latest))
        return (*earlier, *fresh)[-slots:]

    def _read_quality(self) -> Quality | None:
        """Return the calibration; None: the node has none yet."""
        try:
            return self._client.quality()
        except RequestRefused:
            return None

    def _total_halves(self, slots: int) -> dict[int, float]:
        """Return half of the total's interval by slot; nothing of a node that has no history yet."""
        try:
            totals = self._client.totals(slots)
        except RequestRefused:
            return {}
        return dict(zip(totals.slot.tolist(), ((totals.high - totals.low) / 2).tolist(), strict=True))


def _problem(error: NodeError) -> str:
    """Return why a node did not answer, or what it said, as short as a line of the table."""
    if error.status is None:
        late = f"no answer within {_TIMEOUT:g} s" if error.cause.endswith("Timeout") else ""
        return late or error.cause or error.message
    if isinstance(error, NotAllowed):
        return "give a token that may read (--token-file)"
    return error.text or error.message


def _split(table: Estimates) -> tuple[SlotEstimates, ...]:
    """Return the releases of a table, by slot."""
    releases = []
    for slot in np.unique(table.slot):
        rows = table.slot == slot
        half = (table.high[rows] - table.low[rows]) / 2
        releases.append(SlotEstimates(int(slot), tuple(table.region[rows].tolist()), table.estimate[rows], half))
    return tuple(releases)
