"""Means with 95% intervals over runs, and paired comparisons of schemes on the same runs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpcrowd.arrays import Floats, Ints, PerRun
from dpcrowd.errors import BadInput, counted

__all__ = ["Comparison", "Mean", "compare_paired", "half_width", "mean_with_interval", "means_with_halves"]


@dataclass(frozen=True)
class Mean:
    """A mean over runs and its 95% interval (Student's t); None where undefined."""

    mean: float | None
    ci95: tuple[float, float] | None


def mean_with_interval(values: PerRun) -> Mean:
    """Return mean and interval of the defined values; the interval needs two. If a run diverged, there is none."""
    there = values[~np.isnan(values)]
    if there.size == 0 or np.isinf(there).any():
        return Mean(None, None)
    mean = float(there.mean())
    if there.size == 1:
        return Mean(mean, None)
    half = half_width(there)
    return Mean(mean, (mean - half, mean + half))


def half_width(values: PerRun, mistakes: float = 0.05) -> float:
    """Return half the width of Student's interval for the mean of at least two values; `mistakes` is its error rate."""
    return float(_t_quantile(values.size - 1, mistakes)) * float(values.std(ddof=1)) / math.sqrt(values.size)


def means_with_halves(values: Floats) -> tuple[Floats, Floats]:
    """Return, per column of (runs, n), the means and half the widths of their intervals; NaN where undefined."""
    there = np.isfinite(values)
    count = there.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(there, values, 0.0).sum(axis=0) / count
        apart = np.where(there, values - mean, 0.0)
        spread = np.sqrt((apart * apart).sum(axis=0) / (count - 1))
        half = _t_quantile(np.maximum(count - 1, 1)) * spread / np.sqrt(count)
    return mean, half  # 0/0 is NaN: no runs have no mean, and one run has no interval


def _t_quantile(freedom: int | Ints, mistakes: float = 0.05) -> Any:
    from scipy.special import stdtrit

    return stdtrit(freedom, 1.0 - mistakes / 2)


@dataclass(frozen=True)
class Comparison:
    """How `first` compares with `second` in one metric, run by run.

    ratio         mean(first)/mean(second); below 1: the first has the smaller value
    paired_ratio  geometric mean of first/second over the runs, with its 95% interval `paired_ci95`: a ratio of means is
                  dominated by the few runs with large values. NaN where a value is not above 0
    difference    mean of first - second over the runs, with its 95% interval `ci95`
    wins          share of runs in which the first is smaller
    decided       whether the interval of the difference excludes 0
    """

    first: str
    second: str
    metric: str
    runs: int
    ratio: float
    difference: float
    ci95: tuple[float, float] | None
    wins: float
    paired_ratio: float
    paired_ci95: tuple[float, float] | None

    @property
    def decided(self) -> bool:
        return self.ci95 is not None and (self.ci95[0] > 0 or self.ci95[1] < 0)

    def __str__(self) -> str:
        interval = "" if self.ci95 is None else f", 95% interval {self.ci95[0]:.4g} to {self.ci95[1]:.4g}"
        paired = "" if math.isnan(self.paired_ratio) else f"; run by run {self.paired_ratio:.3g} times"
        if self.paired_ci95 is not None:
            paired += f", 95% interval {self.paired_ci95[0]:.3g} to {self.paired_ci95[1]:.3g}"
        return (
            f"{self.metric} of {self.first} is {self.ratio:.3g} times that of {self.second} "
            f"(difference {self.difference:.4g}{interval}{paired}; smaller in {self.wins:.0%} of "
            f"{counted(self.runs, 'run')})"
        )


def compare_paired(first: str, second: str, metric: str, a: PerRun, b: PerRun) -> Comparison:
    """Compare two schemes' values of the same runs."""
    both = ~(np.isnan(a) | np.isnan(b)) if a.shape == b.shape else np.zeros(1, dtype=np.bool_)
    if not both.any():
        raise BadInput(f"'{first}' and '{second}' have no runs in common with a defined {metric}.")
    if np.isinf(a).any() or np.isinf(b).any():
        raise BadInput(f"'{first}' and '{second}' cannot be compared in {metric}: some runs diverged.")
    a, b = a[both], b[both]
    difference = mean_with_interval(a - b)
    assert difference.mean is not None
    base = float(b.mean())
    paired = _geometric_mean(a, b)
    return Comparison(
        first=first,
        second=second,
        metric=metric,
        runs=int(both.sum()),
        ratio=float(a.mean()) / base if base else math.nan,
        difference=difference.mean,
        ci95=difference.ci95,
        wins=float((a < b).mean()),
        paired_ratio=math.nan if paired.mean is None else paired.mean,
        paired_ci95=paired.ci95,
    )


def _geometric_mean(a: Floats, b: Floats) -> Mean:
    """Return the geometric mean of a/b with its interval; undefined unless all values are above 0."""
    if not ((a > 0) & (b > 0)).all():
        return Mean(None, None)
    logs = mean_with_interval(np.log(a / b))
    assert logs.mean is not None
    interval = None if logs.ci95 is None else (math.exp(logs.ci95[0]), math.exp(logs.ci95[1]))
    return Mean(math.exp(logs.mean), interval)
