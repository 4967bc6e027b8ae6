"""Every comparison that the paper states in words, judged on what was simulated: holds, does not hold, or undecided.

A claim is a small function with a docstring of three paragraphs: the statement, the place in the paper, and how it is
judged. `docs/claims.md` explains the rules and margins.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from dpcrowd.experiments.claims import (
    analysis,
    communication,
    convergence,
    density,
    privacy,
    regions,
    sampling,
    windows,
)
from dpcrowd.experiments.claims.slot_cost import SlotCost
from dpcrowd.experiments.claims.verdict import Claim, Outcome, Part, Verdict
from dpcrowd.experiments.figures.figure import DATA_NAMES
from dpcrowd.experiments.points.plan import Plan
from dpcrowd.experiments.points.point import Point
from dpcrowd.experiments.points.run import Results
from dpcrowd.sim.result import SimulationResult

__all__ = ["CLAIMS", "Claim", "Outcome", "Part", "Verdict", "judge_all", "why_not_judged"]

CLAIMS: tuple[Claim, ...] = (
    *analysis.ANALYSIS,
    *communication.COST,
    *analysis.COST,
    *convergence.CLAIMS,
    *density.CLAIMS,
    *sampling.CLAIMS,
    *privacy.CLAIMS,
    *communication.CLAIMS,
    *sampling.EFFICIENCY,
    *regions.EFFICIENCY,
    *windows.CLAIMS,
    *regions.CLAIMS,
)
"""In the order of the paper."""


def judge_all(
    plan: Plan, results: Results, figures_run: Collection[int], *, slot_cost: SlotCost | None = None
) -> list[tuple[Claim, Verdict | None]]:
    """Every claim with its verdict; None where it cannot be judged (`why_not_judged` says why)."""
    remembered = _Remembered(results)
    return [
        (claim, None if why_not_judged(claim, plan, figures_run) else _judge(claim, plan, remembered, slot_cost))
        for claim in CLAIMS
    ]


class _Remembered(Results):
    """Results by point: many claims ask for the same ones, and their key on disk takes a while to work out."""

    def __init__(self, results: Results) -> None:
        self._results = results
        self._by_point: dict[Point, SimulationResult] = {}

    def __getitem__(self, point: Point) -> SimulationResult:
        if point not in self._by_point:
            self._by_point[point] = self._results[point]
        return self._by_point[point]


def why_not_judged(claim: Claim, plan: Plan, figures_run: Collection[int]) -> str:
    """What a claim lacks: figures that were not run, or data sets that are not there; empty if nothing."""
    figures = [str(figure) for figure in claim.figures if figure not in figures_run]
    if figures and not set(claim.instead) & set(figures_run):
        others = f" (or {' or '.join(str(figure) for figure in claim.instead)})" if claim.instead else ""
        needed = f"needs figure{'s' * (len(figures) > 1)} {' and '.join(figures)}{others}"
        return f"{needed}, which {_were(figures)} not run."
    # A claim on several sets is judged on those that are there, but on one at least.
    missing = _missing(claim, plan)
    if missing and (claim.data or len(missing) == len(claim.speaks_of)):
        return f"needs {' and '.join(missing)}, which {_were(missing)} not found."
    return ""


def _missing(claim: Claim, plan: Plan) -> list[str]:
    return [DATA_NAMES[data] for data in claim.speaks_of if data not in plan.data]


def _were(things: list[str]) -> str:
    return "were" if len(things) > 1 else "was"


def _judge(claim: Claim, plan: Plan, results: Results, slot_cost: SlotCost | None) -> Verdict:
    if claim.ledger is not None:
        verdict = claim.function(plan, results, accounting=claim.ledger)
    elif claim.timed:
        verdict = claim.function(plan, results, slot_cost=slot_cost)
    else:
        verdict = claim.function(plan, results)
    return _short_of(_missing(claim, plan), verdict)


def _short_of(missing: list[str], verdict: Verdict) -> Verdict:
    """Without a data set that a claim speaks of it can fail, but it cannot hold: whatever the claim, and here only."""
    if not missing:
        return verdict
    text = "Not judged: the data set is not on this machine."
    parts = (*verdict.parts, *(Part(name, "undecided", text, "") for name in missing))
    if verdict.outcome == "does not hold":
        return replace(verdict, parts=parts)
    told = f"{' and '.join(missing)} {_were(missing)} not found, and the claim speaks of {_it(missing)}, too."
    return Verdict("undecided", parts, f"{told} {verdict.reason}".strip())


def _it(things: list[str]) -> str:
    return "them" if len(things) > 1 else "it"
