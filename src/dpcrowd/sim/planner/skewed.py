"""The expected error around a process model: counts near 0 are skewed, and an error of theirs is not normal.

A filter that knows a model expects mu people, and the crowd deviates from it with the variance V = Q/(1 - a^2). With P
the variance of the estimates, records tell it the part 1 - P/V of a deviation, and the error is

    e = (P/V) (mu - X) + N(0, P (1 - P/V))

for a count X. In a region of 0.2 people, X is mostly 0 and rarely 3: E |e| is then far below sqrt(2/pi) sd. So X is
taken for negative binomial, and for gamma where it is large or varies less than a Poisson variable. With 1000 people
and a standard deviation of 100, both are nearly normal.

Mean and variance of X are mu and V if nothing else is known, and the variance of e is P. The levels of a model may be
those of usual slots, though, which leave out rare bursts: its file has the mean count, and the changes of the counts
have their variance (`request.Crowd`). How far the model alone was off on held-out slots is in its file, too: deviations
mu - X are multiplied by what makes both agree (`with_held_out_error`).

The gains of the filter have the least mean square of a normal crowd. Where X is mostly 0 and rarely large, noise in
all slots may cost a larger mean of |e| than following the bursts gains; no error is predicted to be larger than that of
the model alone, or of records that tell less, and so none grows with epsilon.

A season has parts with few people and parts with many, in which V differs, too: errors are averaged over them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dpcrowd.arrays import Floats
from dpcrowd.sim.planner.request import Levels

__all__ = ["errors_around_model", "skewed_errors", "with_held_out_error"]

_PARTS = 12  # of a season, by level: its rows with few people, ..., and those with many
_MOST = 1000.0  # people up to which every count is summed
_QUANTILES = 400
_LESS = (0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.4)  # parts of a deviation that less precise records would tell
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
    level = np.array(levels.level)[chosen]
    if levels.season is None:
        by_level, by_spread = level[None], spread[None]
    else:
        by_level = levels.season.level[:, chosen]
        kept = 1.0 - np.square(np.array(levels.transition)[chosen])
        by_level, by_spread = _condensed(by_level, levels.season.process_var[:, chosen] / kept)
    by_variance = 1.0 / (1.0 / by_spread + information)
    crowd, misfit = None, 1.0
    if levels.crowd is not None:  # it has the season of the model
        mean, count_var = (np.array(values)[chosen] for values in (levels.crowd.mean, levels.crowd.variance))
        misfit = levels.crowd.misfit
        crowd = (by_level * (mean / level)).ravel(), (by_spread * (count_var / spread)).ravel()
    absolute, relative = skewed_errors(
        by_level.ravel(), by_spread.ravel(), by_variance.ravel(), crowd, misfit, bounded=True
    )
    shape = by_level.shape
    return absolute.reshape(shape).mean(axis=0), relative.reshape(shape).mean(axis=0)


def with_held_out_error(levels: Levels, every: Levels, error: float) -> Levels:
    """Return levels around which the process model alone has the total error that it had on held-out slots.

    every  the levels of all regions of the model, of which `levels` may be some
    error  as the file of the model has it; NaN: unknown
    """
    if levels.crowd is None or every.crowd is None or not error > 0.0:
        return levels
    absolute, _ = errors_around_model(every, every.spread, range(len(every)))
    people, missed = sum(every.people), float(absolute.sum())
    return replace(levels, crowd=replace(levels.crowd, misfit=error * people / max(missed, 1e-300)))


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


def skewed_errors(
    level: Floats,
    spread: Floats,
    variance: Floats,
    crowd: tuple[Floats, Floats] | None = None,
    misfit: float = 1.0,
    *,
    bounded: bool = False,
) -> tuple[Floats, Floats]:
    """Return E |error| in people, and E |error|/max(count, 1), one of each per region.

    level     what the filter expects of a count
    spread    variance V around it, as the filter knows it
    variance  variance P of the estimates, at most V
    crowd     mean and variance that counts have; None: those
    misfit    by what the deviations of counts from the level are multiplied
    bounded   whether an error is at most that of records that tell less
    """
    mean, count_var = (level, spread) if crowd is None else crowd
    lists = (level.tolist(), spread.tolist(), variance.tolist(), mean.tolist(), count_var.tolist())
    pairs = [_errors(*one, misfit, bounded) for one in zip(*lists, strict=True)]
    absolute, relative = (np.array(values) for values in zip(*pairs, strict=True))
    return absolute, relative


def _errors(
    level: float, spread: float, variance: float, mean: float, count_var: float, misfit: float, bounded: bool
) -> tuple[float, float]:
    counts, weights = _counts(mean, count_var)
    part = max(1.0 - variance / spread, 0.0)  # of a deviation that records tell
    parts = np.array([part, *(less for less in _LESS if bounded and less < part)])[:, None]
    deviation = np.sqrt(spread * parts * (1.0 - parts))
    size = _mean_absolute((1.0 - parts) * (misfit * (level - counts)), deviation)
    absolute, relative = size @ weights, size @ (weights / np.maximum(counts, 1.0))
    return float(absolute.min()), float(relative.min())


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


def _mean_absolute(mean: Floats, deviation: Floats) -> Floats:
    """Return E |N(mean, deviation^2)|."""
    from scipy.special import ndtr

    ratio = mean / np.where(deviation > 0.0, deviation, 1.0)
    density = deviation * math.sqrt(2.0 / math.pi) * np.exp(-0.5 * np.square(ratio))
    return np.where(deviation > 0.0, density + mean * (2.0 * ndtr(ratio) - 1.0), np.abs(mean))
