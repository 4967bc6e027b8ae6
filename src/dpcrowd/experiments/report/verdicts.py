"""Outcomes: the marks, words and classes of CSS that stand for them, and how many claims have each."""

from __future__ import annotations

from collections.abc import Sequence

from dpcrowd.experiments.claims import Claim, Verdict

__all__ = ["CLASSES", "MARKS", "NOT_JUDGED", "PLURALS", "Judged", "outcome_of", "summary"]

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
