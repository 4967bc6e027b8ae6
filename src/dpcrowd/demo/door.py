"""A connection to one node's API, kept open, with a time limit on everything; one thread at a time."""

from __future__ import annotations

import http.client
import math
from dataclasses import dataclass
from typing import Any

import msgspec

from dpcrowd.demo.files import DemoNode
from dpcrowd.errors import DpcrowdError
from dpcrowd.node.api.views import EstimateRow

__all__ = ["ApiFailed", "Door", "Total", "total_of"]

_SECONDS = 5.0
_METRICS = {"dpcrowd_epsilon_spent": "epsilon", "dpcrowd_messages_sent_total": "messages"}


class ApiFailed(DpcrowdError):
    """A node does not answer, or refuses."""


_rows = msgspec.json.Decoder(list[EstimateRow])


@dataclass(frozen=True)
class Total:
    """A server's estimate of the whole crowd with its 95% interval; None as long as the server knows nothing."""

    estimate: float | None
    low: float | None
    high: float | None


class Door:
    """To one node."""

    def __init__(self, node: DemoNode, token: str) -> None:
        self.node, self._token = node, token
        self._connection = http.client.HTTPConnection("127.0.0.1", node.port, timeout=_SECONDS)

    def close(self) -> None:
        self._connection.close()

    def healthy(self) -> bool:
        """Whether the process answers."""
        try:
            return self._ask("GET", "/healthz")[0] == 200
        except ApiFailed:
            return False

    def send(self, body: bytes) -> None:
        """Check-ins as MessagePack; returns when the node has them on disk."""
        status, answer = self._ask("POST", "/v1/checkins", body)
        if status not in (202, 207):
            raise ApiFailed(f"{self.node.name} refused check-ins ({status}): {answer[:300].decode('utf-8', 'replace')}")

    def total(self, slot: int) -> Total | None:
        """What the node published for a slot; None if it has not yet."""
        status, answer = self._ask("GET", f"/v1/estimates?from={slot}&to={slot}")
        if status != 200:
            raise ApiFailed(f"{self.node.name} does not tell its estimates ({status}).")
        rows = _rows.decode(answer)
        return total_of([(row.estimate, row.low, row.high) for row in rows]) if rows else None

    def counters(self) -> tuple[float, int]:
        """(epsilon spent in the current window, messages sent to neighbours since the start)."""
        status, answer = self._ask("GET", "/metrics")
        found = {}
        for line in answer.decode().splitlines() if status == 200 else []:
            name, _, value = line.partition(" ")
            if name in _METRICS:
                found[_METRICS[name]] = float(value)
        if len(found) != len(_METRICS):
            raise ApiFailed(f"{self.node.name} does not tell its budget and messages ({status}).")
        return found["epsilon"], int(found["messages"])

    def _ask(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        headers = {"Authorization": f"Bearer {self._token}"}
        if body is not None:
            headers["Content-Type"] = "application/msgpack"
        try:
            return self._once(method, path, body, headers)
        except ConnectionError:  # a node closes connections that were idle for some seconds: once more, on a new one
            self._connection.close()
        except (OSError, http.client.HTTPException) as error:
            raise self._silent(error) from None
        try:
            return self._once(method, path, body, headers)
        except (OSError, http.client.HTTPException) as error:
            raise self._silent(error) from None

    def _once(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> tuple[int, bytes]:
        self._connection.request(method, path, body, headers)
        answer = self._connection.getresponse()
        return answer.status, answer.read()

    def _silent(self, error: Exception) -> ApiFailed:
        self._connection.close()  # the next request opens it anew
        return ApiFailed(f"{self.node.name} does not answer ({type(error).__name__}).")


def total_of(regions: list[tuple[Any, Any, Any]]) -> Total:
    """The sum over regions of (estimate, low, high).

    The filter treats each region by itself, so variances add up: with half-widths h_k = 1.96 sigma_k the sum's
    half-width is 1.96 sqrt(sum sigma_k^2) = sqrt(sum h_k^2).
    """
    if any(number is None for row in regions for number in row):
        return Total(None, None, None)
    middle = math.fsum(estimate for estimate, _, _ in regions)
    half = math.sqrt(math.fsum(((high - low) / 2) ** 2 for _, low, high in regions))
    return Total(middle, middle - half, middle + half)
