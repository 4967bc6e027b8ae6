"""Figure 5: what communication costs: latency, packets, and how often servers speak ("Communication Efficiency").

It needs no simulation of its own: the points are those of the density and the interval figures.
"""

from __future__ import annotations

from dpcrowd.experiments.figures import density, interval
from dpcrowd.experiments.figures.figure import DATA_NAMES, METRIC_NAMES, Figure, Panel, sweep
from dpcrowd.experiments.points.plan import Plan
from dpcrowd.experiments.points.point import Point
from dpcrowd.experiments.points.run import Results

__all__ = ["FIGURE", "density_points"]

_DATA = "linear"


def density_points(plan: Plan) -> list[tuple[float, Point]]:
    """(ρ, point) for latency and packets, on Linear as in the paper."""
    return [(rho, density.point(_DATA, plan.default_epsilon, rho)) for rho in plan.densities]


def _points(plan: Plan) -> list[Point]:
    intervals = [
        point
        for data in plan.single
        for point in (
            interval.adaptive_point(plan, data),
            *(interval.fixed_point(plan, data, i) for i in plan.intervals),
        )
    ]
    return [*(point for _, point in density_points(plan)), *intervals]


def _panels(plan: Plan, results: Results) -> list[Panel]:
    points = density_points(plan)
    speaking = {"latency_ms": ("dfast", "dpcrowd"), "packets_per_slot": ("dfast", "dpcrowd", "central")}
    costs = [
        Panel(f"{METRIC_NAMES[metric]}, Linear", "density ρ", METRIC_NAMES[metric], sweep(results, points, metric, who))
        for metric, who in speaking.items()
    ]
    frequencies = [
        Panel(
            f"{DATA_NAMES[data]}: {METRIC_NAMES['frequency']}",
            "sampling interval I (slots)",
            METRIC_NAMES["frequency"],
            tuple(
                drawn
                for drawn in interval.curves(plan, results, data, "frequency")
                if drawn.label in ("dpcrowd-fixed", "dpcrowd-adaptive", "uniform", "sample")
            ),
            row=1,
            log_x=True,
        )
        for data in plan.single
    ]
    return [*costs, *frequencies]


FIGURE = Figure(
    5,
    "communication",
    "Communication: latency, packets, frequency",
    "Fig. Communication Efficiency of DPCrowd",
    _points,
    _panels,
    "A packet is one message over one link. Latency: the last arrival in a slot, links of 50 to 150 ms; flooding takes "
    "the fastest paths. The central filter has one packet a sample and no network; Uniform and Sample send nothing; "
    "their frequency is how often they sample.",
)
