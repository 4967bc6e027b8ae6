"""Dynamic grouping of regions (RescueDP): small regions that move alike share one noise draw.

Only released values are looked at. Regions whose value is at least tau1 stand alone. The others are sorted by value;
the smallest free one becomes a pivot and takes, in ascending order, each free region with |difference| < tau3, a
Pearson correlation of the last kappa releases above tau2, and a sum that stays below tau1. Two regions that both
stood still count as moving alike (correlation 1); one that stood still while the other moved as not (0).

The loop over regions is written once, in plain Python that Numba can compile: the simulator compiles it where
Numba is installed, a live server runs it as it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from dpcrowd.arrays import Bools, Floats, Ints

__all__ = ["Grouper", "compiled_grouper", "group_regions"]

Grouper = Callable[[Floats, Floats, Ints, Bools, float, float, float, Ints], None]


def _group_all(
    history: Floats, values: Floats, order: Ints, allowed: Bools, tau1: float, tau2: float, tau3: float, pivot: Ints
) -> None:
    """Fill `pivot` (N, d): the pivot region of each allowed region's group; -1 where not allowed.

    history  (N, kappa, d) last releases in the server's own units; values (N, d) their means
    order    (N, d) regions in ascending order of their values
    """
    servers, kappa, regions = history.shape
    for n in range(servers):
        for k in range(regions):
            pivot[n, k] = -1
        for position in range(regions):
            first = order[n, position]
            if pivot[n, first] >= 0 or not allowed[n, first]:
                continue
            pivot[n, first] = first
            total = values[n, first]
            for later in range(position + 1, regions):
                other = order[n, later]
                value = values[n, other]
                # Values ascend, so nothing further can be near enough or small enough either.
                if value >= tau1 or value - values[n, first] >= tau3 or total + value >= tau1:
                    break
                if pivot[n, other] >= 0 or not allowed[n, other]:
                    continue
                var_first = 0.0
                var_other = 0.0
                cov = 0.0
                # Asked of the releases themselves: the mean of equal numbers need not be that number.
                moved_first = False
                moved_other = False
                for h in range(kappa):
                    a = history[n, h, first] - values[n, first]
                    b = history[n, h, other] - value
                    var_first += a * a
                    var_other += b * b
                    cov += a * b
                    moved_first = moved_first or history[n, h, first] != history[n, 0, first]
                    moved_other = moved_other or history[n, h, other] != history[n, 0, other]
                if moved_first and moved_other:
                    # math.sqrt is correctly rounded everywhere; ** 0.5 is not, and Numba's differs from Python's.
                    alike = cov > tau2 * math.sqrt(var_first * var_other)
                else:
                    alike = tau2 < (1.0 if moved_first == moved_other else 0.0)
                if alike:
                    pivot[n, other] = first
                    total += value


@lru_cache(maxsize=1)
def compiled_grouper() -> Grouper:
    """The loop compiled by Numba, or as it is where Numba is missing; same numbers either way."""
    try:
        import numba
    except ImportError:
        return _group_all
    compiled: Grouper = numba.njit(cache=True)(_group_all)
    return compiled


def group_regions(
    history: Floats,
    filled: Ints,
    allowed: Bools,
    tau1: float,
    tau2: float,
    tau3: float,
    grouper: Grouper = _group_all,
) -> Ints:
    """The pivot of each region's group, (N, d): its own index where it stands alone, -1 where not `allowed`.

    history  (N, kappa, d) last releases; filled (N,) how many of them are there. Fewer than kappa: no grouping yet.
    """
    regions = np.arange(allowed.shape[1])
    pivot = np.where(allowed, regions, -1).astype(np.int64)
    ready = np.flatnonzero((filled >= history.shape[1]) & allowed.any(axis=1))
    if ready.size:
        chosen = np.ascontiguousarray(history[ready])
        values = chosen.mean(axis=1)
        order = np.argsort(values, axis=1, kind="stable").astype(np.int64)
        part = np.empty((ready.size, allowed.shape[1]), dtype=np.int64)
        grouper(chosen, values, order, np.ascontiguousarray(allowed[ready]), tau1, tau2, tau3, part)
        pivot[ready] = part
    return pivot
