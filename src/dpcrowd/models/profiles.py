"""Profiles: the expected count of each region by row of the season, from a short series.

A row of a long season is seen a few times only, so its mean is shrunk (empirical Bayes):

    m_kr = mean of region k in row r                    variance 1/W_kr
    s_r  = seasonal shape that all regions share        sum over k of counts in row r / sum of what the levels expect
    mu_kr = l_k s_r + b_kr (m_kr - l_k s_r)             b = tau^2/(tau^2 + 1/W), tau_k^2: how far region k is from it

Observations that are far off count less (Huber), and a series whose level moves may weigh recent slots more. Values may
be measurements with a variance of their own (past releases); of counts it is 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpcrowd.arrays import Bools, Floats, Ints

__all__ = ["Profile", "Series", "estimate_profile"]

_FAR = 4.0  # standard deviations beyond which an observation counts less
_ROUNDS = 3
_NEIGHBOURS = 2  # rows on each side over which the week of the year is smoothed


@dataclass(frozen=True, eq=False)
class Series:
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

    def part(self, first: int, last: int) -> Series:
        """Return slots first .. last - 1."""
        return Series(self.value[first:last], self.noise_var[first:last], self.row[first:last])


@dataclass(frozen=True, eq=False)
class Profile:
    """level (d,), rows (rows, d), and the variance (d,) of what the slots deviate from them."""

    level: Floats
    rows: Floats
    deviation_var: Floats


def estimate_profile(series: Series, rows: int, half_life: float | None, smooth: bool) -> Profile:
    """Estimate level and profile.

    half_life  slots after which an observation counts half; None: all count alike
    smooth     whether neighbouring rows are alike, as weeks of a year are
    """
    slots, regions = series.value.shape
    age = np.arange(slots)[::-1, None]
    recency = np.ones((slots, 1)) if half_life is None else 0.5 ** (age / half_life)
    recency = np.where(series.present, recency, 0.0)
    number = np.maximum(recency.sum(axis=0), 1e-9)
    noise = np.where(series.present, series.noise_var, 0.0)
    level = (recency * series.value).sum(axis=0) / number
    expected = np.tile(level, (rows, 1))
    var = _deviation_var(series.value - level, noise, recency, level)
    for _ in range(_ROUNDS):
        residual = series.value - expected[series.row]
        deviation = np.sqrt(var + noise)
        weight = recency / np.square(deviation)
        weight = weight * np.minimum(1.0, _FAR * deviation / np.maximum(np.abs(residual), 1e-12))
        level = (weight * series.value).sum(axis=0) / np.maximum(weight.sum(axis=0), 1e-300)
        level = np.maximum(level, 0.5 / (number + 1.0))  # nobody was seen so far, which does not mean never
        expected = _rows(series, weight, level, rows, smooth)
        var = _deviation_var(series.value - expected[series.row], noise, recency, level)
    return Profile(level, np.maximum(expected, 0.0), var)


def _rows(series: Series, weight: Floats, level: Floats, rows: int, smooth: bool) -> Floats:
    """Return the shrunk means of all rows, (rows, d)."""
    if rows == 1:
        return level[None, :]
    shape = (rows, series.value.shape[1])
    total, amount = np.zeros(shape), np.zeros(shape)
    np.add.at(total, series.row, weight * series.value)
    np.add.at(amount, series.row, weight)
    if smooth:
        total, amount = _smoothed(total), _smoothed(amount)
    # Persons count alike in the common shape, whichever region they are in.
    per_region = np.divide(total, amount, out=np.tile(level, (rows, 1)), where=amount > 0)
    seen = amount > 0
    persons = np.where(seen, per_region, 0.0).sum(axis=1)
    by_level = np.where(seen, level, 0.0).sum(axis=1)
    form = np.divide(persons, by_level, out=np.ones(rows), where=by_level > 0)[:, None]
    common = level * form
    mean_var = np.divide(1.0, amount, out=np.full(shape, np.inf), where=seen)
    known = np.maximum(seen.sum(axis=0), 1)
    apart = np.where(seen, np.square(per_region - common) - np.where(seen, mean_var, 0.0), 0.0)
    between = np.maximum(apart.sum(axis=0) / known, 0.0)
    trust = np.where(seen, between / (between + np.where(seen, mean_var, 1.0) + 1e-300), 0.0)
    return np.asarray(common + trust * (per_region - common))


def _smoothed(values: Floats) -> Floats:
    """Return sums over neighbouring rows of a circle, with weights that fall off to both sides."""
    total = np.zeros_like(values)
    for step in range(-_NEIGHBOURS, _NEIGHBOURS + 1):
        total += (1.0 - abs(step) / (_NEIGHBOURS + 1)) * np.roll(values, step, axis=0)
    return total


def _deviation_var(residual: Floats, noise: Floats, recency: Floats, level: Floats) -> Floats:
    """Return the variance of residuals beyond that of the measurements, (d,), shrunk towards that of a Poisson count."""
    number = recency.sum(axis=0)
    square = np.square(residual)
    rough = (recency * (square - noise)).sum(axis=0) / np.maximum(number, 1e-9)
    limit = np.square(_FAR + 1.0) * (np.maximum(rough, level) + noise)
    spread = (recency * (np.minimum(square, limit) - noise)).sum(axis=0)
    few = 3.0
    return np.asarray(np.maximum((spread + few * np.maximum(level, 1.0 / 12.0)) / (number + few), 1.0 / 12.0))
