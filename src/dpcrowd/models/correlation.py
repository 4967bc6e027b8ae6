"""How far the deviations of regions go together, and how long: the correlation of two regions on average, and how much
of what regions have in common is left after a slot.

Let S(t) be the sum of the deviations e_k(t) over the regions, and P_k the mean of e_k(t)^2. If every two regions had
the correlation rho,

    mean of S^2 = sum_k P_k + rho ((sum_k sqrt(P_k))^2 - sum_k P_k)

which says what rho is. Deviations last, and a short series has few independent ones: n slots whose sum has the
autocorrelation a tell as much as n (1 - a^2)/(1 + a^2) independent ones. So that chance is not taken for a correlation,
the mean of S^2 counts without two of its standard errors, and a correlation below 0 is 0.

What two regions have in common lasts as long as their products do, in which the deviations that each region has of its
own cancel out:

    c(n) = mean over t and j != k of e_j(t) e_k(t-n)         b minimises the sum of (c(n)/c(0) - b^n)^2 over n = 1 to 4

Several n, because counts of neighbouring slots may be shifted: what is late in one hour is counted in the next one, and
c(1) alone can then be larger than c(0).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dpcrowd.arrays import Floats

__all__ = ["common_transition", "mean_correlation"]

_LARGEST_A = 0.995
_LONGEST = 0.99
"""What regions have in common is taken to be forgotten at last; filters have another belief for crowds that grow."""
_STEPS = range(1, 5)
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


def common_transition(blocks: Sequence[Floats]) -> float:
    """Return which part of what regions have in common is left after a slot, from the deviations (T, d) of some blocks.

    >>> rng = np.random.default_rng(1)
    >>> common = np.zeros((4000, 1))
    >>> for slot in range(1, 4000):
    ...     common[slot] = 0.8 * common[slot - 1] + rng.normal(0.0, 1.0)
    >>> round(common_transition([rng.normal(0.0, 1.0, (4000, 20)) + common]), 1)
    0.8
    """
    together = _mean_product(blocks, 0)
    if together <= 0.0:
        return 0.0
    seen = [_mean_product(blocks, steps) / together for steps in _STEPS if any(len(block) > steps for block in blocks)]
    possible = np.linspace(0.0, _LONGEST, 100)
    missed = sum((np.square(part - possible**steps) for steps, part in zip(_STEPS, seen, strict=False)), np.zeros(100))
    return round(float(possible[np.argmin(missed)]), 2)


def _mean_product(blocks: Sequence[Floats], steps: int) -> float:
    """Return the mean over slots of the products of two different regions that are so many slots apart."""
    pairs = [(block[steps:], block[: len(block) - steps]) for block in blocks if len(block) > steps]
    total = sum(float((one.sum(axis=1) * other.sum(axis=1)).sum() - (one * other).sum()) for one, other in pairs)
    return total / max(sum(len(one) for one, _ in pairs), 1)
