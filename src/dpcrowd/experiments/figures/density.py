"""Figure 2: error against network density, at strong and at weak privacy ("Average Error vs. Network Density")."""

from __future__ import annotations

from dpcrowd.experiments.figures.figure import DATA_NAMES, METRIC_NAMES, Figure, Panel, sweep
from dpcrowd.experiments.figures.rosters import CENTRAL, single
from dpcrowd.experiments.points.plan import Plan
from dpcrowd.experiments.points.point import Point
from dpcrowd.experiments.points.run import Results

__all__ = ["FIGURE", "point"]

_ROSTER = single("dfast", "dpcrowd")


def point(data: str, epsilon: float, density: float) -> Point:
    """DPCrowd and DFAST in a random network of some density."""
    return Point(data, _ROSTER, epsilon=epsilon, density=density)


def _points(plan: Plan) -> list[Point]:
    return [
        point(data, epsilon, density)
        for data in plan.single
        for epsilon in plan.density_epsilons
        for density in plan.densities
    ]


def _panels(plan: Plan, results: Results) -> list[Panel]:
    rows = [(data, epsilon) for data in plan.single for epsilon in plan.density_epsilons]
    return [
        Panel(
            f"{DATA_NAMES[data]}, ε={epsilon:g}: {metric.upper()}",
            "density ρ",
            METRIC_NAMES[metric],
            sweep(
                results,
                [(density, point(data, epsilon, density)) for density in plan.densities],
                metric,
                [entry.label for entry in _ROSTER],
            ),
            row=row,
        )
        for row, (data, epsilon) in enumerate(rows)
        for metric in ("are", "ace")
    ]


FIGURE = Figure(
    2,
    "density",
    "Error against network density",
    "Fig. Average Error vs. Network Density",
    _points,
    _panels,
    "ρ = 2·links/(m(m−1)); the network is drawn anew each slot and leaves no server alone, but it need not be "
    "connected: in a sparse slot flooding reaches only the servers of one part. "
    f"{CENTRAL}",
)
