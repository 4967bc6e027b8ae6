"""Figure 1: error over time. Who converges, how fast, and to what (the paper's "Error Convergence with Time")."""

from __future__ import annotations

from dpcrowd.experiments.figures.figure import DATA_NAMES, METRIC_NAMES, Figure, Panel, over_time
from dpcrowd.experiments.figures.rosters import CENTRAL, single
from dpcrowd.experiments.points.plan import Plan
from dpcrowd.experiments.points.point import Point
from dpcrowd.experiments.points.run import Results

__all__ = ["FIGURE", "point"]


def point(plan: Plan, data: str) -> Point:
    """All schemes with the parameters of the table, slot by slot."""
    return Point(
        data,
        single("fast", "dfast", "dpcrowd"),
        epsilon=plan.default_epsilon,
        density=plan.default_density,
        by_slot=True,
    )


def _points(plan: Plan) -> list[Point]:
    return [point(plan, data) for data in plan.single]


def _panels(plan: Plan, results: Results) -> list[Panel]:
    return [
        Panel(
            f"{DATA_NAMES[data]}: {metric.upper()} over time",
            "slot",
            METRIC_NAMES[metric],
            tuple(
                over_time(label, getattr(record, f"{metric}_by_slot"))
                for label, record in results[point(plan, data)].records.items()
            ),
            row=row,
        )
        for row, data in enumerate(plan.single)
        for metric in ("are", "ace")
    ]


FIGURE = Figure(
    1,
    "time",
    "Error over time",
    "Fig. Error Convergence with Time",
    _points,
    _panels,
    "Mean over servers and runs in each slot, the start included. DFAST's servers agree up to rounding in every slot "
    "whose network is connected. "
    f"{CENTRAL}",
)
