"""How far the deviations of regions go together: one number, the correlation of two regions on average.

Let S(t) be the sum of the deviations e_k(t) over the regions, and P_k the mean of e_k(t)^2. If every two regions had
the correlation rho,

    mean of S^2 = sum_k P_k + rho ((sum_k sqrt(P_k))^2 - sum_k P_k)

which says what rho is. Deviations last, and a short series has few independent ones: n slots whose sum has the
autocorrelation a tell as much as n (1 - a^2)/(1 + a^2) independent ones. So that chance is not taken for a correlation,
the mean of S^2 counts without two of its standard errors, and a correlation below 0 is 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dpcrowd.arrays import Floats

__all__ = ["mean_correlation"]

_LARGEST_A = 0.995
_ERRORS = 2.0
"""By how many standard errors the variance of the sum is reduced."""


def mean_correlation(blocks: Sequence[Floats], slots: int) -> float:
    """Return the correlation that the deviations (T, d) of some blocks show beyond chance, from 0 to 1.

    slots  how many different slots the blocks have

    >>> rng = np.random.default_rng(1)
    >>> own, common = rng.normal(0.0, 1.0, (400, 20)), rng.normal(0.0, 1.0, (400, 1))
    >>> mean_correlation([own], 400), round(mean_correlation([own + common], 400), 1)
    (0.0, 0.4)
    """
    number = sum(len(block) for block in blocks)
    variances = sum(np.square(block).sum(axis=0) for block in blocks) / max(number, 1)
    alone = float(np.sum(variances))
    together = float(np.square(np.sqrt(variances).sum()))
    if number < 2 or together - alone <= 1e-9 * together:
        return 0.0
    sums = [block.sum(axis=1) for block in blocks]
    squares = sum(float(np.square(one).sum()) for one in sums)
    if squares == 0.0:
        return 0.0
    products = sum(float((one[1:] * one[:-1]).sum()) for one in sums)
    a = min(max(products / squares, 0.0), _LARGEST_A)
    independent = max(slots * (1.0 - a * a) / (1.0 + a * a), 1.0)
    of_sum = squares / number / (1.0 + _ERRORS * math.sqrt(2.0 / independent))
    return min(max((of_sum - alone) / (together - alone), 0.0), 1.0)
