"""The verdicts as rows of a table and as `claims.json`. A claim that fails is as visible as one that holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dpcrowd.__about__ import __version__
from dpcrowd.experiments.claims import Claim, Part, Verdict, why_not_judged
from dpcrowd.experiments.claims.judge import NEEDS_FIGURE
from dpcrowd.experiments.figures import LEDGER_NAMES
from dpcrowd.experiments.points.plan import RunPlan

__all__ = [
    "CLASSES",
    "MARKS",
    "NOT_JUDGED",
    "PLURALS",
    "ClaimRow",
    "Judged",
    "claim_rows",
    "claims_as_json",
    "needs_other_figures",
    "summary",
]

VERSION = 1  # of claims.json; raised when a key changes its meaning or goes away
NOT_JUDGED = "not judged"
MARKS = {"holds": "✓", "does not hold": "✗", "undecided": "~", NOT_JUDGED: "–"}
CLASSES = {"holds": "yes", "does not hold": "no", "undecided": "open", NOT_JUDGED: "none"}
PLURALS = {"holds": "hold", "does not hold": "do not hold", "undecided": "undecided", NOT_JUDGED: NOT_JUDGED}

Judged = Sequence[tuple[Claim, Verdict | None]]


def outcome_of(verdict: Verdict | None) -> str:
    """Return the outcome in words; "not judged" if there is no verdict."""
    return NOT_JUDGED if verdict is None else verdict.outcome


def summary(judged: Judged) -> dict[str, int]:
    """Return how many claims have each outcome, including outcomes that no claim has."""
    counts = dict.fromkeys(MARKS, 0)
    for _, verdict in judged:
        counts[outcome_of(verdict)] += 1
    return counts


@dataclass(frozen=True)
class ClaimRow:
    """A claim as a row of the page.

    on_page  numbers of the figures that are on the page
    why_not  why it was not judged, if it was not
    """

    claim: Claim
    verdict: Verdict | None
    on_page: frozenset[int]
    why_not: str = ""

    @property
    def name(self) -> str:
        """The identifier of the row."""
        return f"claim-{self.claim.name}" + (f"-{self.claim.ledger}" if self.claim.ledger else "")

    @property
    def outcome(self) -> str:
        return outcome_of(self.verdict)

    @property
    def labels(self) -> list[str]:
        """Labels in front of the statement."""
        ledger = [LEDGER_NAMES[self.claim.ledger]] if self.claim.ledger else []
        return [*ledger, *(["by construction"] if self.claim.by_construction else [])]

    @property
    def place(self) -> str:
        return self.claim.place.rstrip(".")

    @property
    def parts(self) -> tuple[Part, ...]:
        return () if self.verdict is None else self.verdict.parts

    @property
    def decisive(self) -> Part | None:
        """The first part that has the outcome of the claim."""
        return next((part for part in self.parts if part.outcome == self.outcome), next(iter(self.parts), None))

    @property
    def others(self) -> str:
        """How many of several cases have the outcome of the claim."""
        same = sum(part.outcome == self.outcome for part in self.parts)
        return f" ({same} of {len(self.parts)} cases: {self.outcome})" if len(self.parts) > 1 else ""

    @property
    def cases(self) -> tuple[Part, ...]:
        """All parts if there are several; the row itself contains a single one."""
        return self.parts if len(self.parts) > 1 else ()

    @property
    def confidences_differ(self) -> bool:
        """Whether each case needs its own confidence; the row itself contains a common one."""
        return len({part.confidence for part in self.parts}) > 1

    @property
    def details(self) -> str:
        """The title of what can be unfolded below the row; empty if there is nothing."""
        reason = self.verdict is not None and self.verdict.reason
        names = [
            *(["the reason"] if reason else []),
            *([f"{len(self.cases)} cases"] if self.cases else []),
            *(["how it is judged"] if self.claim.rule else []),
        ]
        text = ", ".join(names)
        return text[:1].upper() + text[1:]


def claim_rows(plan: RunPlan, on_page: set[int], judged: Judged) -> list[ClaimRow]:
    """Return the rows of all claims in the paper's order; `on_page` are the numbers of the figures on the page."""
    return [
        ClaimRow(claim, verdict, frozenset(on_page), why_not_judged(claim, plan, on_page) if verdict is None else "")
        for claim, verdict in judged
    ]


def needs_other_figures(claim: dict[str, Any]) -> bool:
    """Whether a claim of claims.json was not judged because a figure was not run."""
    return claim["outcome"] == NOT_JUDGED and str(claim["reason"]).startswith(NEEDS_FIGURE)


def claims_as_json(plan: RunPlan, on_page: set[int], judged: Judged) -> dict[str, Any]:
    """Return the content of the claims table as plain values."""
    claims = []
    for claim, verdict in judged:
        if verdict is None:
            outcome = {"outcome": NOT_JUDGED, "reason": why_not_judged(claim, plan, on_page), "parts": []}
        else:
            outcome = verdict.to_json()
        claims.append({**claim.to_json(), **outcome})
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
