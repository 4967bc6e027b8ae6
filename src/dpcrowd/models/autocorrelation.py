"""Seasons that the counts themselves show: numbers of slots after which a series is like itself.

A crowd that moves slowly is like itself after any short time, so it is not the counts that are compared, but what is
new in each slot:

    u(t) = e(t) - a e(t-1)         e: deviation from the mean, a: the autocorrelation of e after one slot
    c(k) = mean over regions of (sum of u(t) u(t-k)) / (mean of u(t)^2)
    z(n) = (c(n) + c(2n) + c(3n) + ...) / sqrt(number of pairs of slots that are n, 2n, 3n, ... apart)

Of a series without a season u is white, and z(n) is about N(0, 1). Multiples of n are counted together because the
peak of a smooth season is flat, and after several seasons a wrong length is out of step; and so the shortest season is
preferred to its multiples. A longer season may have the first one within it, as a week has days: another one is looked
for in what remains without the first. Whether a suggested season predicts better is for the cross-validation to decide.
"""

from __future__ import annotations

import numpy as np

from dpcrowd.arrays import Floats

__all__ = ["suggested_seasons"]

_CLEAR = 5.0  # the largest z of hundreds of lags by chance is about 4
_CLEAR_SECOND = 4.0  # of another season beside a clear one
_FAR = 4.0  # standard deviations beyond which what is new in a slot is cut off
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
    news = _news(value)
    first = _clearest(news, longest, _CLEAR)
    if first is None:
        return []
    second = _clearest(_without(news, first), longest, _CLEAR_SECOND)
    return sorted({first} if second is None else {first, second})


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
    news = deviation[1:] - a * deviation[:-1]
    for _ in range(_ROUNDS):
        spread = news.std(axis=0)
        news = np.clip(news, -_FAR * spread, _FAR * spread)
    return np.asarray(news - news.mean(axis=0))


def _without(news: Floats, season: int) -> Floats:
    """Return what is new in each slot less its mean over all seasons."""
    row = np.arange(len(news)) % season
    means = np.zeros((season, news.shape[1]))
    np.add.at(means, row, news)
    return np.asarray(news - (means / np.bincount(row)[:, None])[row])


def _evidence(news: Floats, longest: int) -> Floats:
    """Return z(0) .. z(longest); 0 for fewer than two slots."""
    slots = len(news)
    power = np.square(np.abs(np.fft.rfft(news, 1 << (2 * slots).bit_length(), axis=0)))
    sums = np.fft.irfft(power, axis=0)[:slots]  # of products, by way of the spectrum: a long series has many lags
    z = np.zeros(longest + 1)
    varied = sums[0] > 1e-9
    if varied.any():
        c = (sums[:, varied] / sums[0, varied]).mean(axis=1) * slots
        pairs = slots - np.arange(slots)
        for season in range(2, longest + 1):
            z[season] = c[season::season].sum() / np.sqrt(pairs[season::season].sum())
    return z
