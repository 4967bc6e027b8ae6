"""Figure 7: error against the privacy budget for many regions (the second "Average Error vs. Privacy")."""

from __future__ import annotations

from dpcrowd.experiments.figures import regions
from dpcrowd.experiments.points.plan import Plan
from dpcrowd.experiments.points.point import Point
from dpcrowd.privacy import Accounting

__all__ = ["FIGURE", "swept"]


def swept(plan: Plan, data: str, accounting: Accounting) -> list[tuple[float, Point]]:
    """(ε, point) for every budget."""
    return [
        (epsilon, regions.point(plan, data, accounting, epsilon=epsilon, window=plan.default_window))
        for epsilon in plan.epsilons
    ]


FIGURE = regions.figure(
    7,
    "epsilon-regions",
    "Error against privacy budget, many regions",
    "Fig. Average Error vs. Privacy (DPCrowd+)",
    swept,
    "privacy budget ε",
    "ε",
    lambda plan: plan.default_epsilon,
)
