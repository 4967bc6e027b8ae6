"""`claims.json`: the verdicts for programs."""

from __future__ import annotations

from typing import Any

from dpcrowd.__about__ import __version__
from dpcrowd.experiments.claims import why_not_judged
from dpcrowd.experiments.points.plan import Plan
from dpcrowd.experiments.report.verdicts import NOT_JUDGED, Judged, summary

__all__ = ["VERSION", "claims_as_json"]

VERSION = 1  # of the format: raised when a key changes its meaning or goes away


def claims_as_json(plan: Plan, drawn: set[int], judged: Judged) -> dict[str, Any]:
    """Everything that the claims table says."""
    claims = []
    for claim, verdict in judged:
        if verdict is None:
            found = {"outcome": NOT_JUDGED, "reason": why_not_judged(claim, plan, drawn), "parts": []}
        else:
            found = verdict.to_json()
        claims.append({**claim.to_json(), **found})
    return {
        "version": VERSION,
        "dpcrowd": __version__,
        "seed": plan.seed,
        "runs": plan.runs,
        "quick": plan.quick,
        "missing": sorted(plan.missing),
        "summary": summary(judged),
        "claims": claims,
    }
