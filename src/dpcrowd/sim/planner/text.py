"""A plan in words: what it recommends and what that reaches, for the command line and for `print`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpcrowd.errors import counted

if TYPE_CHECKING:
    from dpcrowd.sim.planner.plan import NetworkPlan

__all__ = ["error_lines", "percent", "recommendation", "short_text"]


def short_text(plan: NetworkPlan) -> str:
    """Return what a plan recommends, what that reaches, and where the rest is."""
    notes = len(plan.remarks)
    more = f"{notes} note{'' if notes == 1 else 's'} in remarks; " if notes else ""
    rest = f"{more}regions, by_epsilon and by_reach have the tables, promise the guarantee, summary() everything."
    return "\n".join((*recommendation(plan, "remarks"), *(f"{line}." for line in error_lines(plan)), rest))


def recommendation(plan: NetworkPlan, notes: str = "the notes below") -> list[str]:
    """Return whether the goal is reached, if there is one, and the samples and the reach to choose.

    notes  where a reader finds the remarks
    """
    lines = []
    if plan.solution is not None:
        lines.append(f"{plan.goal}: reached with {plan.solution}.")
    elif plan.goal is not None and plan.goal_reached:
        lines.append(f"{plan.goal}: reached with the given values.")
    elif plan.goal is not None:
        lines.append(f"{plan.goal}: not reached, see {notes}. With the given values:")
    guarantee = plan.guarantee
    span = "any window of" if guarantee.kind == "window" else "a stream of"
    lines.append(
        f"{counted(plan.servers, 'server')}, ε = {float(guarantee.epsilon):g} in {span} "
        f"{counted(guarantee.length, 'slot')}: take {counted(plan.samples, 'sample')}, and let records travel "
        f"{_distance(plan.reach)}."
    )
    return lines


def error_lines(plan: NetworkPlan) -> list[str]:
    """Return the predicted errors of all regions, and that of the model alone, if there is one."""
    total = f"a total error of {percent(plan.total_error)} (sum of the errors / sum of the people)"
    if plan.total_error is None:
        total = "nobody is expected, so the total error (sum of the errors / sum of the people) is unknown"
    lines = [
        f"all regions: {total}, and {percent(plan.error)} on average per region (|error| / max(people, 1)); `dpcrowd "
        "simulate` calls these total error and ARE"
    ]
    if plan.model_error is not None:
        lines.append(f"the model alone, without any record: a total error of {percent(plan.model_error)}")
    return lines


def percent(value: float | None) -> str:
    """Return a fraction as a percentage with three digits, never as a power of ten: 1,190%. None: unknown."""
    if value is None:
        return "unknown"
    rounded = float(f"{100 * value:.3g}")
    return f"{rounded:,.0f}%" if rounded >= 100 else f"{rounded:.3g}%"


def _distance(reach: int | str) -> str:
    return counted(reach, "hop") if isinstance(reach, int) else "to every server"
