"""Which link probability gives a wanted density, when isolated servers are joined afterwards.

G(n, p) has K isolated servers; joining them adds ceil(K / 2) links (see `repair`). The expected number of links is

    p n(n-1)/2 + (E[K] + P(K odd)) / 2,    E[K] = n q^(n-1),    q = 1 - p
    P(K odd) = (1 - E[(-1)^K]) / 2,        E[(-1)^K] = sum_k C(n,k) (-2)^k q^(k(n-1) - k(k-1)/2)

(the last by expanding the product of 1 - 2*[server i is isolated]). One more link takes away at most one pair of
isolated servers, so the expectation never falls as p grows, and bisection finds p. The fewest links that leave nobody
alone are ceil(n / 2): no lower density exists.
"""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from functools import lru_cache

from dpcrowd.errors import BadInput

__all__ = ["expected_links", "link_probability", "lowest_density"]

EXACT_SERVERS = 300
"""Up to here P(K odd) is exact; beyond, K counts as Poisson, which is off by at most a quarter of a link.

That quarter is a tenth of p for 12 servers of density 0.1, and another p gives other graphs for every seed.
"""

SLACK = 1e-9
"""Relative rounding that is forgiven at the two ends of the range."""


def lowest_density(servers: int) -> float:
    """The density of the sparsest graph without an isolated server: 1/(n-1) for even n, a little more for odd."""
    return 2.0 * math.ceil(servers / 2) / (servers * (servers - 1))


def expected_links(servers: int, p: float) -> float:
    """Expected number of links of a repaired G(servers, p)."""
    alone = servers * (1.0 - p) ** (servers - 1)
    return p * servers * (servers - 1) / 2 + (alone + _odd(servers, p, alone)) / 2


@lru_cache(maxsize=256)
def link_probability(servers: int, density: float) -> float:
    """The p for which the expected density after the repair is `density`."""
    lowest = lowest_density(servers)
    if not lowest * (1 - SLACK) <= density <= 1 + SLACK:
        raise BadInput(
            f"density {density} for {servers} servers; allowed: {lowest:.6g} (nobody isolated) to 1 (all linked)."
        )
    if density >= 1 - SLACK:
        return 1.0
    wanted = density * servers * (servers - 1) / 2
    low, high = 0.0, density  # the repair only adds links
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        if expected_links(servers, middle) < wanted:
            low = middle
        else:
            high = middle
        if high < 1e-15:
            return 0.0
    return high


def _odd(servers: int, p: float, alone: float) -> float:
    """Probability that the number of isolated servers is odd."""
    if p >= 1.0:
        return 0.0
    if servers > EXACT_SERVERS:
        return (1.0 - math.exp(-2.0 * alone)) / 2
    with localcontext() as context:
        # The terms alternate and grow up to about 3^n, while their sum lies in [-1, 1]: carry the digits that cancel.
        context.prec = servers // 2 + 40
        q = 1 - Decimal(p)
        power, step = q ** (servers - 1), 1 / q
        term = total = Decimal(1)
        for k in range(servers):
            term = term * (-2 * (servers - k)) / (k + 1) * power
            power *= step
            total += term
        return float((1 - total) / 2)
