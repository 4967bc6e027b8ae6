"""Cases by the kind of question: each knows how many intervals it takes."""

from __future__ import annotations

from dpcrowd.experiments.claims.cases import Case
from dpcrowd.experiments.claims.curves import Curve, below_everywhere, falls, grows, steps, u_shaped
from dpcrowd.experiments.claims.judge import (
    FAR,
    FLAT,
    NEARLY_NONE,
    Finding,
    Values,
    agrees,
    below,
    flat,
    negligible,
    within,
    worst_of,
)

__all__ = [
    "close",
    "equal",
    "falling",
    "far_lower",
    "growing",
    "level",
    "lower",
    "nearly_none",
    "noted",
    "under",
    "valley",
    "zero",
]


def under(name: str, first: Values, second: Values, factor: float = 1.0) -> Case:
    """Is one value below another?"""
    return Case(name, 1, lambda tests: below(first, second, tests, factor))


def lower(name: str, first: Curve, second: Curve, factor: float = 1.0) -> Case:
    """Is one curve below another everywhere?"""
    return Case(name, len(first), lambda tests: below_everywhere(first, second, tests, factor))


def far_lower(name: str, first: Curve, second: Curve) -> Case:
    """Is it less than half of the other everywhere?"""
    return lower(name, first, second, FAR)


def nearly_none(name: str, first: Curve, second: Curve) -> Case:
    """Is it less than a twentieth of the other everywhere?"""
    return lower(name, first, second, 1.0 / NEARLY_NONE)


def falling(name: str, curve: Curve) -> Case:
    """Does it fall?"""
    return Case(name, steps(len(curve)), lambda tests: falls(curve, tests))


def growing(name: str, curve: Curve) -> Case:
    """Does it grow?"""
    return Case(name, steps(len(curve)), lambda tests: grows(curve, tests))


def level(name: str, curve: Curve, margin: float = FLAT) -> Case:
    """Does it stay level?"""
    return Case(name, len(curve) * (len(curve) - 1) // 2, lambda tests: flat(curve, tests, margin))


def valley(name: str, curve: Curve) -> Case:
    """Is it lowest in between?"""
    return Case(name, max(2 * (len(curve) - 2), 0), lambda tests: u_shaped(curve, tests))


def equal(name: str, first: Values, second: Values) -> Case:
    """Do two values agree?"""
    return Case(name, 1, lambda tests: agrees(first, second, tests))


def close(name: str, first: Values, second: Values, margin: float, unit: str) -> Case:
    """Do two values differ by less than a margin?"""
    return Case(name, 1, lambda tests: within(first, second, margin, unit, tests))


def zero(name: str, curve: Curve) -> Case:
    """Is it zero up to rounding at every point? No interval: nothing is estimated."""

    def ask(_: int) -> Finding:
        found = [(at, negligible(values)) for at, values in curve]
        at, worst = max(zip((at for at, _ in found), (finding for _, finding in found), strict=True), key=_badness)
        count = sum(finding.outcome == "holds" for _, finding in found)
        told = "" if len(found) == 1 else f"Zero at {count} of {len(found)} points; the largest is at {at}: "
        return Finding(worst_of([finding.outcome for _, finding in found]), told + worst.numbers, worst.confidence)

    sizes = {at: float(abs(values.runs).max()) if values.runs.size else 0.0 for at, values in curve}

    def _badness(found: tuple[str, Finding]) -> tuple[bool, float]:
        return found[1].outcome != "holds", sizes[found[0]]

    return Case(name, 0, ask)


def noted(case: Case, note: str) -> Case:
    """The same case with something to add to its numbers."""

    def ask(tests: int) -> Finding:
        found = case.ask(tests)
        return Finding(found.outcome, f"{found.numbers} {note}".strip(), found.confidence)

    return Case(case.name, case.intervals, ask)
