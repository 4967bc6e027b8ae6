"""Seasons that the counts themselves show: numbers of slots after which a series is like itself.

A crowd that moves slowly is like itself after any short time, so it is not the counts that are compared, but what is
new in each slot:

    u(t) = e(t) - a e(t-1)         e: deviation from the mean, a: the autocorrelation of e after one slot
    c(k) = mean over regions of (sum of u(t) u(t-k)) / (mean of u(t)^2)
    z(n) = (c(n) + c(2n) + c(3n) + ...) / sqrt(number of pairs of slots that are n, 2n, 3n, ... apart)

Of a series without a season u is white, and z(n) is about N(0, 1). Multiples of n are counted together, so that the
shortest season is preferred to its multiples. A longer season may have the first one within it, as a week has days:
another one is looked for in what remains without the first.

z tells whether there is a season. How long it is, it tells only roughly: the peak of a smooth season is flat, since a
wrong length is out of step only after several seasons, and u has little of a smooth season in it. So the length is the
one near the peak whose profile misses the counts x least, each predicted by the other slots of its row:

    S(n) = sum over regions of log(sum of |x(t) - mean of the other x in the row of t|)

A long and smooth season, such as a wave, has hardly anything new in a slot, so z misses it. It shows in the counts
themselves, less their trend (`detrended`): there is one if their autocorrelation r, after it has been negative, is at
least 0.5 at its largest peak, and as much after two seasons. What comes and goes slowly has peaks, too, but they are
hardly ever as large, and cycles of a varying length have lost step after two of them.

    r(k) = mean over regions of (mean of y(t) y(t-k)) / (mean of y(t)^2)            y: counts less their trend

"Near" is the width of the peak, n divided by the number of seasons seen. All of these lengths have about as many rows,
so that none of them is chosen for having more. Whether a suggested season predicts better is for the cross-validation
to decide.
"""

from __future__ import annotations

import numpy as np

from dpcrowd.arrays import Floats
from dpcrowd.models.detrended import left_by_others, without_trend

__all__ = ["smooth_season", "suggested_seasons"]

_CLEAR = 5.0  # the largest z of hundreds of lags by chance is about 4
_CLEAR_SECOND = 4.0  # of another season beside a clear one
_LIKE_ITSELF = 0.5  # autocorrelation of counts after a smooth season
_FAR = 4.0  # standard deviations beyond which what is new in a slot is cut off
_NOTHING = 1e-9  # what a region that never changes misses
_ROUNDS = 10  # after which rare outliers no longer widen the standard deviation by which they are cut off


def suggested_seasons(value: Floats) -> list[int]:
    """Return up to two numbers of slots, smaller ones first, from counts (T, d); each fits into them three times.

    >>> rng = np.random.default_rng(0)
    >>> suggested_seasons(rng.poisson(np.where(np.arange(210) % 7 < 5, 30, 10))[:, None].astype(float))
    [7]
    >>> suggested_seasons(rng.poisson(30, (210, 1)).astype(float))
    []
    """
    longest = len(value) // 3
    if longest < 2:
        return []
    news, deviation = _news(value), _cut_off(value - value.mean(axis=0))
    peak = _clearest(news, longest, _CLEAR)
    if peak is None:
        return []
    first = _refined(deviation, peak, longest)
    peak = _clearest(_without(news, first), longest, _CLEAR_SECOND)
    return sorted({first} if peak is None else {first, _refined(deviation, peak, longest)})


def smooth_season(value: Floats) -> int | None:
    """Return a number of slots after which counts (T, d) themselves come back, which fits into them three times.

    >>> wave = 100.0 + 50.0 * np.sin(2.0 * np.pi * np.arange(180.0) / 40.0)
    >>> smooth_season(np.random.default_rng(0).poisson(wave)[:, None].astype(float))
    40
    """
    longest = len(value) // 3
    if longest < 2:
        return None
    deviation = _cut_off(without_trend(value))
    sums = _products(deviation)
    varied = sums[0] > _NOTHING * np.square(value).sum(axis=0)
    if not varied.any():
        return None
    weighted = (sums[:, varied] / sums[0, varied]).mean(axis=1)  # less for longer seasons, of which fewer are seen
    negative = np.flatnonzero(weighted[: longest + 1] < 0.0)
    if not len(negative):
        return None
    peak = int(negative[0] + np.argmax(weighted[negative[0] : longest + 2]))
    r = weighted * (len(value) / (len(value) - np.arange(len(value))))
    if peak > longest or min(r[peak], r[2 * peak]) < _LIKE_ITSELF:
        return None  # it goes on to rise, or hardly comes back
    return _refined(deviation, peak, longest)


def _clearest(news: Floats, longest: int, least: float) -> int | None:
    """Return the season of 2 to `longest` slots with the largest z; None if that is less than `least`."""
    z = _evidence(news, longest)
    season = int(np.argmax(z))
    return season if z[season] >= least else None


def _news(value: Floats) -> Floats:
    """Return what each slot adds that its predecessor did not show, (T - 1, d), without outliers."""
    deviation = value - value.mean(axis=0)
    squares = np.maximum(np.square(deviation[:-1]).sum(axis=0), 1e-12)
    a = np.clip((deviation[1:] * deviation[:-1]).sum(axis=0) / squares, 0.0, 1.0)
    news = _cut_off(deviation[1:] - a * deviation[:-1])
    return np.asarray(news - news.mean(axis=0))


def _cut_off(value: Floats) -> Floats:
    """Return values around 0 without outliers."""
    for _ in range(_ROUNDS):
        spread = value.std(axis=0)
        value = np.clip(value, -_FAR * spread, _FAR * spread)
    return value


def _without(value: Floats, season: int) -> Floats:
    """Return the values less the mean of their row of the season."""
    row = np.arange(len(value)) % season
    means = np.zeros((season, value.shape[1]))
    np.add.at(means, row, value)
    return np.asarray(value - (means / np.bincount(row)[:, None])[row])


def _refined(deviation: Floats, peak: int, longest: int) -> int:
    """Return the season within the width of a peak whose profile predicts the slots that it has not seen best."""
    width = peak * peak // len(deviation)
    seasons = range(max(2, peak - width), min(longest, peak + width) + 1)
    return min(seasons, key=lambda season: (_missed(deviation, season), abs(season - peak)))


def _missed(deviation: Floats, season: int) -> float:
    """Return S of a season; each row has at least three slots."""
    error = left_by_others(deviation, np.arange(len(deviation)) % season)
    return float(np.log(np.abs(error).sum(axis=0) + _NOTHING).sum())


def _evidence(news: Floats, longest: int) -> Floats:
    """Return z(0) .. z(longest); 0 for fewer than two slots."""
    slots = len(news)
    sums = _products(news)
    z = np.zeros(longest + 1)
    varied = sums[0] > 1e-9
    if varied.any():
        c = (sums[:, varied] / sums[0, varied]).mean(axis=1) * slots
        pairs = slots - np.arange(slots)
        for season in range(2, longest + 1):
            z[season] = c[season::season].sum() / np.sqrt(pairs[season::season].sum())
    return z


def _products(value: Floats) -> Floats:
    """Return sums of products with values (T, d) that are 0 to T - 1 slots before, (T, d).

    They are computed by way of the spectrum: a long series has many lags.
    """
    power = np.square(np.abs(np.fft.rfft(value, 1 << (2 * len(value)).bit_length(), axis=0)))
    return np.asarray(np.fft.irfft(power, axis=0)[: len(value)])
