"""Figures 6 and 7: many regions and an endless stream, against the window size and against the privacy budget.

Both ledgers side by side. The paper's has an account for each region, and a user who moves between regions pays at
several of them: the legend says how much. The sound one has an account for each server.
"""

from __future__ import annotations

from collections.abc import Callable

from dpcrowd.experiments.figures.figure import DATA_NAMES, METRIC_NAMES, Curve, Figure, Panel, curve
from dpcrowd.experiments.plan import Plan
from dpcrowd.experiments.point import Entry, Point
from dpcrowd.experiments.rosters import regions
from dpcrowd.experiments.run import Results
from dpcrowd.privacy import Accounting

__all__ = ["LEDGERS", "LEDGER_NAMES", "matrix_point", "panels", "point", "points"]

LEDGERS: tuple[Accounting, ...] = ("per-region", "sound")
LEDGER_NAMES = {"per-region": "the paper's ledger", "sound": "sound ledger"}

Swept = Callable[[Plan, str, Accounting], list[tuple[float, Point]]]


def point(plan: Plan, data: str, accounting: Accounting, *, epsilon: float, window: int) -> Point:
    """All schemes for many regions under one ledger."""
    return Point(data, regions(), epsilon=epsilon, density=plan.default_density, window=window, accounting=accounting)


def matrix_point(plan: Plan, data: str, accounting: Accounting) -> Point:
    """DPCrowd+ with full covariances, at the one setting that the two figures share."""
    return Point(
        data,
        (Entry("dpcrowd-plus-matrix", "dpcrowd-plus"),),
        epsilon=plan.default_epsilon,
        density=plan.default_density,
        window=plan.default_window,
        accounting=accounting,
        form="matrix",
        most_runs=plan.matrix_runs,
    )


def points(plan: Plan, swept: Swept) -> list[Point]:
    """Of one of the two figures."""
    return [
        point
        for data in plan.multi
        for accounting in LEDGERS
        for point in (*(p for _, p in swept(plan, data, accounting)), matrix_point(plan, data, accounting))
    ]


def panels(plan: Plan, results: Results, swept: Swept, x_label: str, matrix_x: float) -> list[Panel]:
    """Of one of the two figures: a row for each data set and metric, a column for each ledger."""
    rows = [(data, metric) for data in plan.multi for metric in ("are", "ace")]
    return [
        Panel(
            f"{DATA_NAMES[data]}, {LEDGER_NAMES[accounting]}: {metric.upper()}",
            x_label,
            METRIC_NAMES[metric],
            _curves(plan, results, swept(plan, data, accounting), metric, matrix_x),
            row=row,
        )
        for row, (data, metric) in enumerate(rows)
        for accounting in LEDGERS
    ]


def _curves(
    plan: Plan, results: Results, swept: list[tuple[float, Point]], metric: str, matrix_x: float
) -> tuple[Curve, ...]:
    accounting, data = swept[0][1].accounting, swept[0][1].data
    drawn = []
    for entry in regions():
        values = [(x, getattr(results[p][entry.label], metric)) for x, p in swept]
        overpaid = max(paid.epsilons()["moving"] / p.epsilon for _, p in swept for paid in results[p][entry.label].paid)
        note = f"moving user pays up to {overpaid:.3g}×ε" if accounting == "per-region" and overpaid > 1.0 else ""
        drawn.append(curve(entry.label, values, note))
    matrix = results[matrix_point(plan, data, accounting)]["dpcrowd-plus-matrix"]
    return (*drawn, curve("dpcrowd-plus-matrix", [(matrix_x, getattr(matrix, metric))]))


ABOUT = (
    "Left: the paper's ledger, one account a region; the legend says what a user who moves between regions really "
    "pays. Right: the sound ledger, one account a server, at the same ε. The star is the matrix form of DPCrowd+ at "
    "one point."
)


def figure(
    number: int, name: str, title: str, place: str, swept: Swept, x_label: str, at: Callable[[Plan], float]
) -> Figure:
    """One of the two figures from what it sweeps."""
    return Figure(
        number,
        name,
        title,
        place,
        lambda plan: points(plan, swept),
        lambda plan, results: panels(plan, results, swept, x_label, at(plan)),
        ABOUT,
    )
