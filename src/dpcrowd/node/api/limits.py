"""A limit on requests per token: a public number, which depends only on the token's own requests.

A limit on rows or users would let the check-ins of one person displace those of another, and reveal who is there.
"""

from __future__ import annotations

from dpcrowd.node.slots import SECOND

__all__ = ["RequestLimit"]


class RequestLimit:
    """At most `per_second` requests per second and token, with bursts of one second's requests (at least one)."""

    def __init__(self, per_second: float) -> None:
        self._per_second = per_second
        self._burst = max(per_second, 1.0)
        self._tokens: dict[str, tuple[float, int]] = {}  # requests that a token may make, and at which time

    def take(self, token: str, now_ns: int) -> bool:
        """Count one request; return False if the token has made too many."""
        if self._per_second <= 0:
            return True
        remaining, before_ns = self._tokens.get(token, (self._burst, now_ns))
        remaining = min(remaining + max(now_ns - before_ns, 0) * self._per_second / SECOND, self._burst)
        allowed = remaining >= 1.0
        self._tokens[token] = remaining - 1.0 if allowed else remaining, now_ns
        return allowed
