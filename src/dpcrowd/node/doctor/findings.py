"""What the doctor found: a check passed, has a problem and its fix, or could not be made."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

__all__ = ["Finding", "has_problem", "note", "passed", "problem", "skipped"]


@dataclass(frozen=True)
class Finding:
    """`fix` is what to do, for problems alone; a note is allowed, but probably not meant."""

    check: str
    outcome: Literal["passed", "problem", "note", "skipped"]
    text: str
    fix: str = ""


def passed(check: str, text: str) -> Finding:
    return Finding(check, "passed", text)


def note(check: str, text: str) -> Finding:
    return Finding(check, "note", text)


def skipped(check: str, text: str) -> Finding:
    return Finding(check, "skipped", text)


def problem(check: str, text: str, fix: str) -> Finding:
    return Finding(check, "problem", text, fix)


def has_problem(findings: Iterable[Finding]) -> bool:
    return any(finding.outcome == "problem" for finding in findings)
