"""Figure 6: error against the window size w ("Average Error vs. Window Size")."""

from __future__ import annotations

from dpcrowd.experiments.figures import regions
from dpcrowd.experiments.points.plan import Plan
from dpcrowd.experiments.points.point import Point
from dpcrowd.privacy import Accounting

__all__ = ["FIGURE", "swept"]


def swept(plan: Plan, data: str, accounting: Accounting) -> list[tuple[float, Point]]:
    """(w, point) for every window size."""
    return [
        (float(w), regions.point(plan, data, accounting, epsilon=plan.default_epsilon, window=w)) for w in plan.windows
    ]


FIGURE = regions.figure(
    6,
    "window",
    "Error against window size, many regions",
    "Fig. Average Error vs. Window Size",
    swept,
    "window size w (slots)",
    "w",
    lambda plan: float(plan.default_window),
)
