"""What the demo asks a node, by `dpcrowd.Client`; errors name the node."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from dpcrowd.client.client import Client
from dpcrowd.client.errors import NodeError
from dpcrowd.demo.files import DemoNode
from dpcrowd.errors import DpcrowdError

__all__ = ["ApiFailed", "NodeClient", "Total", "total_of"]

_SECONDS = 5.0
_MOST_ROWS = 20_000
_METRICS = ("dpcrowd_epsilon_spent", "dpcrowd_messages_sent_total")


class ApiFailed(DpcrowdError):
    """A node does not answer, or refuses."""


@dataclass(frozen=True)
class Total:
    """A server's estimate of the whole crowd with its 95% interval; None as long as the server knows nothing."""

    estimate: float | None
    low: float | None
    high: float | None


class NodeClient:
    """One node; may be used by several threads."""

    def __init__(self, node: DemoNode, token: str) -> None:
        self.node = node
        # One more try: a node closes connections that were idle for some seconds.
        self._client = Client(node.address, token, _SECONDS, retries=1, patience=1.0)

    def close(self) -> None:
        self._client.close()

    def healthy(self) -> bool:
        """Whether the process answers."""
        try:
            self._client.request("GET", "/healthz")
        except NodeError:
            return False
        return True

    def send(self, users: Sequence[int], regions: Sequence[str]) -> None:
        """Check-ins without a time; returns when the node has all of them on disk."""
        with self._named():
            self._client.checkin(users, regions, batch=_MOST_ROWS, strict=True)

    def total(self, slot: int) -> Total | None:
        """What the node published for a slot; None if it has not yet."""
        with self._named():
            rows = self._client.estimates(slot, slot)
        return total_of(zip(rows.estimate.tolist(), rows.low.tolist(), rows.high.tolist(), strict=True))

    def counters(self) -> tuple[float, int]:
        """(epsilon spent in the current window, messages sent to neighbours since the start)."""
        with self._named():
            lines = (line.partition(" ") for line in self._client.metrics().splitlines())
        values = {name: float(value) for name, _, value in lines if name in _METRICS}
        if len(values) != len(_METRICS):
            raise ApiFailed(f"{self.node.name} does not tell its budget and messages.")
        epsilon, messages = (values[name] for name in _METRICS)
        return epsilon, int(messages)

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except NodeError as error:
            failure = f"{self.node.name}: {error.message}"
        else:
            return
        raise ApiFailed(failure)


def total_of(regions: Iterable[tuple[float, float, float]]) -> Total | None:
    """The sum over regions of (estimate, low, high), NaN where nothing is known; None if there are no regions.

    The filter treats each region by itself, so variances add up: with half-widths h_k = 1.96 sigma_k the sum's
    half-width is 1.96 sqrt(sum sigma_k^2) = sqrt(sum h_k^2).
    """
    rows = list(regions)
    if not rows:
        return None
    if any(math.isnan(number) for row in rows for number in row):
        return Total(None, None, None)
    middle = math.fsum(estimate for estimate, _, _ in rows)
    half = math.sqrt(math.fsum(((high - low) / 2) ** 2 for _, low, high in rows))
    return Total(middle, middle - half, middle + half)
