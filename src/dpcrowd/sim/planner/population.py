"""The population that a plan writes into its file: a number of people that the crowd of a slot hardly ever exceeds.

Live servers refuse records of far more people than that, and `dpcrowd node doctor` asks whether so many fit into memory
and journal. The sum of the expected levels would be too small for both: counts deviate, and a model that is fitted
later on the network's own releases expects a few more or a few less.

    population  =  max over the season of  M + 3 sqrt(V)

M is the expected total of all regions, and V its variance. Around a process model a region has v = q/(1 - a^2). A
random walk does not stay near its level: over the n slots of a window or horizon it moves by v = n Q. Public data show
their own busiest slot, and how their total varies. With c the correlation of the regions, as far as a model says it,

    V = (1 - c) sum(v) + c (sum sqrt(v))^2
"""

from __future__ import annotations

import math

import numpy as np

from dpcrowd.arrays import Floats
from dpcrowd.sim.planner.request import Levels, PlanRequest

__all__ = ["planned_population"]

_DEVIATIONS = 3.0  # of a normal variable: one slot in 740 has more people
_DIGITS = 2
_ROUNDING = 1e-6  # a number that is round but for its last bits stays what it is


def planned_population(request: PlanRequest) -> int:
    """Return the number of people that a slot hardly ever exceeds, rounded up to two digits."""
    return _rounded_up(_largest(request.levels, request.length))


def _largest(levels: Levels, length: int) -> float:
    """Return M + 3 sqrt(V) where it is largest; `length` is that of the window or horizon, in slots."""
    if levels.transition is None:
        if levels.series is not None:
            total = levels.series.levels.sum(axis=2)
            return max(float(total.max()), float(total.mean() + _DEVIATIONS * total.std()))
        return _bound(np.array(levels.level), length * np.array(levels.process_var), 0.0)
    lasting = 1.0 - np.square(levels.transition)
    common = max(levels.region_correlation or 0.0, 0.0)
    level, variance = np.array([levels.level]), np.array([levels.process_var]) / lasting
    if levels.season is not None:
        level, variance = levels.season.level, levels.season.process_var / lasting
    bounds = [_bound(*row, common) for row in zip(level, variance, strict=True)]
    if levels.crowd is not None:
        misfit = max(levels.crowd.misfit, 1.0)
        bounds.append(_bound(np.array(levels.crowd.mean), misfit**2 * np.array(levels.crowd.variance), common))
    return max(bounds)


def _bound(level: Floats, variance: Floats, correlation: float) -> float:
    """Return M + 3 sqrt(V) of regions with these expected counts and variances."""
    apart, together = float(variance.sum()), float(np.sqrt(variance).sum()) ** 2
    deviation = math.sqrt((1.0 - correlation) * apart + correlation * together)
    return float(level.sum()) + _DEVIATIONS * deviation


def _rounded_up(value: float) -> int:
    """Return the next number with two digits: 392.3 becomes 400, and 12,010 becomes 13,000."""
    whole = max(1, math.ceil(value - _ROUNDING))
    unit: int = 10 ** max(0, len(str(whole)) - _DIGITS)
    return -(-whole // unit) * unit
