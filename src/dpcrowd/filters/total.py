"""The variance of the total of all regions, whose errors are not independent where the crowd rises and falls together.

A filter that knows a course misses a part k of what a region does unexpectedly; the noise of records is each region's
own. With M the variance of its estimates, P that of deviations of which nothing is known, and q = (1 - a^2) P what a
slot adds to them (`course`),

    e(t) = k (a e(t-1) + w(t)) + noise of the records          k = M / (a^2 M + q)

so of the variance M of an error the part C = c^2 comes from the w of all slots up to now (as in `shared_errors`):

    c^2 = k^2 q / (1 - a^2 k^2)

which is M where records say nothing, and M^2/P where deviations do not last. The w of two regions have the correlation
rho of the model (`region_correlation`). So the covariance of two errors is rho c_j c_k, or a little less where the k of
both differ, and

    variance of the total = sum_k M_k + rho ((sum_k c_k)^2 - sum_k c_k^2)

Filters that learn may have found that the crowd has left its past, and claim more than P: then all of M counts as
shared, c = sqrt(M). Without a course, or where rho is not known, errors are taken for independent. A sum of regions
that was measured as one (`groups`) is known better than this says.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpcrowd.arrays import Floats, PerRegion
from dpcrowd.filters.course import Course
from dpcrowd.filters.model import ProcessModel

__all__ = ["common_part", "total_vars"]


def common_part(variance: Floats, settled_var: Floats, transition: Floats) -> Floats:
    """Return c^2, from the variances M of estimates, P and a: the part of M that comes from what the crowd did.

    >>> one = np.ones(1)
    >>> [float(common_part(m * one, 4.0 * one, np.zeros(1))[0]) for m in (2.0, 4.0, 9.0)]
    [1.0, 4.0, 9.0]
    """
    square = np.square(transition)
    added = (1.0 - square) * settled_var
    predicted = square * variance + added
    kept = np.divide(variance, predicted, out=np.ones_like(variance), where=predicted > variance)
    part = np.square(kept) * added
    rest = 1.0 - square * np.square(kept)
    return np.where(kept < 1.0, part / rest, variance)


def total_vars(variances: Sequence[PerRegion], slots: Sequence[int], model: ProcessModel | None) -> Floats:
    """Return the variance of the total in each slot, (T,), from those of the regions, (d,) in each.

    model  that of the filters, with the same regions; None: not known

    Where a region is not known, neither is the total.

    >>> course = Course(np.array([[40.0, 40.0]]), np.array([[9.0, 9.0]]))
    >>> model = ProcessModel.around(course, 0.0, region_correlation=0.5)
    >>> total_vars([np.array([9.0, 9.0]), np.array([3.0, 3.0])], [5, 6], model).tolist()
    [27.0, 7.0]
    """
    alone = np.array([variance.sum() for variance in variances])
    if model is None or model.course is None or not model.region_correlation:
        return alone
    for place, settled in enumerate(_settled_vars(model.course, model.transition, slots)):
        if np.isfinite(alone[place]):
            part = common_part(variances[place], settled, model.transition)
            alone[place] += model.region_correlation * (np.square(np.sqrt(part).sum()) - part.sum())
    return alone


def _settled_vars(course: Course, transition: Floats, slots: Sequence[int]) -> list[PerRegion]:
    """Return what `settled_var` does for each slot; from one slot to a later one it takes only the slots in between."""
    found: list[PerRegion] = []
    before = 0
    for slot in slots:
        steps = slot - before
        if not found or steps < 1:
            settled = course.settled_var(slot, transition)
        else:
            left = np.square(course.carried(transition, slot, steps))
            settled = np.asarray(left * found[-1] + course.added_var(slot, steps, transition))
        found.append(settled)
        before = slot
    return found
