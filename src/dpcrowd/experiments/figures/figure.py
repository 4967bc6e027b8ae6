"""The parts of a figure: sweeps of points that are simulated, and panels of curves that show their results.

A figure defines its points once, in its sweeps. They decide what is simulated, what is drawn and what the claims
compare: all three ask a sweep for the curve of a scheme.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dpcrowd.arrays import Floats, PerRun
from dpcrowd.experiments.figures.rosters import name_of
from dpcrowd.experiments.points.plan import RunPlan
from dpcrowd.experiments.points.point import Point
from dpcrowd.experiments.points.run import Results
from dpcrowd.sim.statistics import means_with_halves

__all__ = ["DATA_NAMES", "METRIC_NAMES", "NEGLIGIBLE", "Curve", "Figure", "Panel", "Sweep", "Values", "error_panels"]

DATA_NAMES = {"linear": "Linear", "flu": "Flu", "multi-linear": "Multi-Linear", "multi-flu": "Multi-Flu"}
METRIC_NAMES = {
    "are": "ARE",
    "ace": "ACE (people)",
    "latency_ms": "latency of a slot (ms)",
    "packets_per_slot": "packets per slot",
    "frequency": "share of slots sampled",
}
ERRORS = ("are", "ace")
NEGLIGIBLE = 1e-6  # people; sums of the same numbers in another order differ by less


@dataclass(frozen=True, eq=False)
class Values:
    """The values of a metric that a scheme reached in each run at one setting; `at` names it, such as "ε=0.1"."""

    name: str
    runs: PerRun
    at: str = ""

    @property
    def mean(self) -> float:
        """The mean over the runs; NaN if there are none."""
        return float(self.runs.mean()) if self.runs.size else math.nan

    @property
    def diverged(self) -> int:
        """The number of runs without a finite value."""
        return int((~np.isfinite(self.runs)).sum())


@dataclass(frozen=True, eq=False)
class Curve:
    """The values of a scheme along an axis, of all runs at each x; `note` is added to its name in a legend."""

    label: str
    x: Floats
    points: tuple[Values, ...]
    note: str = ""

    @cached_property
    def _summary(self) -> tuple[Floats, Floats]:
        runs = np.stack([values.runs for values in self.points], axis=1)
        mean, half = means_with_halves(runs)
        return np.where(np.isinf(runs).any(axis=0), np.nan, mean), np.where(np.isnan(half), 0.0, half)

    @property
    def mean(self) -> Floats:
        """The mean over the runs at each x; NaN where a run diverged to infinity, or where there is none."""
        return self._summary[0]

    @property
    def half(self) -> Floats:
        """Half the width of the 95% interval of the mean at each x; 0 where there is none."""
        return self._summary[1]


@dataclass(frozen=True, eq=False)
class Sweep:
    """Points on one data set that differ in one setting.

    symbol   the symbol of the setting that is swept
    points   (x, point); the curve of a scheme goes through the points that have it, so two of them may share an x
    setting  what distinguishes the sweep from others of its figure on the same data set
    """

    data: str
    symbol: str
    points: tuple[tuple[float, Point], ...]
    setting: str = ""

    @property
    def name(self) -> str:
        """The data set, and what else distinguishes the sweep from others."""
        return ", ".join(part for part in (DATA_NAMES.get(self.data, self.data), self.setting) if part)

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of all schemes of the sweep."""
        return tuple(dict.fromkeys(entry.label for _, point in self.points for entry in point.entries))

    def of(self, label: str) -> list[tuple[float, Point]]:
        """Return (x, point) for the points that have a scheme."""
        return [(x, point) for x, point in self.points if any(entry.label == label for entry in point.entries)]

    def curve(self, results: Results, label: str, metric: str, note: str = "") -> Curve:
        """Return the values of a scheme along the sweep; a consensus error of mere rounding counts as 0."""
        points = self.of(label)
        runs = [np.asarray(getattr(results[point][label], metric), dtype=np.float64) for _, point in points]
        if metric == "ace":
            runs = [np.where(np.abs(scores) < NEGLIGIBLE, 0.0, scores) for scores in runs]
        values = (
            Values(name_of(label), scores, f"{self.symbol}={x:g}") for (x, _), scores in zip(points, runs, strict=True)
        )
        return Curve(label, np.array([x for x, _ in points], dtype=np.float64), tuple(values), note)

    def over_time(self, results: Results, label: str, metric: str) -> Curve:
        """Return the values of a scheme in each slot of its only point in the sweep."""
        ((_, point),) = self.of(label)
        by_slot = getattr(results[point][label], f"{metric}_by_slot")
        slots = range(by_slot.shape[1])
        values = (Values(name_of(label), by_slot[:, slot], f"slot {slot}") for slot in slots)
        return Curve(label, np.array(slots, dtype=np.float64), tuple(values))


@dataclass(frozen=True, eq=False)
class Panel:
    """One pair of axes; `row` says in which row of the figure it stands."""

    title: str
    x_label: str
    y_label: str
    curves: tuple[Curve, ...]
    row: int = 0
    log_x: bool = False
    log_y: bool = True


Layout = Callable[[Sequence[Sweep], Results], list[Panel]]


@dataclass(frozen=True, eq=False)
class Figure:
    """A figure of the paper, or one that we add.

    number, name   how users ask for it
    place          the figure of the paper that it reproduces
    sweeps         what is simulated for it
    layout         the panels that show the results of its sweeps
    about          the caption: what a reader has to know
    """

    number: int
    name: str
    title: str
    place: str
    sweeps: Callable[[RunPlan], list[Sweep]]
    layout: Layout
    about: str

    def points(self, plan: RunPlan) -> list[Point]:
        """Return every point that has to be simulated, once."""
        return list(dict.fromkeys(point for sweep in self.sweeps(plan) for _, point in sweep.points))

    def panels(self, plan: RunPlan, results: Results) -> list[Panel]:
        """Return the panels of the figure."""
        return self.layout(self.sweeps(plan), results)

    @property
    def file(self) -> str:
        """The name of its drawings and tables, without a suffix."""
        return f"figure{self.number}-{self.name}"


def error_panels(x_label: str, *, log_x: bool = False, labels: tuple[str, ...] = ()) -> Layout:
    """Return a layout with one row per sweep: ARE and ACE of all its schemes, or of those named."""

    def layout(sweeps: Sequence[Sweep], results: Results) -> list[Panel]:
        return [
            Panel(
                f"{sweep.name}: {metric.upper()}",
                x_label,
                METRIC_NAMES[metric],
                tuple(sweep.curve(results, label, metric) for label in labels or sweep.labels),
                row=row,
                log_x=log_x,
            )
            for row, sweep in enumerate(sweeps)
            for metric in ERRORS
        ]

    return layout
