"""Intervals over runs for ratios and differences, at a level that all tests of one claim share.

Errors are compared as ratios, run by run: the logarithm of a ratio has about the same spread in a run with large counts
as in one with small counts, which a difference does not have. With k intervals in a claim each gets the level
1 - 0.05/k (Bonferroni), so that all of them together have 95%.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpcrowd.arrays import PerRun
from dpcrowd.sim.statistics import half_width

__all__ = ["Gap", "Interval", "compare", "difference", "number", "ratio", "ratio_by_run"]

MISTAKES = 0.05
_ROUNDING = 1e-12  # relative to the larger value; values that are closer differ only by rounding


@dataclass(frozen=True)
class Interval:
    """A value between bounds."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{number(self.low)} to {number(self.high)}"


def difference(a: PerRun, b: PerRun, tests: int = 1) -> Interval | None:
    """Return the difference of the means of two paired sets of runs, a - b; None without two runs to pair."""
    if a.shape != b.shape or a.size < 2:
        return None
    gaps = a - b
    gaps[np.abs(gaps) <= _ROUNDING * np.maximum(np.abs(a), np.abs(b))] = 0.0
    mean, half = float(gaps.mean()), half_width(gaps, MISTAKES / tests)
    return Interval(mean, mean - half, mean + half)


def ratio_by_run(a: PerRun, b: PerRun, tests: int = 1) -> Interval | None:
    """Return the geometric mean of a/b over paired runs; None without two runs, or where a value is not above 0."""
    if a.shape != b.shape or a.size < 2 or not ((a > 0).all() and (b > 0).all()):
        return None
    logs = np.log(a / b)
    logs[np.abs(logs) <= _ROUNDING] = 0.0
    mean, half = float(logs.mean()), half_width(logs, MISTAKES / tests)
    return Interval(*(math.exp(x) for x in (mean, mean - half, mean + half)))


@dataclass(frozen=True)
class Gap:
    """The outcome of `compare`, with `bound` as the value that `interval` must stay below.

    Ratios are judged wherever every value is above 0, differences otherwise; `bound` is 1/factor or 0.
    """

    interval: Interval
    bound: float
    by_ratio: bool
    size: float  # how far above the bound, comparable between ratios and differences

    @property
    def below(self) -> bool:
        """Whether it is shown that the value is below the bound."""
        return self.interval.high < self.bound

    @property
    def above(self) -> bool:
        """Whether it is shown that the value is above the bound."""
        return self.interval.low > self.bound

    @property
    def equal(self) -> bool:
        """Whether the value is the bound in every run."""
        return self.interval.low == self.interval.high == self.bound

    def __str__(self) -> str:
        if self.by_ratio:
            return f"run by run {number(self.interval.value)} times, interval {self.interval}"
        return f"difference {number(self.interval.value)}, interval {self.interval}"


def compare(a: PerRun, b: PerRun, tests: int = 1, factor: float = 1.0) -> Gap | None:
    """Compare `factor` times a with b, paired by run; None without two runs to pair."""
    quotient = ratio_by_run(a, b, tests)
    if quotient is not None:
        return Gap(quotient, 1.0 / factor, True, math.log(quotient.value * factor))
    gap = difference(factor * a, b, tests)
    if gap is None:
        return None
    scale = max(float(np.abs(factor * a).mean()), float(np.abs(b).mean()))
    return Gap(gap, 0.0, False, gap.value / scale if scale else 0.0)


def ratio(a: PerRun, b: PerRun, tests: int = 1) -> Interval | None:
    """Return the ratio of the means, mean(a)/mean(b), by the delta method: the spread of a - ratio·b over mean(b)."""
    if a.shape != b.shape or a.size < 2:
        return None
    base = float(b.mean())
    if base == 0.0:
        value = 1.0 if not a.any() else math.inf
        return Interval(value, value, value)
    value = float(a.mean()) / base
    half = half_width(a - value * b, MISTAKES / tests) / abs(base)
    return Interval(value, value - half, value + half)


def number(value: float) -> str:
    """Return a number for readers: three digits, large numbers without an exponent."""
    if math.isfinite(value) and 1000 <= abs(value) < 1e7:
        return f"{value:,.0f}".replace("-", "−")
    return f"{value:.3g}".replace("-", "−")
