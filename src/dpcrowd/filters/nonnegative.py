"""A view of estimates in which no count is negative, and the total of all regions stays what it was.

Estimates are unbiased: noise moves them below 0 as often as above the truth, and sums over slots or regions average
that out. Whoever draws a map, or prints a number of people, wants no negative ones. Cutting off at 0 alone, or the mean
of a normal distribution that is cut off there, would turn the noise of every empty region into people. So the view is
the most likely vector of counts with the same total:

    minimise sum (x_k - estimate_k)^2 / variance_k        x_k >= 0,   sum x_k = max(sum estimate_k, 0)

Its solution is x_k = max(0, estimate_k - tau variance_k): what negative estimates gain, the others lose, uncertain ones
the most. tau follows from sorting, in closed form. The view costs no privacy, since it is computed from a release.

It is for reading one slot. A region's values are biased, above 0 where nobody is, so sums and averages over slots or
over some regions are better taken of the estimates.
"""

from __future__ import annotations

import numpy as np

from dpcrowd.arrays import Floats

__all__ = ["nonnegative_view"]


def nonnegative_view(estimate: Floats, variance: Floats) -> Floats:
    """Return the view of estimates (..., d) with variances (..., d); NaN where there is no estimate.

    Where a scheme gives no variances, all regions count as equally uncertain.

    >>> nonnegative_view(np.array([8.0, 3.0, -2.0]), np.array([1.0, 1.0, 1.0])).tolist()
    [7.0, 2.0, 0.0]
    """
    estimate = np.asarray(estimate, dtype=np.float64)
    shape = estimate.shape
    values = estimate.reshape(-1, shape[-1])
    widths = np.broadcast_to(variance, shape).reshape(values.shape)
    known = np.isfinite(values)
    is_usable = (np.isfinite(widths) & (widths >= 0.0)) | ~known
    widths = np.where(is_usable.all(axis=1, keepdims=True), np.where(known, widths, 0.0), 1.0)
    values = np.where(known, values, 0.0)
    total = np.maximum(values.sum(axis=1, keepdims=True), 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        # tau at which a region reaches 0; those that are exact never do, and negative ones are there at once.
        reaches = np.where(values > 0.0, values / widths, -np.inf)
        order = np.argsort(-reaches, axis=1, kind="stable")
        limit = np.take_along_axis(reaches, order, axis=1)
        kept = np.cumsum(np.take_along_axis(np.maximum(values, 0.0), order, axis=1), axis=1)
        spread = np.cumsum(np.take_along_axis(np.where(values > 0.0, widths, 0.0), order, axis=1), axis=1)
        step = np.where(spread > 0.0, (kept - total) / spread, -np.inf)
    # The regions that stay above 0 are the first ones in this order, as long as tau of them is below their limit.
    tau = np.max(np.where(step < limit, step, -np.inf), axis=1, keepdims=True, initial=-np.inf)
    tau = np.where(np.isfinite(tau), np.maximum(tau, 0.0), 0.0)
    view = np.maximum(values - tau * widths, 0.0)
    view = np.where(total > 0.0, view, 0.0)
    return np.where(known, view, np.nan).reshape(shape)
