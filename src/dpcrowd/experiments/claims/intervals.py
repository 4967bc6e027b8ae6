"""Intervals over runs for differences and ratios of means, at a level that many tests of one claim share.

With k intervals in a claim each gets the level 1 - 0.05/k (Bonferroni), so that all of them together have 95%.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Floats", "Interval", "difference", "number", "ratio"]

Floats = NDArray[np.float64]

MISTAKES = 0.05
_ROUNDING = 1e-12  # of the larger value: what is closer than this differs by rounding only


@dataclass(frozen=True)
class Interval:
    """A value between bounds."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{number(self.low)} to {number(self.high)}"


def difference(a: Floats, b: Floats, tests: int = 1) -> Interval | None:
    """Of the means of two paired sets of runs, a - b; None without two runs to pair."""
    if a.shape != b.shape or a.size < 2:
        return None
    apart = a - b
    apart[np.abs(apart) <= _ROUNDING * np.maximum(np.abs(a), np.abs(b))] = 0.0
    mean, half = float(apart.mean()), _half(apart, tests)
    return Interval(mean, mean - half, mean + half)


def ratio(a: Floats, b: Floats, tests: int = 1) -> Interval | None:
    """Of the means, mean(a)/mean(b), by the delta method: the spread of a - ratio·b over mean(b)."""
    if a.shape != b.shape or a.size < 2:
        return None
    base = float(b.mean())
    if base == 0.0:
        value = 1.0 if not a.any() else math.inf
        return Interval(value, value, value)
    value = float(a.mean()) / base
    half = _half(a - value * b, tests) / abs(base)
    return Interval(value, value - half, value + half)


def _half(values: Floats, tests: int) -> float:
    """Half the width of Student's interval for the mean."""
    from scipy.special import stdtrit

    quantile = float(stdtrit(values.size - 1, 1.0 - MISTAKES / (2 * tests)))
    return quantile * float(values.std(ddof=1)) / math.sqrt(values.size)


def number(value: float) -> str:
    """For reading: three digits, large numbers without an exponent."""
    if math.isfinite(value) and 1000 <= abs(value) < 1e7:
        return f"{value:,.0f}".replace("-", "−")
    return f"{value:.3g}".replace("-", "−")
