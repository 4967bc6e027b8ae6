"""The requests of a demo to one of its nodes, by `dpcrowd.Client`; errors name the node."""

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
    """A node does not answer, or refuses a request."""


@dataclass(frozen=True)
class Total:
    """A server's estimate of the complete crowd with its 95% interval; None as long as the server has no estimate."""

    estimate: float | None
    low: float | None
    high: float | None


class NodeClient:
    """A client of one node, for several threads."""

    def __init__(self, node: DemoNode, token: str) -> None:
        self.node = node
        # One retry: a node closes connections that were idle for some seconds.
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
        """Send check-ins without a time; return when the node has all of them on disk."""
        with self._errors_with_name():
            self._client.checkin(users, regions, batch=_MOST_ROWS, strict=True)

    def total(self, slot: int) -> Total | None:
        """Return the estimate that the node published for a slot; None if it has not published it yet."""
        with self._errors_with_name():
            rows = self._client.estimates(slot, slot)
        return total_of(zip(rows.estimate.tolist(), rows.low.tolist(), rows.high.tolist(), strict=True))

    def counters(self) -> tuple[float, int]:
        """Return the epsilon spent in the current window, and the number of messages sent since the start."""
        with self._errors_with_name():
            lines = (line.partition(" ") for line in self._client.metrics().splitlines())
        values = {name: float(value) for name, _, value in lines if name in _METRICS}
        if len(values) != len(_METRICS):
            raise ApiFailed(f"the metrics of {self.node.name} have no budget or messages.")
        epsilon, messages = (values[name] for name in _METRICS)
        return epsilon, int(messages)

    @contextmanager
    def _errors_with_name(self) -> Iterator[None]:
        try:
            yield
        except NodeError as error:
            failure = f"{self.node.name}: {error.message}"
        else:
            return
        raise ApiFailed(failure)


def total_of(regions: Iterable[tuple[float, float, float]]) -> Total | None:
    """Return the sum over regions of (estimate, low, high), which are NaN without an estimate; None without regions.

    The filter treats each region separately, so variances add up: with half-widths h_k = 1.96 sigma_k the sum's
    half-width is 1.96 sqrt(sum sigma_k^2) = sqrt(sum h_k^2). A demo has no fitted model that would say how far regions
    go together; its Q makes up for it (`crowd.crowd_model`).
    """
    rows = list(regions)
    if not rows:
        return None
    if any(math.isnan(number) for row in rows for number in row):
        return Total(None, None, None)
    middle = math.fsum(estimate for estimate, _, _ in rows)
    half = math.sqrt(math.fsum(((high - low) / 2) ** 2 for _, low, high in rows))
    return Total(middle, middle - half, middle + half)
