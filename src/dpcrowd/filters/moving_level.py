"""A level that moves in one region, beside the deviations of the model: what a bank believes of a slow drift.

    r(t) = mu(t) + l(t) + e(t)          l(t+1) = rho l(t) + noise          e as the model says

Most crowds have both: a level that goes up and down over weeks, and chance that is new in every slot. A filter with one
kind of deviation has to choose. If deviations fade as fast as chance does, the moved level is missed after every
record; if they last, chance is taken for nothing, and intervals are too narrow as soon as records are less precise than
it.

As in `common_level` this belief is the model's filter and a correction (Friedland's separate estimation of a bias),
here for every region by itself. With the mean m and the variance v of the model's filter,

    estimate of r = m + V l          variance = v + V^2 P          P: the variance of l

V is how much of l the model's filter has not followed: v by the variance of deviations of which nothing is known. What
a record says of r, it says of this sum, so the update is that of any filter. Before the next slot l and P are read off
the estimates and variances of both filters, and a bank has to remember nothing else. The level deviates from mu as far
as e does, and loses one part in a hundred per slot.
"""

from __future__ import annotations

import numpy as np

from dpcrowd.arrays import Floats
from dpcrowd.filters.common_level import not_followed
from dpcrowd.filters.course import Course

__all__ = ["LASTING_PART", "predict_moving", "start_moving"]

LASTING_PART = 0.99
"""rho: which part of l is left after a slot."""
_LEAST_PART = 1e-6
"""No V is smaller: where a record is exact both filters know the count, and nothing is left to read l off."""


def start_moving(course: Course, slot: int, transition: Floats) -> Floats:
    """Return the variance of a slot before any record, (d,)."""
    return np.asarray(2.0 * course.settled_var(slot, transition))


def predict_moving(
    model_filter: tuple[Floats, Floats],
    belief: tuple[Floats, Floats],
    prior: tuple[Floats, Floats],
    course: Course,
    transition: Floats,
    slot: int,
    before: int,
) -> tuple[Floats, Floats]:
    """Return mean and variance (N, d) of the belief before the records of a slot.

    model_filter, belief  mean and variance (N, d) of the slot `before`, of the model's filter and of this belief
    prior                 those of the model's filter in this slot
    transition            a of the deviations
    """
    steps = max(slot - before, 1)
    settled_before, settled = (course.settled_var(one, transition) for one in (before, slot))
    part_before = np.maximum(not_followed(model_filter[1], settled_before), _LEAST_PART)
    left = LASTING_PART**steps * course.ratio(before, slot)
    level = left * (belief[0] - model_filter[0]) / part_before
    variance = np.maximum(belief[1] - model_filter[1], 0.0) / np.square(part_before)
    # Where variances differ by season, the doubt about the level of a crowded day must not stay through a quiet night.
    variance = np.square(left) * np.minimum(variance, settled_before) + (1.0 - LASTING_PART ** (2 * steps)) * settled
    part = not_followed(prior[1], settled)
    return prior[0] + part * level, prior[1] + np.square(part) * variance
