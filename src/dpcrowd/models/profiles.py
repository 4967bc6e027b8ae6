"""Profiles: the expected count of each region by row of the season, from a short series.

The expected count of region k in row r is l_k s_kr: a level, and a shape whose mean over the season is 1. The level may
be that of the last slots, while the shape is taken from all slots, each relative to the level around it; so a crowd
that grows can have a season. A row of a long season is seen a few times only, so the shapes are shrunk (empirical
Bayes):

    m_kr = counts of region k in row r / sum of the levels around them         variance v_kr
    c_r  = the same of all regions together, a shape that they share
    s_kr = c_r + b_kr (m_kr - c_r)           b = tau^2/(tau^2 + v), tau_k^2: how far region k is from the common shape

Observations that are far off count less (Huber). Values may be measurements with a variance of their own (earlier
releases); of counts it is 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from dpcrowd.arrays import Bools, Floats, Ints

__all__ = ["Profile", "ProfileSeries", "estimate_profile"]

_FAR = 4.0  # standard deviations beyond which an observation counts less
_ROUNDS = 3
_MEDIAN_TO_VAR = 2.198  # the variance of normal residuals, from the median of their squares
_LEAST_SHAPE = 0.1
_FEW_REGIONS = 12  # of which a list of numbers each is faster than a small array per slot
_NEIGHBOURS = 2  # rows on each side over which the week of the year is smoothed


@dataclass(frozen=True, eq=False)
class ProfileSeries:
    """Values of a series, (T, d).

    value      counts, or unbiased measurements of them; 0 where there is none
    noise_var  the variance of the measurement; 0 for counts, infinite where there is none
    row        (T,) the row of the season that a slot belongs to
    """

    value: Floats
    noise_var: Floats
    row: Ints

    @property
    def present(self) -> Bools:
        """Where there is a value."""
        return np.isfinite(self.noise_var)

    def part(self, first: int, last: int) -> ProfileSeries:
        """Return slots first .. last - 1."""
        return ProfileSeries(self.value[first:last], self.noise_var[first:last], self.row[first:last])


@dataclass(frozen=True, eq=False)
class Profile:
    """level (d,), rows (rows, d), and the variance (d,) of what the slots deviate from them."""

    level: Floats
    rows: Floats
    deviation_var: Floats


def estimate_profile(series: ProfileSeries, rows: int, half_life: float | None, smooth: bool) -> Profile:
    """Estimate level and profile.

    half_life  slots after which an observation counts half in the level; None: the level is the same in all slots
    smooth     whether neighbouring rows are alike, as weeks of a year are
    """
    present = series.present
    noise = np.where(present, series.noise_var, 0.0)
    weight = np.where(present & ~_absurd(series.value, present), 1.0, 0.0)
    shape = np.ones((rows, series.value.shape[1]))
    var = np.full(series.value.shape[1], np.inf)
    for _ in range(_ROUNDS):
        adjusted = series.value / np.maximum(shape[series.row], _LEAST_SHAPE)
        level, local = _levels(adjusted, weight, half_life)
        shape = _shape(series, weight, level, local, smooth, rows)
        residual = np.where(present, series.value - local * shape[series.row], 0.0)
        var = _deviation_var(residual, noise, present, local.mean(axis=0))
        deviation = np.sqrt(var + noise)
        far = np.minimum(1.0, _FAR * deviation / np.maximum(np.abs(residual), 1e-12))
        weight = np.where(present, far / np.square(deviation), 0.0)
    return Profile(level, level * shape, var)


def _absurd(value: Floats, present: Bools) -> Bools:
    """Return which values are a hundred times farther from the median than usual; they do not count at first."""
    if not present.any(axis=0).all():
        return np.zeros(value.shape, dtype=np.bool_)
    known = np.where(present, value, np.nan)
    middle = np.nanmedian(known, axis=0)
    away = np.abs(known - middle)
    usual = np.nanmedian(away, axis=0) + np.sqrt(np.maximum(middle, 0.0)) + 1.0
    return np.asarray(present & (np.nan_to_num(away) > 100.0 * usual))


def _levels(value: Floats, weight: Floats, half_life: float | None) -> tuple[Floats, Floats]:
    """Return the level (d,) at the end of the series, and the level around every slot, (T, d)."""
    number = np.count_nonzero(weight, axis=0)
    least = 0.5 / (number + 1.0)  # nobody was seen so far, which does not mean never
    total = (weight * value).sum(axis=0) / np.maximum(weight.sum(axis=0), 1e-300)
    if half_life is None:
        level = np.maximum(total, least)
        return level, np.tile(level, (len(value), 1))
    keep = 0.5 ** (1.0 / half_life)
    before, before_weight = _decayed(weight * value, keep), _decayed(weight, keep)
    after, after_weight = (_decayed(part[::-1], keep)[::-1] for part in (weight * value, weight))
    local = (before + after) / np.maximum(before_weight + after_weight, 1e-300)
    level = before[-1] / np.maximum(before_weight[-1], 1e-300)
    return np.maximum(level, least), np.maximum(local, least)


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
    apart = np.where(is_seen, np.square(own - common) - np.where(is_seen, own_var, 0.0), 0.0)
    between = np.maximum(apart.sum(axis=0) / np.maximum(is_seen.sum(axis=0), 1), 0.0)
    trust = np.where(is_seen, between / (between + np.where(is_seen, own_var, 1.0) + 1e-300), 0.0)
    shape = np.maximum(common + trust * (own - common), 0.0)
    return np.asarray(shape / np.maximum(shape.mean(axis=0), 1e-12))


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
