"""The verdicts as rows of the page's table and as `claims.json`. A claim that fails is as visible as one that holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dpcrowd.__about__ import __version__
from dpcrowd.experiments.claims import Claim, Part, Verdict, why_not_judged
from dpcrowd.experiments.figures import LEDGER_NAMES
from dpcrowd.experiments.points.plan import RunPlan

__all__ = ["CLASSES", "MARKS", "NOT_JUDGED", "PLURALS", "ClaimRow", "Judged", "claim_rows", "claims_as_json", "summary"]

VERSION = 1  # of claims.json: raised when a key changes its meaning or goes away
NOT_JUDGED = "not judged"
MARKS = {"holds": "✓", "does not hold": "✗", "undecided": "~", NOT_JUDGED: "–"}
CLASSES = {"holds": "yes", "does not hold": "no", "undecided": "open", NOT_JUDGED: "none"}
PLURALS = {"holds": "hold", "does not hold": "do not hold", "undecided": "undecided", NOT_JUDGED: NOT_JUDGED}

Judged = Sequence[tuple[Claim, Verdict | None]]


def outcome_of(verdict: Verdict | None) -> str:
    """In words; "not judged" if there is no verdict."""
    return NOT_JUDGED if verdict is None else verdict.outcome


def summary(judged: Judged) -> dict[str, int]:
    """How many claims have each outcome; outcomes that no claim has are there too."""
    counts = dict.fromkeys(MARKS, 0)
    for _, verdict in judged:
        counts[outcome_of(verdict)] += 1
    return counts


@dataclass(frozen=True)
class ClaimRow:
    """A claim as the page shows it.

    drawn    numbers of the figures that are on the page
    why_not  why it was not judged, if it was not
    """

    claim: Claim
    verdict: Verdict | None
    drawn: frozenset[int]
    why_not: str = ""

    @property
    def name(self) -> str:
        """The identifier of its row."""
        return f"claim-{self.claim.name}" + (f"-{self.claim.ledger}" if self.claim.ledger else "")

    @property
    def outcome(self) -> str:
        return outcome_of(self.verdict)

    @property
    def labels(self) -> list[str]:
        """What stands before the statement."""
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
        """The first part that has the outcome of the whole."""
        return next((part for part in self.parts if part.outcome == self.outcome), next(iter(self.parts), None))

    @property
    def others(self) -> str:
        """How many of several cases are as the whole is."""
        alike = sum(part.outcome == self.outcome for part in self.parts)
        return f" ({alike} of {len(self.parts)} cases: {self.outcome})" if len(self.parts) > 1 else ""

    @property
    def cases(self) -> tuple[Part, ...]:
        """All parts; of a single one everything is told in the row itself."""
        return self.parts if len(self.parts) > 1 else ()

    @property
    def confidences_differ(self) -> bool:
        """What all cases have in common is told in the row itself."""
        return len({part.confidence for part in self.parts}) > 1

    @property
    def details(self) -> str:
        """What can be unfolded below the row; empty if there is nothing."""
        reason = self.verdict is not None and self.verdict.reason
        names = [
            *(["the reason"] if reason else []),
            *([f"{len(self.cases)} cases"] if self.cases else []),
            *(["how it is judged"] if self.claim.rule else []),
        ]
        text = ", ".join(names)
        return text[:1].upper() + text[1:]


def claim_rows(plan: RunPlan, drawn: set[int], judged: Judged) -> list[ClaimRow]:
    """In the paper's order."""
    return [
        ClaimRow(claim, verdict, frozenset(drawn), why_not_judged(claim, plan, drawn) if verdict is None else "")
        for claim, verdict in judged
    ]


def claims_as_json(plan: RunPlan, drawn: set[int], judged: Judged) -> dict[str, Any]:
    """Everything that the claims table says."""
    claims = []
    for claim, verdict in judged:
        if verdict is None:
            outcome = {"outcome": NOT_JUDGED, "reason": why_not_judged(claim, plan, drawn), "parts": []}
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
