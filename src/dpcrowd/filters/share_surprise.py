"""A crowd that surprises, while shares are learned: a holiday is no error of all shares.

The joint filter (`share_learning`) has one normal distribution of the crowd r, with the mean m and the variance v that
filters that learn (`learning`) have together. They themselves have several, each with a weight p_k, and a holiday that
is far off for the mixture's variance is not for a lively one of them. If the joint filter took v for granted, it would
rather believe that the shares of all servers that were heard are wrong; a width (`share_widths`) with which they cannot
be so wrong would be ruled out for good, by one slot. So before the records z of a slot are fused, they say which of the
beliefs k is right, for each width w:

    L(w, k) = N(z; expected + h (m_k - m), S_w + max(v_k - v, 0) h h^T)   h: how much of r is in each record
                                                                          S_w: covariances of z with the width w
    A(w)    = prod over regions of sum_k p_k L(w, k)                      each region for itself
    T(w, k) = prod over regions of L(w, k)                                what happens, happens in all of them
    P       ~ p(w) (4 A(w) + sum_k p_k T(w, k))                           widths are the same in all regions
    q_k     = the probability of k in a region, by both

With a = h^T S^-1 h and b = h^T S^-1 e all of them follow from one root per width. The variance v becomes larger by

    sum_k q_k (v_k + (m_k - m)^2)/u          u = sum_k p_k (v_k + (m_k - m)^2) over the filters

and never smaller; less than half as much again is left out. What the records say of the crowd after that, the filters
that learn get as they do with public shares. A record that is far off counts less already, so no single one can say
that everything has changed.

Larger variances than any belief has, in all regions at once, were tried: a day on which nearly nobody comes is then
seen in its first hours, and not after four of them; but where shares are very wrong (composition 0.5), errors are 12%
larger.

A filter that expects deviations which are mostly small and sometimes large (`tails`) is several k: a burst may begin,
stay or be over. For the one normal distribution that such a filter goes on with, each beginning and end of a burst is
four standard deviations off, and records of crowds that come and go would say of right shares that they are very wrong.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpcrowd.arrays import Floats
from dpcrowd.filters.share_beginning import square_root
from dpcrowd.filters.share_settling import expected_part
from dpcrowd.filters.share_state import ExpectedRecords, ShareFilter
from dpcrowd.filters.share_widths import directions_of, weigh_widths

__all__ = ["CrowdBeliefs", "surprise"]

_TOGETHER = 0.2
"""The probability that one belief is right in all regions, as in `bank_estimate`."""
_LEAST_WEIGHT = 1e-9
"""A width that is less probable has nothing to say."""
_LEAST_GROWTH = 1.5
"""A smaller factor changes hardly anything; receivers with different records then expect the same, which is computed
once."""
_LEAST = 1e-300


@dataclass(frozen=True)
class CrowdBeliefs:
    """What is believed of a crowd before the records of a slot.

    mean, var, spread     (d,) m, v and u
    means, vars, weights  (k, d) of the filters that learn, as normal distributions
    """

    mean: Floats
    var: Floats
    spread: Floats
    means: Floats
    vars: Floats
    weights: Floats


def surprise(
    known: ShareFilter, expected: ExpectedRecords, public: Floats, width: float, beliefs: CrowdBeliefs
) -> Floats:
    """Return the factors (d,), 1 or more, by which the variances of the crowd become larger.

    known   the filter before the records, and what it expects of them
    public  (m, d) shares
    """
    directions, widths = directions_of(known, public.T), weigh_widths(known, public.T, width)
    common = np.einsum("dij,dkj->dki", directions.to, expected.common[:, :, 1 : len(public) + 1])  # Cov(z, y)
    probable = np.flatnonzero(widths.weight > _LEAST_WEIGHT)
    shift, more = beliefs.means - beliefs.mean, np.maximum(beliefs.vars - beliefs.var, 0.0)
    part = expected_part(known.mean[:, 1 : len(public) + 1], public.T, known.silent)
    share = expected.share * np.where(known.settled, part, 1.0)[:, None]  # of r, where the state has q = f r
    evidence = np.empty((len(probable), *more.shape))
    for number, one in enumerate(probable):
        drawn = common * (widths.added[one][:, None] / widths.diagonal[one])[:, None, :]
        off = expected.innovation + np.einsum("dki,di->dk", drawn, widths.mean)
        cov = expected.cov - drawn @ common.swapaxes(1, 2)
        np.einsum("dkk->dk", cov)[...] += expected.noise
        root = square_root(0.5 * (cov + cov.swapaxes(1, 2)))
        seen = np.linalg.solve(root, np.stack([off, share], axis=2))
        a, b = np.square(seen[:, :, 1]).sum(axis=1), (seen[:, :, 0] * seen[:, :, 1]).sum(axis=1)
        alone = -0.5 * np.square(seen[:, :, 0]).sum(axis=1) - np.linalg.slogdet(root)[1]
        left = b - a * shift
        evidence[number] = alone + shift * (b - 0.5 * a * shift)
        evidence[number] += 0.5 * (more * np.square(left) / (1.0 + more * a) - np.log1p(more * a))
    return _growth(evidence, np.log(widths.weight[probable]), beliefs)


def _growth(evidence: Floats, log_weight: Floats, beliefs: CrowdBeliefs) -> Floats:
    """Return the factors (d,) from log L, (w, k, d), and the logarithms of the weights of widths, (w,)."""
    most = evidence.max(axis=1)
    joint = beliefs.weights * np.exp(evidence - most[:, None])
    total = np.maximum(joint.sum(axis=1), _LEAST)
    apart = log_weight + (np.log(total) + most).sum(axis=1) + math.log(1.0 - _TOGETHER)
    common = np.log(np.maximum(beliefs.weights.mean(axis=1), _LEAST))
    together = log_weight[:, None] + common + evidence.sum(axis=2) + math.log(_TOGETHER)
    top = max(apart.max(), together.max())
    apart, together = np.exp(apart - top), np.exp(together - top)
    right = np.einsum("w,wkd->kd", apart, joint / total[:, None]) + together.sum(axis=0)[:, None]
    spread = beliefs.vars + np.square(beliefs.means - beliefs.mean)
    found = (right * spread).sum(axis=0) / (apart.sum() + together.sum())
    return np.where(found > _LEAST_GROWTH * beliefs.spread, found / beliefs.spread, 1.0)
