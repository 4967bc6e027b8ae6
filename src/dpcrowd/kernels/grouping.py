"""Group regions around pivots (RescueDP's dynamic grouping); the rule is described in `dpcrowd.grouping`.

There are no array operations for it: a live server, and a simulator without Numba, run this loop as it is.
"""

from __future__ import annotations

import math

from dpcrowd.arrays import Bools, Floats, Ints

__all__ = ["group_by_pivots"]


def group_by_pivots(
    history: Floats, values: Floats, order: Ints, allowed: Bools, tau1: float, tau2: float, tau3: float, pivot: Ints
) -> None:
    """Set `pivot` (N, d) to the pivot region of each allowed region's group, and to -1 where not allowed.

    history  (N, kappa, d) last releases in the server's own units
    values   (N, d) their means
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
