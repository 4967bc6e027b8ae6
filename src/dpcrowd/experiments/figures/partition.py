"""Figure 8, ours: a partition. Every user is at one server: shares sum to 1, elsewhere to about 26.

Counts are binomial draws of the population; a server sees 2% of it on average, and noise weighs 25 times more.
"""

from __future__ import annotations

from dpcrowd.experiments.figures.figure import DATA_NAMES, METRIC_NAMES, Figure, Panel, sweep
from dpcrowd.experiments.figures.rosters import CENTRAL, regions, single
from dpcrowd.experiments.points.plan import Plan
from dpcrowd.experiments.points.point import Point
from dpcrowd.experiments.points.run import Results

__all__ = ["FIGURE", "point"]


def point(plan: Plan, data: str, epsilon: float) -> Point:
    """All schemes that fit the data at some budget, on a partition of the crowd."""
    many = data in plan.multi
    roster = regions() if many else single("fast", "dfast", "dpcrowd", flooded=True)
    window = plan.default_window if many else None
    return Point(data, roster, epsilon=epsilon, density=plan.default_density, window=window, shares="partition")


def _budgets(plan: Plan) -> tuple[float, ...]:
    """The two ends of the other figures' budgets, and one between them unless a quick look will do."""
    between = () if plan.quick else (plan.epsilons[len(plan.epsilons) // 2],)
    return (plan.epsilons[0], *between, plan.epsilons[-1])


def _points(plan: Plan) -> list[Point]:
    return [point(plan, data, epsilon) for data in (*plan.single, *plan.multi) for epsilon in _budgets(plan)]


def _panels(plan: Plan, results: Results) -> list[Panel]:
    panels = []
    for row, data in enumerate((*plan.single, *plan.multi)):
        points = [(epsilon, point(plan, data, epsilon)) for epsilon in _budgets(plan)]
        labels = [entry.label for entry in points[0][1].entries]
        panels += [
            Panel(
                f"{DATA_NAMES[data]}, partition: {metric.upper()}",
                "privacy budget ε",
                METRIC_NAMES[metric],
                sweep(results, points, metric, labels),
                row=row,
            )
            for metric in ("are", "ace")
        ]
    return panels


FIGURE = Figure(
    8,
    "partition",
    "The same against privacy budget, when every user is at one server",
    "not in the paper",
    _points,
    _panels,
    "Shares sum to 1; elsewhere, as in the paper, they sum to about half the number of servers, and a user counts at "
    "that many at once. Counts are binomial draws. Many regions under the sound ledger. Here ε is what the whole "
    f"network promises, not each server alone. {CENTRAL}",
)
