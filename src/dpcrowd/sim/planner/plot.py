"""A figure of a plan: expected error by region, over epsilon, and against bytes for each reach."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dpcrowd.errors import counted
from dpcrowd.sim.export import refuse_failed_write
from dpcrowd.sim.planner.plan import NetworkPlan
from dpcrowd.sim.plot import check_plot_path

__all__ = ["plot_plan"]


def plot_plan(plan: NetworkPlan, path: Path) -> None:
    """Draw the plan into a .png, .svg or .pdf file."""
    check_plot_path(path)
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 4), layout="constrained")
    regions, budgets, reaches = figure.subplots(1, 3)
    levels = [region.level for region in plan.regions]
    halves = [
        [region.level - region.low for region in plan.regions],
        [region.high - region.level for region in plan.regions],
    ]
    places = range(len(plan.regions))
    regions.errorbar(places, levels, yerr=halves, fmt="o", capsize=3)
    if min(levels) > 0.0 and max(levels) >= 1000.0 * min(levels):
        regions.set_yscale("symlog")
    else:
        _scale(regions.yaxis, [value for region in plan.regions for value in (region.low, region.high)])
    regions.set_xticks(places, [region.region for region in plan.regions], rotation=45, ha="right")
    regions.set_ylabel("people: expected level and 95% interval")
    epsilons = [row.epsilon for row in plan.by_epsilon]
    budgets.plot(epsilons, [row.error for row in plan.by_epsilon], "o-", label="mean of the regions")
    budgets.plot(epsilons, [row.worst_error for row in plan.by_epsilon], "s--", label="worst region")
    budgets.axvline(plan.request.epsilon, color="0.6", linewidth=1)
    if plan.goal is not None:
        budgets.axhline(plan.goal.error, color="C3", linewidth=1, label=f"goal: {plan.goal}")
    budgets.set_xlabel("ε")
    budgets.legend(fontsize="small")
    reaches.plot([row.traffic.bytes_per_slot for row in plan.by_reach], [row.error for row in plan.by_reach], "o-")
    for number, row in enumerate(plan.by_reach):
        # Above and below in turn: the last points are often close together.
        point, offset = (row.traffic.bytes_per_slot, row.error), (0, -14 if number % 2 else 7)
        reaches.annotate(f"reach {row.reach}", point, offset, textcoords="offset points", ha="center", fontsize="small")
    reaches.margins(0.18)  # room for the names of the outermost points
    reaches.set_xlabel("bytes per slot, all servers")
    budgets.set_xscale("log")
    budgets.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
    budgets.minorticks_off()
    errors = [error for row in plan.by_epsilon for error in (row.error, row.worst_error)]
    _scale(budgets.yaxis, errors)
    _scale(reaches.xaxis, [row.traffic.bytes_per_slot for row in plan.by_reach])
    _scale(reaches.yaxis, [row.error for row in plan.by_reach])
    for panel in (budgets, reaches):
        panel.set_ylabel("expected relative error")
        panel.grid(alpha=0.3)
    samples = f"{counted(plan.samples, 'sample')} in {counted(plan.guarantee.length, 'slot')}"
    title = f"{counted(plan.servers, 'server')}, ε = {plan.request.epsilon:g}, {samples}, reach {plan.reach}"
    figure.suptitle(title, fontsize="medium")
    with refuse_failed_write(path):
        figure.savefig(path)


def _scale(axis: Any, values: Sequence[float]) -> None:
    """Make an axis logarithmic if the values span a decade, with ticks at 1 and 3; otherwise a few even ticks.

    Matplotlib's own logarithmic ticks are one, or overlap, where the values span less than that.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    least, most = min(values), max(values)
    if least > 0.0 and most >= 10.0 * least:
        (axis.axes.set_xscale if axis.axis_name == "x" else axis.axes.set_yscale)("log")
        axis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
        axis.set_minor_locator(NullLocator())
    else:
        axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
