"""Figures 6 and 7: many regions and an endless stream, against the window size and against the privacy budget.

Both ledgers side by side. The paper's has an account for each region, and a user who moves between regions pays at
several of them: the legend says how much. The sound one has an account for each server.
"""

from __future__ import annotations

from collections.abc import Callable

from dpcrowd.experiments.figures.figure import DATA_NAMES, METRIC_NAMES, Curve, Figure, Panel, curve
from dpcrowd.experiments.figures.rosters import CENTRAL, regions
from dpcrowd.experiments.points.plan import Plan
from dpcrowd.experiments.points.point import Entry, Point
from dpcrowd.experiments.points.run import Results
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


def panels(plan: Plan, results: Results, swept: Swept, x_label: str, symbol: str, default: float) -> list[Panel]:
    """Of one of the two figures: a row for each data set and metric, a column for each ledger."""
    rows = [(data, metric) for data in plan.multi for metric in ("are", "ace")]
    return [
        Panel(
            f"{DATA_NAMES[data]}, {LEDGER_NAMES[accounting]}: {metric.upper()}",
            x_label,
            METRIC_NAMES[metric],
            _curves(plan, results, swept(plan, data, accounting), metric, symbol, default),
            row=row,
        )
        for row, (data, metric) in enumerate(rows)
        for accounting in LEDGERS
    ]


def _curves(
    plan: Plan,
    results: Results,
    swept: list[tuple[float, Point]],
    metric: str,
    symbol: str,
    default: float,
) -> tuple[Curve, ...]:
    lone = [(default, matrix_point(plan, swept[0][1].data, swept[0][1].accounting))]
    settings = [*((entry.label, swept) for entry in regions()), ("dpcrowd-plus-matrix", lone)]
    return tuple(
        curve(
            label,
            [(x, getattr(results[p][label], metric)) for x, p in points],
            _paid(results, label, points, symbol, default),
        )
        for label, points in settings
    )


def _paid(results: Results, label: str, points: list[tuple[float, Point]], symbol: str, default: float) -> str:
    """What a moving user pays at the default x, and in brackets at any x, where that is more than ε; in any run."""
    paid = {
        x: max((p.epsilons()["moving"] for p in results[q][label].paid), default=0.0) / q.epsilon for x, q in points
    }
    if points[0][1].accounting != "per-region" or max(paid.values()) <= 1.0:
        return ""
    most = f"{max(paid.values()):.3g}×ε"
    if default not in paid:
        return f"moving user pays at most: {most}"
    usual = f"{paid[default]:.3g}×ε"
    return f"moving user pays at {symbol} = {default:g} (at most): {usual}" + (f" ({most})" if most != usual else "")


ABOUT = (
    "Left: the paper's ledger, one account a region; the legend says what a user who moves between regions really "
    "pays, at the default setting and, in brackets, at any that is drawn. Right: the sound ledger, one account a "
    "server, at the same ε. The star is the matrix form of DPCrowd+ at one point; its bar may leave the panel. "
    f"{CENTRAL}"
)


def figure(
    number: int, name: str, title: str, place: str, swept: Swept, x_label: str, symbol: str, at: Callable[[Plan], float]
) -> Figure:
    """One of the two figures from what it sweeps."""
    return Figure(
        number,
        name,
        title,
        place,
        lambda plan: points(plan, swept),
        lambda plan, results: panels(plan, results, swept, x_label, symbol, at(plan)),
        ABOUT,
    )
