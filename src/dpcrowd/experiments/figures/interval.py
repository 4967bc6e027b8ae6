"""Figure 3: error against the sampling interval, fixed and adaptive ("Average Error vs. Sampling Interval")."""

from __future__ import annotations

from dpcrowd.experiments.figures.figure import DATA_NAMES, METRIC_NAMES, Curve, Figure, Panel, curve, sweep
from dpcrowd.experiments.figures.rosters import CENTRAL, adaptive, fixed
from dpcrowd.experiments.points.plan import Plan
from dpcrowd.experiments.points.point import Point
from dpcrowd.experiments.points.run import Results

__all__ = ["FIGURE", "adaptive_point", "curves", "fixed_point"]


def fixed_point(plan: Plan, data: str, interval: int) -> Point:
    """DPCrowd that samples every so many slots."""
    return Point(data, fixed(interval), epsilon=plan.default_epsilon, density=plan.default_density)


def adaptive_point(plan: Plan, data: str) -> Point:
    """DPCrowd that chooses its own slots: it takes no interval, so there is one point of it."""
    return Point(data, adaptive(), epsilon=plan.default_epsilon, density=plan.default_density)


def curves(plan: Plan, results: Results, data: str, metric: str) -> tuple[Curve, ...]:
    """Fixed sampling over the intervals, and level lines for what does not depend on them."""
    points = [(float(interval), fixed_point(plan, data, interval)) for interval in plan.intervals]
    level = results[adaptive_point(plan, data)]
    levels = (curve(label, [(x, getattr(level[label], metric)) for x, _ in points]) for label in level.records)
    return (*sweep(results, points, metric, [entry.label for entry in fixed(1)]), *levels)


def _points(plan: Plan) -> list[Point]:
    return [
        point
        for data in plan.single
        for point in (adaptive_point(plan, data), *(fixed_point(plan, data, i) for i in plan.intervals))
    ]


def _panels(plan: Plan, results: Results) -> list[Panel]:
    return [
        Panel(
            f"{DATA_NAMES[data]}: {metric.upper()}",
            "sampling interval I (slots)",
            METRIC_NAMES[metric],
            curves(plan, results, data, metric),
            row=row,
            log_x=True,
        )
        for row, data in enumerate(plan.single)
        for metric in ("are", "ace")
    ]


FIGURE = Figure(
    3,
    "interval",
    "Error against sampling interval",
    "Fig. Average Error vs. Sampling Interval",
    _points,
    _panels,
    "Fixed sampling divides ε by the number of its samples. Adaptive sampling, Uniform, Sample and the central filter "
    "of the adaptive samples take no interval and are level lines; FAST-fixed and central-fixed sample as "
    "DPCrowd-fixed does. "
    f"{CENTRAL}",
)
