"""Records of groups: one noisy sum of several regions is one measurement of their sum.

A record may join small regions into groups. Of a group g it holds z = H sum_{k in g} r_k + noise, with one draw of
noise. A filter with full covariances takes the measurement as it is. In diagonal form it is divided among the members
by their prior variances P, which is the exact update without the covariances that follow from it:

    gain_k = P_k H / (H^2 sum P + R)        var_k = P_k - P_k^2 H^2 / (H^2 sum P + R)

That is what one measurement of region k alone leads to, the sum less what is expected of the other members:

    z/H - sum_{j != k} prior_j              with the variance R/H^2 + sum_{j != k} P_j

So a group becomes an information vector and matrix per region, as any other record, and everything that takes these
goes on as it does without groups. Records of one slot with the same groups are summed first: their members have the
same errors in common. Records with other groups follow one after the other.

Bound. A filter that expects nothing of a region (no course) cannot tell the members of a group apart: its variances
grow, and its means keep whatever noise they had when the group began. But no count is negative, so each of n members is
between 0 and the sum. If nothing else is known, they share the sum s evenly, each with the variance

    B = (s/n)^2 + max(s/n, 1/n) + Var(s)/n

(the first term of a uniform distribution over all ways to divide s, the second for counts being whole numbers; the
third keeps Var(s) the sum of the members' variances). Where the variance of a member would be above twice that, it
is B, and the member gets an even part of what the other members leave of s. With a course the model says how the
members differ, and there is no bound.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpcrowd.arrays import Floats, Ints

__all__ = [
    "Divided",
    "GroupedSums",
    "divide_sums",
    "group_sizes",
    "leads",
    "over_members",
    "same_group",
    "spread_values",
]

_BEYOND = 2.0
"""A variance is replaced by its bound if it is above this many times the bound."""

Divided = tuple[Floats, Floats]
"""Information vectors and matrices, (N, d) each."""


@dataclass(frozen=True, eq=False)
class GroupedSums:
    """The information of those records of a slot that have the same groups, of N receivers, before it is divided.

    groups    (d,) the lowest region of each region's group
    y, info   (N, d) sums of H z/R and H^2/R over the records, each group's at all of its members; 0: there is none
    """

    groups: Ints
    y: Floats
    info: Floats


def leads(groups: Ints) -> Floats:
    """Return 1 where a region is the lowest of its group, at which a record has its value, and 0 elsewhere."""
    return np.asarray(groups == np.arange(groups.shape[-1]), dtype=np.float64)


def spread_values(values: Floats, groups: Ints) -> Floats:
    """Return the values (n, d) of records with each group's value at all of its members.

    >>> spread_values(np.array([[5.0, 0.0, 2.0]]), np.array([[0, 0, 2]])).tolist()
    [[5.0, 5.0, 2.0]]
    """
    return np.take_along_axis(values, groups, axis=1)


def over_members(values: Floats, groups: Ints) -> Floats:
    """Return, at each region, the sum of the values (n, d) over the members of its group, added in their order.

    >>> over_members(np.array([[1.0, 2.0, 4.0]]), np.array([[0, 0, 2]])).tolist()
    [[3.0, 3.0, 4.0]]
    """
    number, regions = values.shape
    place = np.arange(number)[:, None] * regions + groups
    sums = np.bincount(place.ravel(), weights=values.ravel(), minlength=number * regions)
    return np.asarray(sums[place])


def group_sizes(groups: Ints) -> Ints:
    """Return how many members the group of each region has, (d,), from groups (d,)."""
    return np.bincount(groups, minlength=len(groups))[groups]


def same_group(groups: Ints) -> Floats:
    """Return a matrix (d, d) with 1 where two regions are in one group."""
    return np.asarray(groups[:, None] == groups[None, :], dtype=np.float64)


def divide_sums(
    info_vec: Floats, info_mat: Floats, groups: Ints, prior: Floats, prior_var: Floats, *, bounded: bool
) -> Divided:
    """Return the information on each region in sums over records that have the same groups.

    info_vec, info_mat  (N, d) sums of H z/R and H^2/R over the records, each group's at all of its members
    groups              (d,) of these records
    prior, prior_var    (N, d) what is expected before them; an infinite variance: nothing
    bounded             whether variances have the bound above
    """
    sizes = group_sizes(groups)
    joined = sizes > 1
    if not joined.any():
        return info_vec, info_mat
    wide = np.broadcast_to(groups, prior.shape)
    known = np.isfinite(prior_var)
    var, mean = np.where(known, prior_var, 0.0), np.where(known, prior, 0.0)
    all_var, all_mean = over_members(var, wide), over_members(mean, wide)
    unknown = over_members((~known).astype(np.float64), wide)
    measured = joined & (info_mat > 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        total, total_var = info_vec / info_mat, 1.0 / info_mat
        alone = 1.0 / (total_var + np.maximum(all_var - var, 0.0))
        alone = np.where(measured & (unknown - ~known == 0.0), alone, 0.0)
        value = np.where(alone > 0.0, alone * (total - (all_mean - mean)), 0.0)
        if bounded:
            value, alone = _bounded(
                (value, alone), (prior, prior_var), (total, total_var), (all_mean, all_var), wide, measured, unknown
            )
    return np.where(joined, value, info_vec), np.where(joined, alone, info_mat)


def _bounded(
    divided: Divided,
    prior: tuple[Floats, Floats],
    measurement: tuple[Floats, Floats],
    expected: tuple[Floats, Floats],
    groups: Ints,
    measured: np.ndarray,
    unknown: Floats,
) -> Divided:
    """Return the information that leads to the bound where the divided one would lead to more than twice of it.

    measurement  of the groups' sums: mean and variance; expected: the same of what the known members sum up to
    """
    value, alone = divided
    mean, var = prior
    total, total_var = measurement
    before, before_var = expected
    gain = np.where(unknown > 0.0, 1.0, before_var / (before_var + total_var))
    crowd = np.where(unknown > 0.0, total, before + gain * (total - before))
    crowd_var = np.where(unknown > 0.0, total_var, before_var * total_var / (before_var + total_var))
    number = group_sizes(groups[0]).astype(np.float64)
    each = np.maximum(crowd, 0.0) / number
    bound = each * each + np.maximum(each, 1.0 / number) + crowd_var / number
    precision = 1.0 / var + alone
    after_var = np.where(precision > 0.0, 1.0 / precision, np.inf)
    beyond = measured & (after_var > _BEYOND * bound)
    after = np.where(np.isfinite(after_var), mean + (value - alone * mean) * after_var, 0.0)
    rest = crowd - over_members(np.where(beyond, 0.0, after), groups)
    part = rest / np.maximum(over_members(beyond.astype(np.float64), groups), 1.0)
    tightened = 1.0 / bound - 1.0 / var
    target = part / bound - np.where(np.isfinite(var), mean, 0.0) / var
    return np.where(beyond, target, value), np.where(beyond, tightened, alone)
