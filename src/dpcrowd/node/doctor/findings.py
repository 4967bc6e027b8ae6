"""The findings of the doctor: a check has passed, has a problem and its fix, or could not be made."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

__all__ = ["Finding", "has_problem", "note", "passed", "problem", "skipped"]


@dataclass(frozen=True)
class Finding:
    """The result of one check: `fix` says what to do about a problem; a note is allowed, but probably not intended."""

    check: str
    outcome: Literal["passed", "problem", "note", "skipped"]
    text: str
    fix: str = ""


def passed(check: str, text: str) -> Finding:
    """Return the finding that a check has passed."""
    return Finding(check, "passed", text)


def note(check: str, text: str) -> Finding:
    """Return a finding that the operator should read, but that is not a problem."""
    return Finding(check, "note", text)


def skipped(check: str, text: str) -> Finding:
    """Return the finding that a check could not be made, and why."""
    return Finding(check, "skipped", text)


def problem(check: str, text: str, fix: str) -> Finding:
    """Return a problem and its fix."""
    return Finding(check, "problem", text, fix)


def has_problem(findings: Iterable[Finding]) -> bool:
    """Whether any finding is a problem."""
    return any(finding.outcome == "problem" for finding in findings)
