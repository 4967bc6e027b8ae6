"""Figure 9, ours: the error that the analysis predicts beside the one that is measured (Eq. error analysis).

It needs no simulation of its own: the points are those of the interval figure, where sampling is fixed as the analysis
assumes. The filter's own variance M has the neighbours' information; FAST's with the same samples is the printed form.
"""

from __future__ import annotations

from dpcrowd.experiments.figures import interval
from dpcrowd.experiments.figures.figure import DATA_NAMES, Curve, Figure, Panel, curve
from dpcrowd.experiments.points.plan import Plan
from dpcrowd.experiments.points.point import Point
from dpcrowd.experiments.points.run import Results

__all__ = ["FIGURE"]

# name in the figure: whose record, and which number of it
_CURVES = {
    "measured": ("dpcrowd-fixed", "mse"),
    "predicted": ("dpcrowd-fixed", "claimed_mse"),
    "predicted-printed": ("fast-fixed", "claimed_mse"),
}


def _points(plan: Plan) -> list[Point]:
    return [interval.fixed_point(plan, data, i) for data in plan.single for i in plan.intervals]


def _curves(plan: Plan, results: Results, data: str) -> tuple[Curve, ...]:
    points = [(float(i), interval.fixed_point(plan, data, i)) for i in plan.intervals]
    return tuple(
        curve(name, [(x, getattr(results[point][label], metric)) for x, point in points])
        for name, (label, metric) in _CURVES.items()
    )


def _panels(plan: Plan, results: Results) -> list[Panel]:
    return [
        Panel(
            f"{DATA_NAMES[data]}: mean squared error",
            "sampling interval I (slots)",
            "mean squared error (people²)",
            _curves(plan, results, data),
            log_x=True,
        )
        for data in plan.single
    ]


FIGURE = Figure(
    9,
    "error-analysis",
    "Predicted and measured error",
    "Eq. (error analysis), not drawn in the paper",
    _points,
    _panels,
    "DPCrowd with fixed sampling. Predicted: the filter's own variance, with the neighbours' information; as printed: "
    "the recursion of the paper, which has the server's own information only. On Flu the model of the process is an "
    "assumption.",
)
