"""What a figure is: the points that it needs, and the panels that it shows of their results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpcrowd.experiments.points.plan import Plan
from dpcrowd.experiments.points.point import Point
from dpcrowd.experiments.points.run import Results
from dpcrowd.sim.statistics import mean_with_interval, means_with_halves

__all__ = ["DATA_NAMES", "METRIC_NAMES", "Curve", "Figure", "Panel", "curve", "sweep"]

Floats = NDArray[np.float64]

DATA_NAMES = {"linear": "Linear", "flu": "Flu", "multi-linear": "Multi-Linear", "multi-flu": "Multi-Flu"}
METRIC_NAMES = {
    "are": "ARE",
    "ace": "ACE (people)",
    "latency_ms": "latency of a slot (ms)",
    "packets_per_slot": "packets a slot",
    "frequency": "share of slots sampled",
}


@dataclass(frozen=True, eq=False)
class Curve:
    """Means over the runs and half the widths of their 95% intervals; `note` is added to its name in the legend."""

    label: str
    x: Floats
    mean: Floats
    half: Floats
    note: str = ""


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


@dataclass(frozen=True, eq=False)
class Figure:
    """A figure of the paper, or one that we add.

    number, name   how it is asked for
    place          the figure of the paper that it answers to
    points         what has to be simulated for it
    panels         what it shows
    about          what a reader has to know
    """

    number: int
    name: str
    title: str
    place: str
    points: Callable[[Plan], list[Point]]
    panels: Callable[[Plan, Results], list[Panel]]
    about: str

    @property
    def file(self) -> str:
        """Of its drawings and tables, without an ending."""
        return f"figure{self.number}-{self.name}"


def sweep(
    results: Results, points: Sequence[tuple[float, Point]], metric: str, labels: Iterable[str]
) -> tuple[Curve, ...]:
    """A curve for each label over the x values of some points; a label that is never defined has none."""
    curves = (curve(label, [(x, getattr(results[point][label], metric)) for x, point in points]) for label in labels)
    return tuple(drawn for drawn in curves if np.isfinite(drawn.mean).any())


def curve(label: str, values: Sequence[tuple[float, Floats]], note: str = "") -> Curve:
    """From (x, values of all runs) to means with intervals."""
    means = [mean_with_interval(runs) for _, runs in values]
    return Curve(
        label,
        np.array([x for x, _ in values], dtype=np.float64),
        np.array([np.nan if m.mean is None else m.mean for m in means]),
        np.array([0.0 if m.mean is None or m.ci95 is None else m.ci95[1] - m.mean for m in means]),
        note,
    )


def over_time(label: str, by_slot: Floats) -> Curve:
    """From (runs, slots) to a curve over the slots."""
    mean, half = means_with_halves(by_slot)
    return Curve(label, np.arange(by_slot.shape[1], dtype=np.float64), mean, np.where(np.isnan(half), 0.0, half))
