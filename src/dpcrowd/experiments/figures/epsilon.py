"""Figure 4: error against the privacy budget, one region and a finite stream ("Average Error vs. Privacy")."""

from __future__ import annotations

from dpcrowd.experiments.figures.figure import DATA_NAMES, METRIC_NAMES, Figure, Panel, sweep
from dpcrowd.experiments.figures.rosters import CENTRAL, single
from dpcrowd.experiments.points.plan import Plan
from dpcrowd.experiments.points.point import Point
from dpcrowd.experiments.points.run import Results

__all__ = ["FIGURE", "point"]

_ROSTER = single("fast", "dfast", "dpcrowd", flooded=True)


def point(plan: Plan, data: str, epsilon: float) -> Point:
    """All schemes for one region at some budget."""
    return Point(data, _ROSTER, epsilon=epsilon, density=plan.default_density)


def _points(plan: Plan) -> list[Point]:
    return [point(plan, data, epsilon) for data in plan.single for epsilon in plan.epsilons]


def _panels(plan: Plan, results: Results) -> list[Panel]:
    return [
        Panel(
            f"{DATA_NAMES[data]}: {metric.upper()}",
            "privacy budget ε",
            METRIC_NAMES[metric],
            sweep(
                results,
                [(epsilon, point(plan, data, epsilon)) for epsilon in plan.epsilons],
                metric,
                [entry.label for entry in _ROSTER],
            ),
            row=row,
        )
        for row, data in enumerate(plan.single)
        for metric in ("are", "ace")
    ]


FIGURE = Figure(
    4,
    "epsilon",
    "Error against privacy budget, one region",
    "Fig. Average Error vs. Privacy",
    _points,
    _panels,
    "ε for all check-ins of a user at one server over the whole stream. DUniform and DSample are Uniform and Sample "
    "whose values are flooded and averaged, as DFAST does with FAST's. "
    f"{CENTRAL}",
)
