"""What filters that work alone on the same crowd have in common: all miss the same changes.

The error of a filter is that of its prior, of which it keeps a part k, and the noise of its records: with a posterior
variance M and a prior variance P,

    e(t) = k (a e(t-1) + change) + noise of the records          k = M/P

The change is the same for all filters, and the noise is each one's own. So of the variance M a part C is shared,

    C(t) = k^2 (a^2 C(t-1) + q)          q = P - a^2 M(t-1)

which follows from the variances of one filter alone. A filter that starts from a model shares all of its first error;
one that starts from nothing shares none of it. An average of n estimates has all of what is shared, at most, and 1/n of
the rest:

    (1 - f) (mean of sqrt(M_i))^2 + f mean(M_i) / n          f = 1 - C/M, taken to be that of the own filter

Arrays are (N, d).
"""

from __future__ import annotations

import numpy as np

from dpcrowd.arrays import Floats

__all__ = ["average_var", "follow_shared", "start_shared"]


def start_shared(posterior_var: Floats) -> Floats:
    """Return C before the first slot: all that is known is shared; where nothing is known, nothing is."""
    return np.where(np.isfinite(posterior_var), posterior_var, 0.0)


def follow_shared(shared: Floats, before: Floats, prior_var: Floats, posterior_var: Floats, carried: Floats) -> Floats:
    """Return C of a slot; `before`: the posterior variance of the slot before, `carried`: a.

    >>> one = np.ones((1, 1))
    >>> float(follow_shared(0.0 * one, 2.0 * one, 4.0 * one, one, one)[0, 0])  # keeps a quarter of a change of 2
    0.125
    """
    known = np.isfinite(prior_var) & np.isfinite(before)
    with np.errstate(invalid="ignore", divide="ignore"):
        change = np.maximum(prior_var - np.square(carried) * before, 0.0)
        kept = np.where(prior_var > 0.0, posterior_var / prior_var, 1.0)
        after = np.square(kept) * (np.square(carried) * shared + change)
    return np.where(known, np.minimum(after, posterior_var), 0.0)


def average_var(shared_part: Floats, mean_deviation: Floats, mean_var: Floats, number: Floats) -> Floats:
    """Return the variance of the average of `number` estimates, of whose variances this part is shared."""
    return shared_part * np.square(mean_deviation) + (1.0 - shared_part) * mean_var / number
