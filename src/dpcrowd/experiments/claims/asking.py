"""Cases by the kind of question: each knows how many intervals it takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

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
    negligible,
    stays_below,
    within,
    worst_of,
)
from dpcrowd.experiments.claims.level import flat, pairs_of, varies

__all__ = [
    "capped",
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
    "uneven",
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
    """Is it less than a hundredth of the other everywhere?"""
    return lower(name, first, second, 1.0 / NEARLY_NONE)


def falling(name: str, curve: Curve) -> Case:
    """Does it fall?"""
    return Case(name, steps(len(curve)), lambda tests: falls(curve, tests))


def growing(name: str, curve: Curve) -> Case:
    """Does it grow?"""
    return Case(name, steps(len(curve)), lambda tests: grows(curve, tests))


def level(name: str, curve: Curve, margin: float = FLAT) -> Case:
    """Does it stay level?"""
    return Case(name, pairs_of(len(curve)), lambda tests: flat(curve, tests, margin))


def uneven(name: str, curve: Curve, factor: float = FAR) -> Case:
    """Is some value far above another? Every pair may be the one, so every pair counts."""
    return Case(name, pairs_of(len(curve)), lambda tests: varies(curve, tests, factor))


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
    return _each(name, curve, [negligible(values) for _, values in curve], "Zero")


def capped(name: str, curve: Curve, limits: Sequence[float], what: str) -> Case:
    """Does every run keep below a limit at every point? No interval: nothing is estimated."""
    pairs = zip(curve, limits, strict=True)
    return _each(name, curve, [stays_below(values, limit, what) for (_, values), limit in pairs], "So")


def _each(name: str, curve: Curve, findings: list[Finding], so: str) -> Case:
    """The worst of findings that need no interval: one that fails, then the one with the largest value."""

    def ask(_: int) -> Finding:
        sizes = [float(abs(values.runs).max()) if values.runs.size else 0.0 for _, values in curve]
        worst = max(range(len(curve)), key=lambda i: (findings[i].outcome != "holds", sizes[i]))
        count = sum(finding.outcome == "holds" for finding in findings)
        at = curve[worst][0]
        told = "" if len(curve) == 1 else f"{so} at {count} of {len(curve)} points; the largest is at {at}: "
        outcome = worst_of([finding.outcome for finding in findings])
        return replace(findings[worst], outcome=outcome, numbers=told + findings[worst].numbers)

    return Case(name, 0, ask)


def noted(case: Case, note: str) -> Case:
    """The same case with something to add to its numbers."""

    def ask(tests: int) -> Finding:
        found = case.ask(tests)
        return replace(found, numbers=f"{found.numbers} {note}".strip())

    return Case(case.name, case.intervals, ask)
