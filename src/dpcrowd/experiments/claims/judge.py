"""Judge the claims: ask the questions of each row, and explain why a claim fails or was not judged."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from dpcrowd.experiments.claims.cases import Failures, decide, decide_most
from dpcrowd.experiments.claims.claim import CLAIMS, Claim, Part, Verdict
from dpcrowd.experiments.claims.evidence import Evidence
from dpcrowd.experiments.claims.questions import cases_of
from dpcrowd.experiments.claims.reasons import REASONS
from dpcrowd.experiments.claims.slot_cost import SlotCost
from dpcrowd.experiments.figures.figure import DATA_NAMES
from dpcrowd.experiments.points.plan import RunPlan
from dpcrowd.experiments.points.point import Point
from dpcrowd.experiments.points.run import Results
from dpcrowd.sim.result import SimulationResult

__all__ = ["NEEDS_FIGURE", "judge", "judge_all", "why_not_judged"]

NEEDS_FIGURE = "needs figure"
"""How the reason of a claim begins that was not judged because a figure was not run."""


def judge_all(
    plan: RunPlan, results: Results, figures_run: Collection[int], *, slot_cost: SlotCost | None = None
) -> list[tuple[Claim, Verdict | None]]:
    """Return every claim with its verdict; None where it cannot be judged (`why_not_judged` says why)."""
    cached = _CachedResults(results)
    return [
        (claim, None if why_not_judged(claim, plan, figures_run) else judge(claim, plan, cached, slot_cost))
        for claim in CLAIMS
    ]


class _CachedResults(Results):
    """Results by point: many claims ask for the same point, and computing its key takes a while."""

    def __init__(self, results: Results) -> None:
        self._results = results
        self._by_point: dict[Point, SimulationResult] = {}

    def __getitem__(self, point: Point) -> SimulationResult:
        if point not in self._by_point:
            self._by_point[point] = self._results[point]
        return self._by_point[point]


def why_not_judged(claim: Claim, plan: RunPlan, figures_run: Collection[int]) -> str:
    """Return what a claim lacks: figures that were not run, or data sets that were not found; empty if nothing."""
    figures = [str(figure) for figure in claim.figures if figure not in figures_run]
    if figures and not set(claim.instead) & set(figures_run):
        others = f" (or {' or '.join(str(figure) for figure in claim.instead)})" if claim.instead else ""
        needed = f"{NEEDS_FIGURE}{'s' * (len(figures) > 1)} {' and '.join(figures)}{others}"
        return f"{needed}, which {_were(figures)} not run."
    # A claim on several sets is judged on those that were found, if there is at least one.
    missing = _missing(claim, plan)
    if missing and (claim.data or len(missing) == len(claim.speaks_of)):
        return f"needs {' and '.join(missing)}, which {_were(missing)} not found."
    return ""


def judge(claim: Claim, plan: RunPlan, results: Results, slot_cost: SlotCost | None = None) -> Verdict:
    """Return the verdict on a claim. Without one of its data sets it can fail, but it cannot hold."""
    evidence = Evidence(claim, plan, results, slot_cost)

    def reason(failures: Failures) -> str:
        return next((text for name in claim.reasons if (text := REASONS[name](evidence, failures))), "")

    cases = cases_of(evidence)
    if claim.most:
        verdict = decide_most(cases, reason)
    else:
        undecided = REASONS[claim.undecided](evidence, Failures((), 1)) if claim.undecided else ""
        verdict = decide(cases, reason, undecided)
    missing = _missing(claim, plan)
    if not missing:
        return verdict
    text = "Not judged: the data set is not on this machine."
    parts = (*verdict.parts, *(Part(name, "undecided", text, "") for name in missing))
    if verdict.outcome == "does not hold":
        return replace(verdict, parts=parts)
    it = "them" if len(missing) > 1 else "it"
    lacking = f"{' and '.join(missing)} {_were(missing)} not found, and the claim is about {it}, too."
    return Verdict("undecided", parts, f"{lacking} {verdict.reason}".strip())


def _missing(claim: Claim, plan: RunPlan) -> list[str]:
    return [DATA_NAMES[data] for data in claim.speaks_of if data not in plan.data]


def _were(things: list[str]) -> str:
    return "were" if len(things) > 1 else "was"
