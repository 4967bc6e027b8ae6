"""A level that moves in all regions by one factor: what a bank of filters believes of a crowd that grows or shrinks.

    r_i(t) = mu_i(t) (1 + g(t)) + e_i(t)          g(t+1) = rho g(t) + noise          e as the model says

A crowd that grows for good does so in most of its regions. A filter that follows every region for itself needs records
that show it in each of them; one number g shows in all records together, so it is known soon and precisely even where
the records of any single region say next to nothing.

The filter of the model, which takes g for 0, runs anyway. The one of this belief is that filter and a correction
(Friedland's separate estimation of a bias): with mean_i and var_i those of the model's filter,

    estimate of r_i = mean_i + V_i g          variance = max(1 + g, 1)^2 var_i + V_i^2 P          P: the variance of g

Deviations of a crowd that has grown are taken to have grown with it, and those of one that has shrunk to be what they
were. V_i is how much of g the model's filter has not followed: all of it, mu_i, where records say nothing, and less
where its own state takes the moved level for deviations. It is taken to be mu_i var_i / (variance of deviations of
which nothing is known), which is exact for deviations that do not last and for those that stay, and in between a factor
that regions have in common, which g makes up for. So g and P follow from the estimates and variances of the two
filters, and a bank has to remember nothing else. The records of a slot, with the innovations n_i of this belief and
S_i = var_i + R_i, give

    A = sum_i P V_i^2 / S_i          g += P sum_i V_i n_i / S_i / (1 + A)          P /= 1 + A

Of a group of regions, whose sum is one measurement, V, n and S are those of the sum. Arrays are (N, d), and (N, 1)
for g and P.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpcrowd.arrays import Floats, Ints
from dpcrowd.filters.course import Course
from dpcrowd.filters.groups import over_members

__all__ = ["RETURN", "CommonLevel", "not_followed", "predict_level", "start_var"]

RETURN = 0.998
"""rho: which part of g is left after a slot. Close to 1, since a crowd that has left its past may never come back."""
_STEP = 0.05
"""Standard deviation of what one slot adds to g: a filter of weak records lags behind a trend if it is small."""
_LEAST_PART = 1e-3
"""Of the level that a region has over the season: in an hour in which nobody is expected, g would be lost."""
_LEAST = 1e-300


@dataclass(frozen=True, eq=False)
class CommonLevel:
    """What is known of g before the records of a slot: V (N, d), g and P (N, 1)."""

    sensitivity: Floats
    level: Floats
    variance: Floats

    def estimate(self, mean: Floats, var: Floats) -> tuple[Floats, Floats]:
        """Return mean and variance of the belief, where those of the model's filter are given."""
        spread = _growth(self.level) * var + np.square(self.sensitivity) * self.variance
        return mean + self.sensitivity * self.level, spread

    def reach(self, groups: Ints | None) -> Floats:
        """Return by how much g moves what is measured of each region, (N, d): the sum of V over its group (d,)."""
        if groups is None:
            return self.sensitivity
        return over_members(self.sensitivity, np.broadcast_to(groups, self.sensitivity.shape))

    def added_var(self, groups: Ints) -> Floats:
        """Return what the members of a group have in common by g: by how much the variance of their sum is more than
        the sum of their variances, (N, d).
        """
        wide = np.broadcast_to(groups, self.sensitivity.shape)
        return (np.square(self.reach(groups)) - over_members(np.square(self.sensitivity), wide)) * self.variance

    def update(
        self, prior_mean: Floats, prior_var: Floats, info_vec: Floats, info_mat: Floats, groups: Ints | None = None
    ) -> CommonLevel:
        """Return what is known of g after fusing summed information; the priors are those of the model's filter.

        groups  (d,) of the records; the information is divided among their members by these priors (`groups`)
        """
        alone = 1.0 / (1.0 + info_mat * prior_var)
        weighted = self.sensitivity * alone
        reach = self.reach(groups)
        known = 1.0 + self.variance * (weighted * reach * info_mat).sum(axis=-1, keepdims=True)
        innovation = info_vec - info_mat * (prior_mean + reach * self.level)
        step = (weighted * innovation).sum(axis=-1, keepdims=True)
        variance = self.variance / known
        return CommonLevel(weighted, self.level + variance * step, variance)


def start_var(course: Course, slot: int, transition: Floats) -> Floats:
    """Return the variance of a slot before any record, (d,)."""
    settled = _STEP**2 / (1.0 - RETURN**2)
    return np.square(_expected(course, slot)) * settled + course.settled_var(slot, transition)


def predict_level(
    model_filter: tuple[Floats, Floats],
    belief: tuple[Floats, Floats],
    prior_var: Floats,
    course: Course,
    transition: Floats,
    slot: int,
    before: int,
) -> CommonLevel:
    """Return what is known of g before the records of a slot.

    model_filter, belief  mean and variance (N, d) of the slot `before`, of the model's filter and of this belief
    prior_var             (N, d) of the model's filter in this slot
    transition            a of the deviations
    """
    former = _sensitivity(course, before, transition, model_filter[1])
    square = np.square(former)
    total = np.maximum(square.sum(axis=-1, keepdims=True), _LEAST)
    level = (former * (belief[0] - model_filter[0])).sum(axis=-1, keepdims=True) / total
    variance = (belief[1] - _growth(level) * model_filter[1]).sum(axis=-1, keepdims=True) / total
    lasting_part = RETURN ** max(slot - before, 1)
    added = _STEP**2 * (1.0 - lasting_part * lasting_part) / (1.0 - RETURN**2)
    variance = lasting_part * lasting_part * np.maximum(variance, 0.0) + added
    return CommonLevel(_sensitivity(course, slot, transition, prior_var), lasting_part * level, variance)


def _growth(level: Floats) -> Floats:
    """Return the factor by which the variances of deviations have grown with the crowd."""
    return np.asarray(np.square(np.maximum(1.0 + level, 1.0)))


def _sensitivity(course: Course, slot: int, transition: Floats, var: Floats) -> Floats:
    """Return V (N, d), where the model's filter has this variance."""
    return np.asarray(_expected(course, slot) * not_followed(var, course.settled_var(slot, transition)))


def not_followed(var: Floats, settled: Floats) -> Floats:
    """Return which part (N, d) of a level that has moved the model's filter has not followed, by its variance.

    settled  (d,) variance of deviations of which nothing is known
    """
    part = np.divide(var, settled, out=np.ones_like(var), where=settled > 0.0)
    return np.asarray(np.minimum(part, 1.0))


def _expected(course: Course, slot: int) -> Floats:
    """Return mu of a slot, (d,), which is never nothing where there are people at another time of the season."""
    return np.asarray(np.maximum(course.mean(slot), _LEAST_PART * course.profile.mean(axis=0)))
