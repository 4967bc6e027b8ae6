"""From questions to a verdict: the cases of a claim are gathered first; each then knows how many intervals all take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from dpcrowd.experiments.claims.claim import Outcome, Part, Verdict, combine
from dpcrowd.experiments.claims.findings import (
    Finding,
    Points,
    agrees,
    at_most,
    below,
    below_everywhere,
    falls,
    flat,
    grows,
    negligible,
    u_shaped,
    varies,
    within,
    worst_of,
)
from dpcrowd.experiments.figures import Values
from dpcrowd.experiments.figures.figure import DATA_NAMES

__all__ = ["Case", "Failures", "Reason", "decide", "decide_most", "noted"]


@dataclass(frozen=True)
class Case:
    """One question of a claim: `ask` takes the number of intervals of the whole claim, of which `intervals` are its."""

    name: str
    intervals: int
    ask: Callable[[int], Finding]


@dataclass(frozen=True)
class Failures:
    """What a reason is sought for: the names of the cases that fail, and how many intervals the claim takes."""

    cases: tuple[str, ...]
    tests: int

    def fails_on(self, data: str) -> bool:
        """Whether a case of a data set fails."""
        return any(name.startswith(DATA_NAMES.get(data, data)) for name in self.cases)


Reason = Callable[[Failures], str]


def noted(case: Case, note: str) -> Case:
    """The same case with something to add to its numbers."""

    def ask(tests: int) -> Finding:
        finding = case.ask(tests)
        return replace(finding, numbers=f"{finding.numbers} {note}".strip())

    return Case(case.name, case.intervals, ask)


# ----------------------------------------------------------------------------------------------- kinds of questions


def under(name: str, first: Values, second: Values, factor: float = 1.0) -> Case:
    """Is one value below another?"""
    return Case(name, 1, lambda tests: below(first, second, tests, factor))


def equal(name: str, first: Values, second: Values) -> Case:
    """Do two values agree?"""
    return Case(name, 1, lambda tests: agrees(first, second, tests))


def close(name: str, first: Values, second: Values, margin: float, unit: str) -> Case:
    """Do two values differ by less than a margin?"""
    return Case(name, 1, lambda tests: within(first, second, margin, unit, tests))


def lower(name: str, first: Points, second: Points, factor: float = 1.0) -> Case:
    """Is one curve below another everywhere?"""
    return Case(name, len(first), lambda tests: below_everywhere(first, second, tests, factor))


def of_curve(test: str, name: str, points: Points) -> Case:
    """Does it fall, grow, stay level, vary or have a valley?"""
    finding, intervals = OF_ONE_CURVE[test]
    return Case(name, intervals(len(points)), lambda tests: finding(points, tests))


def zero(name: str, points: Points) -> Case:
    """Is it zero up to rounding at every point? No interval: nothing is estimated."""
    return _each(name, points, [negligible(values) for values in points], "Zero")


def capped(name: str, points: Points, limits: Sequence[float], what: str) -> Case:
    """Does every run keep below a limit at every point? No interval: nothing is estimated."""
    pairs = zip(points, limits, strict=True)
    return _each(name, points, [at_most(values, limit, what) for values, limit in pairs], "So")


def _each(name: str, points: Points, findings: list[Finding], so: str) -> Case:
    """The worst of findings that need no interval: one that fails, then the one with the largest value."""

    def ask(_: int) -> Finding:
        sizes = [float(abs(values.runs).max()) if values.runs.size else 0.0 for values in points]
        worst = max(range(len(points)), key=lambda i: (findings[i].outcome != "holds", sizes[i]))
        count = sum(finding.outcome == "holds" for finding in findings)
        where = f"{so} at {count} of {len(points)} points; the largest is at {points[worst].at}: "
        outcome = worst_of([finding.outcome for finding in findings])
        numbers = ("" if len(points) == 1 else where) + findings[worst].numbers
        return replace(findings[worst], outcome=outcome, numbers=numbers)

    return Case(name, 0, ask)


def _steps(points: int) -> int:
    """From end to end, and every step between."""
    return points if points > 2 else max(points - 1, 1)


def _pairs(points: int) -> int:
    """Any two of them: every pair may be the one that decides."""
    return points * (points - 1) // 2


OF_ONE_CURVE: dict[str, tuple[Callable[[Points, int], Finding], Callable[[int], int]]] = {
    "falls": (falls, _steps),
    "grows": (grows, _steps),
    "level": (flat, _pairs),
    "varies": (varies, _pairs),
    "valley": (u_shaped, lambda points: max(2 * (points - 2), 0)),
}
"""Tests of one curve, and how many intervals each takes for so many points."""


# ------------------------------------------------------------------------------------------------------- the verdict


def decide(cases: Sequence[Case], reason: Reason | str = "", undecided: str = "") -> Verdict:
    """Ask all cases; `reason` is sought where a case fails, `undecided` stands where none does."""
    parts, findings, tests = _ask(cases)
    verdict = combine(parts)
    return replace(verdict, reason=_why(verdict.outcome, parts, findings, tests, reason, undecided))


def decide_most(cases: Sequence[Case], reason: Reason | str = "") -> Verdict:
    """For claims about most cases: holds if it does in more than half of them, fails if it fails in half of them."""
    parts, findings, tests = _ask(cases)
    better = sum(part.outcome == "holds" for part in parts)
    worse = sum(part.outcome == "does not hold" for part in parts)
    outcome: Outcome = "undecided"
    if better > len(parts) / 2:
        outcome = "holds"
    elif parts and worse >= len(parts) / 2:
        outcome = "does not hold"
    counted = (
        f"So in {better} of {len(parts)} cases, the opposite in {worse}, undecided in {len(parts) - better - worse}."
    )
    all_cases = Part("count of the cases below", outcome, counted, parts[0].confidence if parts else "")
    return Verdict(outcome, (all_cases, *parts), _why(outcome, parts, findings, tests, reason))


def _why(
    outcome: Outcome,
    parts: Sequence[Part],
    findings: Sequence[Finding],
    tests: int,
    reason: Reason | str,
    undecided: str = "",
) -> str:
    if outcome == "holds":
        return ""
    if outcome == "does not hold":
        cases = tuple(part.case for part in parts if part.outcome == "does not hold")
        text = reason if isinstance(reason, str) else reason(Failures(cases, tests))
        return text or "The recorded numbers point to no reason."
    unclear = [finding for finding in findings if finding.outcome == "undecided"]
    causes = dict.fromkeys(finding.cause for finding in unclear if finding.cause)
    if any(not finding.cause for finding in unclear):
        causes["The intervals of the undecided cases are too wide to tell; more runs make them narrower."] = None
    return " ".join(text for text in (undecided, *causes) if text)


def _ask(cases: Sequence[Case]) -> tuple[list[Part], list[Finding], int]:
    tests = max(1, sum(case.intervals for case in cases))
    findings = [case.ask(tests) for case in cases]
    pairs = zip(cases, findings, strict=True)
    return [Part(case.name, f.outcome, f.numbers, f.confidence) for case, f in pairs], findings, tests
