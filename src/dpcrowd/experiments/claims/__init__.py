"""Every comparison that the paper states in words, judged on what was simulated: holds, does not hold, or undecided.

A claim is a small function with a docstring of three paragraphs: the statement, the place in the paper, and how it is
judged. `docs/claims.md` explains the rules and margins.
"""

from __future__ import annotations

from collections.abc import Collection

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
from dpcrowd.experiments.claims.verdict import Claim, Outcome, Part, Verdict
from dpcrowd.experiments.figures.figure import DATA_NAMES
from dpcrowd.experiments.plan import MULTI, SINGLE, Plan
from dpcrowd.experiments.point import Point
from dpcrowd.experiments.run import Results
from dpcrowd.experiments.slot_cost import SlotCost
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
    if figures:
        return f"needs figure{'s' * (len(figures) > 1)} {' and '.join(figures)}, which {_were(figures)} not run."
    # A claim on several sets is judged on those that are there, but on one at least.
    wanted = claim.data or (MULTI if claim.ledger else SINGLE)
    missing = [DATA_NAMES[data] for data in wanted if data not in plan.data]
    if missing and (claim.data or len(missing) == len(wanted)):
        return f"needs {' and '.join(missing)}, which {_were(missing)} not found."
    return ""


def _were(things: list[str]) -> str:
    return "were" if len(things) > 1 else "was"


def _judge(claim: Claim, plan: Plan, results: Results, slot_cost: SlotCost | None) -> Verdict:
    if claim.ledger is not None:
        return claim.function(plan, results, accounting=claim.ledger)
    if claim.timed:
        return claim.function(plan, results, slot_cost=slot_cost)
    return claim.function(plan, results)
