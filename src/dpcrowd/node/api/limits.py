"""A limit on requests per token: a public number, which depends on nothing but the token's own requests.

A limit on rows or users would let one person's check-ins displace another's, and its answers would tell who is there.
"""

from __future__ import annotations

from dpcrowd.node.slots import SECOND

__all__ = ["RequestLimit"]


class RequestLimit:
    """At most `per_second` requests per second and token, and as many at once as come in one second (at least one)."""

    def __init__(self, per_second: float) -> None:
        self._per_second = per_second
        self._burst = max(per_second, 1.0)
        self._left: dict[str, tuple[float, int]] = {}  # requests that a token may make, and when that was so

    def take(self, token: str, now_ns: int) -> bool:
        """Count one request; False if the token has made too many."""
        if self._per_second <= 0:
            return True
        left, before_ns = self._left.get(token, (self._burst, now_ns))
        left = min(left + max(now_ns - before_ns, 0) * self._per_second / SECOND, self._burst)
        allowed = left >= 1.0
        self._left[token] = left - 1.0 if allowed else left, now_ns
        return allowed
