"""A figure of a plan: expected error by region, over epsilon, and against bytes for each reach."""

from __future__ import annotations

from pathlib import Path

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
    regions.set_yscale("symlog")
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
    for row in plan.by_reach:
        reaches.annotate(f"reach {row.reach}", (row.traffic.bytes_per_slot, row.error), fontsize="small")
    reaches.set_xlabel("bytes per slot, all servers")
    for panel in (budgets, reaches):
        panel.set_xscale("log")
        panel.set_yscale("log")
        panel.set_ylabel("expected relative error")
        panel.grid(alpha=0.3)
    figure.suptitle(
        f"{plan.servers} servers, ε = {plan.request.epsilon:g}, {plan.samples} samples in {plan.guarantee.length} "
        f"slots, reach {plan.reach}",
        fontsize="medium",
    )
    with refuse_failed_write(path):
        figure.savefig(path)
