"""The cases of a claim and its verdict.

All cases are collected first, since each interval depends on how many intervals the complete claim takes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from dpcrowd.experiments.claims import findings
from dpcrowd.experiments.claims.claim import Outcome, Part, Verdict, combine
from dpcrowd.experiments.claims.findings import ClaimFinding, Points
from dpcrowd.experiments.figures import Values
from dpcrowd.experiments.figures.figure import DATA_NAMES

__all__ = ["Case", "Failures", "Reason", "decide", "decide_most", "with_note"]


@dataclass(frozen=True)
class Case:
    """One question of a claim, which takes `intervals` intervals; `ask` gets the number of intervals of the claim."""

    name: str
    intervals: int
    ask: Callable[[int], ClaimFinding]


@dataclass(frozen=True)
class Failures:
    """What a reason has to explain: the names of the cases that fail, and how many intervals the claim takes."""

    cases: tuple[str, ...]
    tests: int

    def fails_on(self, data: str) -> bool:
        """Whether a case of a data set fails."""
        return any(name.startswith(DATA_NAMES.get(data, data)) for name in self.cases)


Reason = Callable[[Failures], str]


def with_note(case: Case, note: str) -> Case:
    """Return the same case with a note after its numbers."""

    def ask(tests: int) -> ClaimFinding:
        finding = case.ask(tests)
        return replace(finding, numbers=f"{finding.numbers} {note}".strip())

    return Case(case.name, case.intervals, ask)


# ----------------------------------------------------------------------------------------------- kinds of questions


def value_below(name: str, first: Values, second: Values, factor: float = 1.0) -> Case:
    """Return the case that one value is below another."""
    return Case(name, 1, lambda tests: findings.below(first, second, tests, factor))


def values_agree(name: str, first: Values, second: Values) -> Case:
    """Return the case that two values agree."""
    return Case(name, 1, lambda tests: findings.agrees(first, second, tests))


def values_close(name: str, first: Values, second: Values, margin: float, unit: str) -> Case:
    """Return the case that two values differ by less than a margin."""
    return Case(name, 1, lambda tests: findings.within(first, second, margin, unit, tests))


def curve_below(name: str, first: Points, second: Points, factor: float = 1.0) -> Case:
    """Return the case that one curve is below another at every point."""
    return Case(name, len(first), lambda tests: findings.below_everywhere(first, second, tests, factor))


def curve_shape(test: str, name: str, points: Points) -> Case:
    """Return the case that a curve falls, grows, stays level, varies or has a valley."""
    finding, intervals = OF_ONE_CURVE[test]
    return Case(name, intervals(len(points)), lambda tests: finding(points, tests))


def curve_zero(name: str, points: Points) -> Case:
    """Return the case that a curve is zero up to rounding. It takes no interval, since nothing is estimated."""
    return _all_points(name, points, [findings.negligible(values) for values in points], "It is zero")


def curve_within(name: str, points: Points, limits: Sequence[float], what: str) -> Case:
    """Return the case that every run stays within a limit at every point. It takes no interval."""
    pairs = zip(points, limits, strict=True)
    return _all_points(
        name, points, [findings.at_most(values, limit, what) for values, limit in pairs], "It is within the limit"
    )


def _all_points(name: str, points: Points, answers: list[ClaimFinding], outcome_text: str) -> Case:
    """Return the case that all answers hold; the worst one, or else the largest value, gives its numbers."""

    def ask(_: int) -> ClaimFinding:
        sizes = [float(abs(values.runs).max()) if values.runs.size else 0.0 for values in points]
        worst = max(range(len(points)), key=lambda i: (answers[i].outcome != "holds", sizes[i]))
        count = sum(finding.outcome == "holds" for finding in answers)
        where = f"{outcome_text} at {count} of {len(points)} points; the largest is at {points[worst].at}: "
        outcome = findings.worst_of([finding.outcome for finding in answers])
        numbers = ("" if len(points) == 1 else where) + answers[worst].numbers
        return replace(answers[worst], outcome=outcome, numbers=numbers)

    return Case(name, 0, ask)


def _steps(points: int) -> int:
    """Return the number of intervals from end to end and of every step between."""
    return points if points > 2 else max(points - 1, 1)


def _pairs(points: int) -> int:
    """Return the number of pairs, any of which may decide."""
    return points * (points - 1) // 2


OF_ONE_CURVE: dict[str, tuple[Callable[[Points, int], ClaimFinding], Callable[[int], int]]] = {
    "falls": (findings.falls, _steps),
    "grows": (findings.grows, _steps),
    "level": (findings.flat, _pairs),
    "varies": (findings.varies, _pairs),
    "valley": (findings.u_shaped, lambda points: max(2 * (points - 2), 0)),
}
"""Tests of one curve, and how many intervals each takes for a number of points."""


# ------------------------------------------------------------------------------------------------------- the verdict


def decide(cases: Sequence[Case], reason: Reason | str = "", undecided: str = "") -> Verdict:
    """Return the verdict on all cases; `reason` explains cases that fail, `undecided` a verdict without any."""
    parts, answers, tests = _ask(cases)
    verdict = combine(parts)
    return replace(verdict, reason=_why(verdict.outcome, parts, answers, tests, reason, undecided))


def decide_most(cases: Sequence[Case], reason: Reason | str = "") -> Verdict:
    """Return the verdict of a claim about most cases.

    It holds if more than half of the cases hold, and fails if at least half of them fail.
    """
    parts, answers, tests = _ask(cases)
    better = sum(part.outcome == "holds" for part in parts)
    worse = sum(part.outcome == "does not hold" for part in parts)
    outcome: Outcome = "undecided"
    if better > len(parts) / 2:
        outcome = "holds"
    elif parts and worse >= len(parts) / 2:
        outcome = "does not hold"
    numbers = (
        f"It holds in {better} of {len(parts)} cases, fails in {worse}, and is undecided in "
        f"{len(parts) - better - worse}."
    )
    all_cases = Part("count of the cases below", outcome, numbers, parts[0].confidence if parts else "")
    return Verdict(outcome, (all_cases, *parts), _why(outcome, parts, answers, tests, reason))


def _why(
    outcome: Outcome,
    parts: Sequence[Part],
    answers: Sequence[ClaimFinding],
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
    unclear = [finding for finding in answers if finding.outcome == "undecided"]
    causes = dict.fromkeys(finding.cause for finding in unclear if finding.cause)
    if any(not finding.cause for finding in unclear):
        causes["The intervals of the undecided cases are too wide to decide; more runs make them narrower."] = None
    return " ".join(text for text in (undecided, *causes) if text)


def _ask(cases: Sequence[Case]) -> tuple[list[Part], list[ClaimFinding], int]:
    tests = max(1, sum(case.intervals for case in cases))
    answers = [case.ask(tests) for case in cases]
    pairs = zip(cases, answers, strict=True)
    return [Part(case.name, f.outcome, f.numbers, f.confidence) for case, f in pairs], answers, tests
