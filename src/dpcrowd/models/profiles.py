"""Profiles: the expected count of each region by row of the season, from a short series.

The expected count of region k in row r is l_k s_kr: a level, and a shape whose mean over the season is 1. The level may
be that of the last slots, while the shape is taken from all slots, each relative to the level around it; so a crowd
that grows can have a season. A row of a long season is seen a few times only, so the shapes are shrunk (empirical
Bayes):

    m_kr = counts of region k in row r / sum of the levels around them         variance v_kr
    c_r  = the same of all regions together, a shape that they share
    s_kr = c_r + b_kr (m_kr - c_r)           b = tau^2/(tau^2 + v), tau_k^2: how far region k is from the common shape

Observations that are far off count less (Huber). Values may be measurements with a variance of their own (earlier
releases); of counts it is 0. Levels that are measured weakly are shrunk, too (`weak`).

If an earlier model had the same season, its shape takes the place of c, unless the measured shapes are clearly closer
to one that they share. Rows that were not measured keep it, so a season need not be complete: levels are then those of
the measured slots around a known shape.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np

from dpcrowd.arrays import Bools, Floats, Ints
from dpcrowd.models.weak import shrunk_levels

__all__ = ["Profile", "ProfileSeries", "estimate_profile"]

_FAR = 4.0  # standard deviations beyond which an observation counts less
_USUAL, _BY_CHANCE = 0.5, 3.0  # the same of a profile of usual slots, and in standard deviations of a Poisson count
_ROUNDS = 3
_MEDIAN_TO_VAR = 2.198  # the variance of normal residuals, from the median of their squares
_RARE = 0.05  # of all values
_LEAST_SHAPE = 0.1
_FEW_REGIONS = 12  # of which a list of numbers each is faster than a small array per slot
_PARTS = 8  # of a released series, whose agreement says how well its level is known
_LEAST_DOUBT = 0.05  # of a level
_NEIGHBOURS = 2  # rows on each side over which the week of the year is smoothed


@dataclass(frozen=True, eq=False)
class ProfileSeries:
    """Values of a series, (T, d).

    value      counts, or unbiased measurements of them; 0 where there is none
    noise_var  the variance of the measurement; 0 for counts, infinite where there is none
    row        (T,) the row of the season that a slot belongs to
    released   (T, d) what was released of the slots, by filters that knew more than these measurements, such as an
               earlier model; NaN: nothing. None: of counts there is no need
    earlier_level  (d,) the levels of that model, if there was one; NaN for regions that it did not have
    earlier_shape  (rows, d) its shape, if it had the same season
    """

    value: Floats
    noise_var: Floats
    row: Ints
    released: Floats | None = None
    earlier_level: Floats | None = None
    earlier_shape: Floats | None = None

    @property
    def present(self) -> Bools:
        """Where there is a value."""
        return np.isfinite(self.noise_var)

    @property
    def is_noisy(self) -> bool:
        """Whether values are measurements with noise, of which there may be none in a part, and not counts."""
        return bool((self.noise_var > 0.0).any())

    def part(self, first: int, last: int) -> ProfileSeries:
        """Return slots first .. last - 1."""
        released = None if self.released is None else self.released[first:last]
        return replace(
            self,
            value=self.value[first:last],
            noise_var=self.noise_var[first:last],
            row=self.row[first:last],
            released=released,
        )


@dataclass(frozen=True, eq=False)
class Profile:
    """Level, profile and deviations of all regions.

    level          (d,)
    rows           (rows, d)
    deviation_var  (d,) the variance of what the slots deviate from them
    level_var      (d,) how well measurements tell the level; of counts it is 0: their deviations contain it
    """

    level: Floats
    rows: Floats
    deviation_var: Floats
    level_var: Floats


def estimate_profile(
    series: ProfileSeries, rows: int, half_life: float | None, smooth: bool, *, robust: bool = False
) -> Profile:
    """Estimate level and profile.

    half_life  slots after which an observation counts half in the level; None: the level is the same in all slots
    smooth     whether neighbouring rows are alike, as weeks of a year are
    robust     whether usual slots decide: unusual ones, such as holidays, count less
    """
    present = series.present
    noise = np.where(present, series.noise_var, 0.0)
    weight = np.where(present & ~_absurd(series.value, present), 1.0, 0.0)
    noisy = series.is_noisy
    shape = np.ones((rows, series.value.shape[1])) if series.earlier_shape is None else series.earlier_shape
    var = np.full(series.value.shape[1], np.inf)
    for _ in range(_ROUNDS):
        level, local = _levels(*_adjusted(series, shape, weight), half_life)
        shape = _shape(series, weight, level, local, smooth, rows)
        residual = np.where(present, series.value - local * shape[series.row], 0.0)
        var = (_noisy_deviation_var if noisy else _deviation_var)(residual, noise, present, local.mean(axis=0))
        deviation = np.sqrt(var + noise)
        limit = _usual_limit(local * shape[series.row], deviation, local) if robust else _FAR * deviation
        far = np.minimum(1.0, limit / np.maximum(np.abs(residual), 1e-12))
        weight = np.where(present, far / np.square(deviation), 0.0)
    if not noisy:
        return Profile(level, level * shape, var, np.zeros_like(level))
    adjusted = np.where(present, series.value / np.maximum(shape[series.row], _LEAST_SHAPE), 0.0)
    measured = _measured_level(adjusted, weight, half_life)
    if series.released is not None:
        adjusted = series.released / np.maximum(shape[series.row], _LEAST_SHAPE)
        measured = _both(measured, _released_level(adjusted, half_life))
    level, level_var = shrunk_levels(*measured, series.earlier_level)
    return Profile(level, level * shape, var, level_var)


def _usual_limit(expected: Floats, deviation: Floats, local: Floats) -> Floats:
    """Return how far a value may be from what is expected, (T, d), to count in full where usual slots decide.

    Half of a standard deviation, in proportion to what is expected, leads close to a median: holidays and bad weather
    do not move it. But no less than three of a Poisson count, whose own skewness must not lower the level.
    """
    relative = deviation * expected / np.maximum(local, 1e-12)
    return np.asarray(np.maximum(_USUAL * relative, _BY_CHANCE * np.sqrt(np.maximum(expected, 1.0))))


def _adjusted(series: ProfileSeries, shape: Floats, weight: Floats) -> tuple[Floats, Floats]:
    """Return values divided by the shape, (T, d), and their weights.

    Where hardly anybody is expected, such as at night, a value says nothing about the level: it does not count, unless
    there are no others.
    """
    expected = shape[series.row]
    visible = np.where(expected >= _LEAST_SHAPE, weight, 0.0)
    visible = np.where(visible.any(axis=0), visible, weight)
    return np.asarray(series.value / np.maximum(expected, _LEAST_SHAPE)), visible


def _absurd(value: Floats, present: Bools) -> Bools:
    """Return which values are a hundred times farther from the median than usual; they do not count at first.

    Values that are not rare are none of them: of a place that is closed at night, the median is 0, and so is the usual
    distance from it.
    """
    if not present.any(axis=0).all():
        return np.zeros(value.shape, dtype=np.bool_)
    known = np.where(present, value, np.nan)
    middle = np.nanmedian(known, axis=0)
    away = np.abs(known - middle)
    usual = np.nanmedian(away, axis=0) + np.sqrt(np.maximum(middle, 0.0)) + 1.0
    far = present & (np.nan_to_num(away) > 100.0 * usual)
    return np.asarray(far & (far.sum(axis=0) <= _RARE * present.sum(axis=0)))


def _levels(value: Floats, weight: Floats, half_life: float | None) -> tuple[Floats, Floats]:
    """Return the level (d,) at the end of the series, and the level around every slot, (T, d)."""
    number = np.count_nonzero(weight, axis=0)
    least = 0.5 / (number + 1.0)  # nobody was seen so far, which does not mean never
    total = (weight * value).sum(axis=0) / np.maximum(weight.sum(axis=0), 1e-300)
    total = _exact(total, value)
    if half_life is None:
        level = np.maximum(total, least)
        return level, np.tile(level, (len(value), 1))
    keep = 0.5 ** (1.0 / half_life)
    before, before_weight = _decayed(weight * value, keep), _decayed(weight, keep)
    after, after_weight = (_decayed(part[::-1], keep)[::-1] for part in (weight * value, weight))
    local = (before + after) / np.maximum(before_weight + after_weight, 1e-300)
    level = before[-1] / np.maximum(before_weight[-1], 1e-300)
    level, local = _exact(level, value), _exact(local, value)
    return np.maximum(level, least), np.maximum(local, least)


def _exact(mean: Floats, value: Floats) -> Floats:
    """Return means (..., d) of values (T, d), without rounding where all values are the same."""
    return np.where((value == value[0]).all(axis=0), value[0], mean)


def _measured_level(value: Floats, weight: Floats, half_life: float | None) -> tuple[Floats, Floats]:
    """Return the level (d,) that measurements tell, which may be negative, and its variance; infinite: there are none.

    weight  (T, d) the inverse of each measurement's variance, deviations included
    """
    age = np.arange(len(value))[::-1, None]
    recent = np.ones_like(weight) if half_life is None else 0.5 ** (age / half_life)
    total = (recent * weight).sum(axis=0)
    measured = total > 0.0
    total = np.where(measured, total, 1.0)
    level = (recent * weight * value).sum(axis=0) / total
    var = (np.square(recent) * weight).sum(axis=0) / np.square(total)
    return level, np.where(measured, var, np.inf)


def _released_level(estimate: Floats, half_life: float | None) -> tuple[Floats, Floats]:
    """Return the level (d,) that released estimates (T, d) have, and its variance; infinite: there are none.

    What an estimate misses may persist for long, so that the mean of many is known as well as parts of the series agree
    with one another, and not better. Estimates that an earlier model has made where measurements say little agree.
    """
    known = np.isfinite(estimate)
    value = np.where(known, estimate, 0.0)
    age = np.arange(len(value))[::-1, None]
    recent = known * (1.0 if half_life is None else 0.5 ** (age / half_life))
    level = (recent * value).sum(axis=0) / np.maximum(recent.sum(axis=0), 1e-300)
    parts = np.array_split(np.arange(len(value)), _PARTS)
    number = np.array([known[part].sum(axis=0) for part in parts])
    means = np.array([value[part].sum(axis=0) for part in parts]) / np.maximum(number, 1)
    seen = number > 0
    apart = np.where(seen, np.square(means - level), 0.0).sum(axis=0) / np.maximum(seen.sum(axis=0) - 1, 1)
    return level, np.where(seen.sum(axis=0) > 1, apart + np.square(_LEAST_DOUBT * level) + 1e-4, np.inf)


def _both(one: tuple[Floats, Floats], other: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
    """Return the mean of two levels by their variances, and its variance."""
    precision = 1.0 / one[1], 1.0 / other[1]
    total = precision[0] + precision[1]
    known = total > 0.0
    total = np.where(known, total, 1.0)
    mean = (precision[0] * one[0] + precision[1] * other[0]) / total
    return np.where(known, mean, 0.0), np.where(known, 1.0 / total, np.inf)


def _decayed(values: Floats, keep: float) -> Floats:
    """Return sums over each slot and those before it, of which each slot keeps a part."""
    sums = np.empty(values.shape)
    if values.shape[1] <= _FEW_REGIONS:
        for region, column in enumerate(values.T.tolist()):
            sums[:, region] = list(accumulate(column, lambda total, value: keep * total + value, initial=0.0))[1:]
        return sums
    total = np.zeros(values.shape[1])
    for slot, row in enumerate(values):
        total = keep * total + row
        sums[slot] = total
    return sums


def _shape(series: ProfileSeries, weight: Floats, level: Floats, local: Floats, smooth: bool, rows: int) -> Floats:
    """Return the shrunk shapes of all regions, (rows, d): the expected count relative to the level."""
    noisy = series.is_noisy
    regions = series.value.shape[1]
    if rows == 1:
        return np.ones((1, regions))
    seen, by_level, amount = (np.zeros((rows, regions)) for _ in range(3))
    np.add.at(seen, series.row, weight * series.value)
    np.add.at(by_level, series.row, weight * local)
    np.add.at(amount, series.row, weight)
    if smooth:
        seen, by_level, amount = _smoothed(seen), _smoothed(by_level), _smoothed(amount)
    is_seen = by_level > 0.0
    own = np.divide(seen, by_level, out=np.ones((rows, regions)), where=is_seen)
    own_var = np.divide(amount, np.square(by_level), out=np.full((rows, regions), np.inf), where=is_seen)
    # Persons count alike in the common shape, whichever region they are in.
    persons = np.where(is_seen, own * level, 0.0).sum(axis=1)
    expected = np.where(is_seen, level, 0.0).sum(axis=1)
    common = np.divide(persons, expected, out=np.ones(rows), where=expected > 0)[:, None]
    if series.earlier_shape is not None:
        common = np.where(expected[:, None] > 0.0, common, series.earlier_shape)
        common = _closer(own, own_var, is_seen, common, series.earlier_shape)
    elif series.released is not None:
        common = _closer(own, own_var, is_seen, common, _released_shape(series, rows))
    apart = np.where(is_seen, np.square(own - common) - np.where(is_seen, own_var, 0.0), 0.0)
    between = np.maximum(apart.sum(axis=0) / np.maximum(is_seen.sum(axis=0), 1), 0.0)
    if noisy:  # the shape of one region says too little of how far it is from the common one
        precision = np.where(is_seen, 1.0 / np.square(np.where(is_seen, own_var, 1.0)), 0.0)
        between = np.full(regions, max(float((precision * apart).sum()), 0.0) / max(float(precision.sum()), 1e-300))
    trust = np.where(is_seen, between / (between + np.where(is_seen, own_var, 1.0) + 1e-300), 0.0)
    shape = np.maximum(common + trust * (own - common), 0.0)
    return np.asarray(shape / np.maximum(shape.mean(axis=0), 1e-12))


def _released_shape(series: ProfileSeries, rows: int) -> Floats:
    """Return the shapes that released estimates have, (rows, d); 1 where there are none."""
    assert series.released is not None
    known = np.isfinite(series.released)
    total, number = np.zeros((rows, known.shape[1])), np.zeros((rows, known.shape[1]))
    np.add.at(total, series.row, np.where(known, series.released, 0.0))
    np.add.at(number, series.row, known)
    mean = np.where(number > 0.0, total / np.maximum(number, 1.0), np.nan)
    level = np.where(number > 0.0, mean, 0.0).sum(axis=0) / np.maximum((number > 0.0).sum(axis=0), 1)
    shape = np.where((number > 0.0) & (level > 0.0), mean / np.maximum(level, 1e-300), 1.0)
    return np.asarray(np.maximum(shape, 0.0))


def _closer(own: Floats, own_var: Floats, is_seen: Bools, common: Floats, given: Floats) -> Floats:
    """Return the common shape, or the one that releases or a model gave, (rows, d): which the measured are closer to.

    The common one was made of them, so that each of its numbers brings it closer by 1 by chance; it has to gain twice
    that (Akaike's criterion).
    """
    weight = np.where(is_seen, 1.0 / np.where(is_seen, np.maximum(own_var, 1e-300), 1.0), 0.0)
    distance = [float((weight * np.square(own - shape)).sum()) for shape in (common, given)]
    numbers = max(int(is_seen.any(axis=1).sum()) - 1, 0)
    chosen = common if distance[0] + 2.0 * numbers <= distance[1] else given
    return np.broadcast_to(chosen, own.shape)


def _smoothed(values: Floats) -> Floats:
    """Return sums over neighbouring rows of a circle, with weights that fall off to both sides."""
    total = np.zeros_like(values)
    for step in range(-_NEIGHBOURS, _NEIGHBOURS + 1):
        total += (1.0 - abs(step) / (_NEIGHBOURS + 1)) * np.roll(values, step, axis=0)
    return total


def _deviation_var(residual: Floats, noise: Floats, present: Bools, level: Floats) -> Floats:
    """Return the variance (d,) of residuals beyond that of the measurements, shrunk towards a Poisson count's."""
    number = present.sum(axis=0)
    square = np.square(residual)
    middle = np.nanmedian(np.where(present, square - noise, np.nan), axis=0) if len(square) else level
    rough = np.maximum(_MEDIAN_TO_VAR * np.nan_to_num(middle), level)
    limit = np.square(_FAR + 1.0) * (rough + noise)
    spread = np.where(present, np.minimum(square, limit) - noise, 0.0).sum(axis=0)
    few = 3.0
    return np.asarray(np.maximum((spread + few * np.maximum(level, 1.0 / 12.0)) / (number + few), 1.0 / 12.0))


def _noisy_deviation_var(residual: Floats, noise: Floats, present: Bools, level: Floats) -> Floats:
    """Return the same of noisy measurements: each counts by its own variance, and a Poisson count's variance is where
    they start from, since the scatter of weak ones says nothing of the crowd.
    """
    level = np.maximum(level, 1.0 / 12.0)
    usual = np.square(2.0 * level + 0.1 * np.square(level))  # how far a variance may be from a Poisson count's, squared
    spread = 1.0 / np.square(level + noise)
    limit = np.square(_FAR + 1.0) * (level + np.sqrt(usual) + noise)
    excess = np.minimum(np.square(residual), limit) - noise
    precision = np.where(present, spread, 0.0).sum(axis=0) / 5.0  # of the squares of Laplace noise
    total = np.where(present, spread * excess, 0.0).sum(axis=0) / 5.0
    return np.asarray(np.maximum((total + level / usual) / (precision + 1.0 / usual), level / 16.0))
