"""The expected error around a process model: counts near 0 are skewed, and an error of theirs is not normal.

A filter that knows a model expects mu people, and the crowd deviates from it with the variance V = Q/(1 - a^2). With P
the variance of the estimates, records tell it the part 1 - P/V of a deviation, and the error is

    e = (P/V) (mu - X) + N(0, P (1 - P/V))

for a count X with mean mu and variance V; the variance of e is P. In a region of 0.2 people, X is mostly 0 and rarely
3: E |e| is then far below sqrt(2/pi) sd. So X is taken for negative binomial, and for gamma where it is large or varies
less than a Poisson variable. With 1000 people and a standard deviation of 100, both are nearly normal.

A season has parts with few people and parts with many, in which V differs, too: errors are averaged over them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dpcrowd.arrays import Floats
from dpcrowd.sim.planner.request import Levels

__all__ = ["errors_around_model", "skewed_errors"]

_PARTS = 12  # of a season, by level: its rows with few people, ..., and those with many
_MOST = 1000.0  # people up to which every count is summed
_QUANTILES = 400
_DEVIATIONS = 12.0  # counts farther from the mean than this many standard deviations do not matter


def errors_around_model(levels: Levels, variance: Floats, regions: Sequence[int]) -> tuple[Floats, Floats]:
    """Return E |error| in people, and E |error|/max(count, 1), of some regions, averaged over the season.

    levels    what a process model expects
    variance  mean variance of the estimates of these regions

    Records bring the same information in every part of a season, and their variance is 1/(1/V + information).
    """
    assert levels.transition is not None
    chosen = np.array(regions, dtype=np.int64)
    spread = levels.spread[chosen]
    information = np.maximum(1.0 / variance - 1.0 / spread, 0.0)
    if levels.season is None:
        by_level, by_spread = np.array(levels.level)[None, chosen], spread[None]
    else:
        by_level = levels.season.level[:, chosen]
        kept = 1.0 - np.square(np.array(levels.transition)[chosen])
        by_level, by_spread = _condensed(by_level, levels.season.process_var[:, chosen] / kept)
    by_variance = 1.0 / (1.0 / by_spread + information)
    absolute, relative = skewed_errors(by_level.ravel(), by_spread.ravel(), by_variance.ravel())
    shape = by_level.shape
    return absolute.reshape(shape).mean(axis=0), relative.reshape(shape).mean(axis=0)


def _condensed(level: Floats, spread: Floats) -> tuple[Floats, Floats]:
    """Return levels and variances (rows, d) of at most `_PARTS` parts of equal length, by the level of each region."""
    if len(level) <= _PARTS:
        return level, spread
    order = np.argsort(level, axis=0, kind="stable")
    # Parts of nearly equal length: each stands for as many of evenly spaced places in the sorted season.
    places = (np.arange(_PARTS * len(level)) // _PARTS).reshape(_PARTS, len(level))
    sorted_parts = (np.take_along_axis(values, order, axis=0)[places].mean(axis=1) for values in (level, spread))
    by_level, by_spread = sorted_parts
    return by_level, by_spread


def skewed_errors(level: Floats, spread: Floats, variance: Floats) -> tuple[Floats, Floats]:
    """Return E |error| in people, and E |error|/max(count, 1), one of each per region.

    level     mean of a count
    spread    variance V of a count around it
    variance  variance P of the estimates, at most V
    """
    pairs = [_errors(*one) for one in zip(level.tolist(), spread.tolist(), variance.tolist(), strict=True)]
    absolute, relative = (np.array(values) for values in zip(*pairs, strict=True))
    return absolute, relative


def _errors(level: float, spread: float, variance: float) -> tuple[float, float]:
    counts, weights = _counts(level, spread)
    kept = min(variance / spread, 1.0)
    size = _mean_absolute(kept * (level - counts), math.sqrt(variance * (1.0 - kept)))
    return float(weights @ size), float(weights @ (size / np.maximum(counts, 1.0)))


def _counts(level: float, spread: float) -> tuple[Floats, Floats]:
    """Return counts with this mean and variance, and their probabilities."""
    from scipy.special import gammaincinv, gammaln

    largest = level + _DEVIATIONS * math.sqrt(spread)
    if spread <= level * (1.0 + 1e-9) or largest > _MOST:
        shape = level**2 / spread
        quantiles = gammaincinv(shape, (np.arange(_QUANTILES) + 0.5) / _QUANTILES) * (spread / level)
        return np.asarray(quantiles), np.full(_QUANTILES, 1.0 / _QUANTILES)
    counts = np.arange(math.ceil(largest) + 20.0)
    size = level**2 / (spread - level)
    logarithm = gammaln(counts + size) - gammaln(size) - gammaln(counts + 1.0)
    logarithm += size * math.log(level / spread) + counts * math.log1p(-level / spread)
    weights = np.exp(logarithm)
    return counts, weights / weights.sum()


def _mean_absolute(mean: Floats, deviation: float) -> Floats:
    """Return E |N(mean, deviation^2)|."""
    if deviation <= 0.0:
        return np.abs(mean)
    from scipy.special import ndtr

    ratio = mean / deviation
    density = deviation * math.sqrt(2.0 / math.pi) * np.exp(-0.5 * np.square(ratio))
    return np.asarray(density + mean * (2.0 * ndtr(ratio) - 1.0))
