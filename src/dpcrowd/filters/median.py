"""A view of estimates that is closest most often: the median of what is known of a count, instead of its mean.

Estimates are means, or means of beliefs that are each as likely too high as too low (`bank_estimate`): they have a
small squared error and can be added up. The number with the smallest absolute error is the median. Where few people
are, the two differ a lot: of a count with mean 0.2 that is mostly 0, the median is 0, and a guess of 0 has little more
than half the absolute error of a guess of 0.2. An estimate m with variance v says of a count:

    m >= 3 sqrt(v)   it is far from 0, and as likely above m as below: the median is m
    else             it is not negative, and skewed: a negative binomial count with mean max(m, 0) and variance v, at
                     least that of a Poisson count, since people who come independently vary so much, and at most
                     m + m^2, that of a geometric one: the variances of estimates contain doubt about the mean, too

The median of such a count is found by adding up probabilities p_n, with mean m and variance v >= m,

    log p_0 = -m log(v/m) / (v/m - 1)                 -m where v = m
    p_(n+1) = p_n (n (1 - m/v) + m^2/v) / (n + 1)

and above a mean of 100, where one person more or less does not matter, it is that of a gamma distribution, which
Wilson and Hilferty give as m (1 - v/(9 m^2))^3. The view costs no privacy, since it is computed from a release.

It is for reading single numbers. It is biased downwards: the sum over regions in which hardly anybody is, is 0,
although some people are there. Sums and averages, over slots or regions, have to be taken of the estimates.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpcrowd.arrays import Floats

__all__ = ["median_view"]

_FAR = 3.0  # standard deviations from 0
_LARGEST_SUMMED = 100.0
_LARGEST_VARIANCE = 1e300  # its ratio to a mean is a finite number


def median_view(estimate: Floats, variance: Floats) -> Floats:
    """Return the medians of counts with estimates and variances of one shape; NaN where either is not known.

    >>> median_view(np.array([0.2, 1.2, 40.0, -3.0]), np.array([0.3, 1.2, 4.0, 9.0])).tolist()
    [0.0, 1.0, 40.0, 0.0]
    """
    estimate, variance = np.asarray(estimate, dtype=np.float64), np.asarray(variance, dtype=np.float64)
    known = np.isfinite(estimate) & np.isfinite(variance) & (variance >= 0.0)
    mean = np.where(known, np.maximum(estimate, 0.0), 0.0)
    spread = np.where(known, np.minimum(variance, _LARGEST_VARIANCE), 0.0)
    skewed = mean < _FAR * np.sqrt(spread)
    view = np.where(skewed, 0.0, mean)
    # P(count > 0) <= mean: up to a mean of 1/2, the median is 0.
    summed = skewed & (mean > 0.5) & (mean <= _LARGEST_SUMMED)
    with np.errstate(over="ignore"):
        spread = np.minimum(spread, mean + np.square(mean))
    view[summed] = _counted(mean[summed], np.maximum(spread[summed], mean[summed]))
    large = skewed & (mean > _LARGEST_SUMMED)
    root = 1.0 - (spread[large] / mean[large]) / (9.0 * mean[large])
    view[large] = mean[large] * np.maximum(root, 0.0) ** 3
    return np.where(known, view, np.nan)


def _counted(mean: NDArray[np.float64], variance: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the medians of negative binomial counts, (n,), with a mean above 0 and a variance not below it."""
    median = np.zeros(len(mean))
    excess = variance / mean - 1.0
    with np.errstate(invalid="ignore"):
        decay = np.where(excess > 0.0, np.log1p(excess) / excess, 1.0)
    probability = np.exp(-mean * decay)
    below = probability.copy()
    slope, start = 1.0 - mean / variance, mean * (mean / variance)
    open_ones = np.flatnonzero(below < 0.5)
    # A median is at most ln 2 above the mean of a Poisson count, and lower if the count is more skewed.
    for number in range(int(np.ceil(mean.max(initial=0.0))) + 1):
        if not len(open_ones):
            break
        rest = slope[open_ones] * number + start[open_ones]
        probability[open_ones] *= rest / (number + 1)
        below[open_ones] += probability[open_ones]
        median[open_ones] += 1.0
        open_ones = open_ones[below[open_ones] < 0.5]
    return median
