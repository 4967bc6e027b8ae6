"""The statistical tests behind the claims: pure functions on the values of schemes in each run.

A test takes the values at one setting, or the points of a curve in the order of x. `tests` is the number of intervals
of the complete claim (see `intervals`). A run that diverged (NaN or infinity) raises no error: its scheme fails the
test.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from dpcrowd.arrays import Bools
from dpcrowd.experiments.claims.claim import Outcome
from dpcrowd.experiments.claims.intervals import Gap, Interval, compare, difference, number, ratio, ratio_by_run
from dpcrowd.experiments.figures import Values
from dpcrowd.experiments.figures.figure import NEGLIGIBLE

__all__ = [
    "FAR",
    "FLAT",
    "MATCH",
    "ClaimFinding",
    "Points",
    "agrees",
    "at_most",
    "below",
    "below_everywhere",
    "cannot_tell",
    "falls",
    "flat",
    "grows",
    "negligible",
    "u_shaped",
    "varies",
    "within",
    "worst_of",
]

FAR = 2.0  # "far below", "much less": less than half
FLAT = 0.2  # "unchanged", "not sensitive": no value is more than a fifth above another
MATCH = 0.1  # "equals": within a tenth

Points = Sequence[Values]


@dataclass(frozen=True)
class ClaimFinding:
    """The outcome of one test, its numbers, and how certain it is.

    `cause` says why a test is undecided, where that is not the width of its interval.
    """

    outcome: Outcome
    numbers: str
    confidence: str
    cause: str = ""


def cannot_tell(numbers: str, confidence: str, cause: str = "There are too few runs for an interval.") -> ClaimFinding:
    """Return a finding that is undecided, but not because an interval is too wide."""
    return ClaimFinding("undecided", numbers, confidence, cause)


def worst_of(outcomes: Sequence[Outcome]) -> Outcome:
    """Return the outcome of several tests that must all hold."""
    if "does not hold" in outcomes:
        return "does not hold"
    return "holds" if outcomes and all(outcome == "holds" for outcome in outcomes) else "undecided"


# ------------------------------------------------------------------------------------------- values at one setting


def below(first: Values, second: Values, tests: int = 1, factor: float = 1.0) -> ClaimFinding:
    """Whether `factor` times the first is below the second, paired by run."""
    confidence, broken = _check_runs((first, second), tests)
    if broken is not None:
        # A second that diverged to infinity is above whatever stays finite.
        if not first.diverged and np.isposinf(second.runs).any() and not np.isnan(second.runs).any():
            return ClaimFinding("holds", broken.numbers, confidence)
        return broken if first.diverged else cannot_tell(broken.numbers, confidence, broken.numbers)
    gap = compare(first.runs, second.runs, tests, factor)
    if gap is None:
        return _too_few_pairs(first, second, confidence)
    if factor == 1.0 and gap.equal:
        return ClaimFinding("does not hold", f"{_text(first)} and {_text(second)} are equal in every run.", confidence)
    bound = "" if factor == 1.0 else f"; required: below {number(1 / factor)} times"
    text = str(gap) if gap.by_ratio or factor == 1.0 else f"{number(factor)}·first − second: {gap}"
    return ClaimFinding(_sign(gap), f"{_text(first)}, {_text(second)}; {text}{bound}.", confidence)


def agrees(first: Values, second: Values, tests: int = 1, margin: float = MATCH) -> ClaimFinding:
    """Whether two means are equal up to `margin`, by the interval of their ratio."""
    confidence, broken = _check_runs((first, second), tests)
    if broken is not None:
        return broken
    interval = ratio(first.runs, second.runs, tests)
    if interval is None:
        return _too_few_pairs(first, second, confidence)
    numbers = (
        f"{_text(first)}, {_text(second)}: ratio {number(interval.value)}, interval {interval}; "
        f"allowed: {1 - margin:g} to {1 + margin:g}."
    )
    return ClaimFinding(_inside(interval, 1 - margin, 1 + margin), numbers, confidence)


def within(first: Values, second: Values, margin: float, unit: str, tests: int = 1) -> ClaimFinding:
    """Whether two means differ by less than `margin`, by the interval of their difference."""
    confidence, broken = _check_runs((first, second), tests)
    if broken is not None:
        return broken
    gap = difference(first.runs, second.runs, tests)
    if gap is None:
        return _too_few_pairs(first, second, confidence)
    numbers = (
        f"{_text(first)}, {_text(second)}: difference {number(gap.value)}, interval {gap}; allowed: ±{margin:g} {unit}."
    )
    return ClaimFinding(_inside(gap, -margin, margin), numbers, confidence)


def at_most(values: Values, limit: float, what: str) -> ClaimFinding:
    """Whether no run is above a limit that holds for each: nothing is estimated, so nothing is uncertain."""
    return _largest(values, limit, what, values.runs <= limit)


def negligible(values: Values) -> ClaimFinding:
    """Whether every run is zero up to rounding."""
    size = np.abs(values.runs)
    return _largest(replace(values, runs=size), NEGLIGIBLE, "rounding stays below", size < NEGLIGIBLE)


def _largest(values: Values, limit: float, what: str, fine: Bools) -> ClaimFinding:
    confidence = f"largest of {values.runs.size} runs"
    _, broken = _check_runs((values,), 1)
    if broken is not None:
        return replace(broken, confidence=confidence)
    if values.runs.size == 0:
        return cannot_tell(f"{values.name} has no runs.", confidence, "There are no runs.")
    numbers = f"{_text(values)}, at most {number(float(values.runs.max()))} in a run; {what} {number(limit)}."
    return ClaimFinding("holds" if fine.all() else "does not hold", numbers, confidence)


# ---------------------------------------------------------------------------------------------------- points of a curve


def below_everywhere(first: Points, second: Points, tests: int = 1, factor: float = 1.0) -> ClaimFinding:
    """Whether the first lies below the second at every x; one interval for each."""
    comparisons = [(a, b, below(a, b, tests, factor)) for a, b in zip(first, second, strict=True)]
    if not comparisons:
        return cannot_tell("no points.", "", "There are no points to compare.")
    outcomes = [finding.outcome for *_, finding in comparisons]
    order = ("does not hold", "undecided", "holds")

    def favour(comparison: tuple[Values, Values, ClaimFinding]) -> tuple[int, float]:
        a, b, finding = comparison
        return order.index(finding.outcome), -(a.mean / b.mean if b.mean else 0.0)

    # The least favourable point represents the curve: the worst outcome, then the largest quotient.
    a, _, worst = min(comparisons, key=favour)
    count = (
        ""
        if len(outcomes) == 1
        else f"It holds at {outcomes.count('holds')} of {len(outcomes)} points; the weakest is "
    )
    return replace(worst, outcome=worst_of(outcomes), numbers=f"{count}{a.at}: {worst.numbers}")


def falls(points: Points, tests: int = 1) -> ClaimFinding:
    """Whether the last value is below the first and no step rises; one interval from end to end and one per step."""
    return _monotone(points, tests, falling=True)


def grows(points: Points, tests: int = 1) -> ClaimFinding:
    """Whether the last value is above the first and no step falls."""
    return _monotone(points, tests, falling=False)


def _monotone(points: Points, tests: int, *, falling: bool) -> ClaimFinding:
    first, last = points[0], points[-1]
    confidence, broken = _check_runs(points, tests)
    if broken is not None:
        return broken

    def move(start: Values, end: Values) -> Gap | None:
        """Return the gap of a move, which is below its bound if the move has the right direction."""
        return compare(end.runs, start.runs, tests) if falling else compare(start.runs, end.runs, tests)

    complete = move(first, last)
    steps = [(a.at, b.at, gap) for a, b in pairwise(points) if (gap := move(a, b)) is not None]
    if complete is None or not steps:
        return cannot_tell(f"{first.name}: too few points or runs for an interval.", confidence)
    if complete.equal:
        return ClaimFinding(
            "does not hold", f"{first.name} is the same at {first.at} and {last.at} in every run.", confidence
        )
    # A significant step in the wrong direction is the worst; otherwise the smallest step in the right direction.
    a, b, worst = max(steps, key=lambda step: (step[2].above, step[2].size))
    outcome = "does not hold" if any(step.above for *_, step in steps) else _sign(complete)
    numbers = f"{_mean_at(first)} and {number(last.mean)} at {last.at} ({_describe_move(complete, falling)})"
    if len(steps) > 1:
        numbers += f"; the weakest step is from {a} to {b}: {_describe_move(worst, falling)}"
    return ClaimFinding(outcome, f"{numbers}.", confidence)


def _describe_move(gap: Gap, falling: bool) -> str:
    """Return the move in words, from the earlier to the later value."""
    value, low, high = gap.interval.value, gap.interval.low, gap.interval.high
    if not falling:
        value, low, high = (1 / value, 1 / high, 1 / low) if gap.by_ratio else (-value, -high, -low)
    bounds = f"interval {number(low)} to {number(high)}"
    return f"run by run {number(value)} times, {bounds}" if gap.by_ratio else f"change {number(value)}, {bounds}"


def u_shaped(points: Points, tests: int = 1) -> ClaimFinding:
    """Whether some inner value is below both ends; two intervals for each inner value."""
    first, inner, last = points[0], points[1:-1], points[-1]
    confidence, broken = _check_runs(points, tests)
    if broken is not None:
        return broken
    if not inner:
        text = f"{first.name}: no point between {first.at} and {last.at}."
        return cannot_tell(text, confidence, "There is no point between the ends.")
    if first.runs.size < 2:
        return cannot_tell(f"{first.name}: too few runs for an interval.", confidence)
    against_ends = [(v, (below(v, first, tests).outcome, below(v, last, tests).outcome)) for v in inner]
    # A point that is shown to be below both ends represents the curve, otherwise the lowest point.
    lowest, _ = min(against_ends, key=lambda point: (point[1] != ("holds", "holds"), point[0].mean))
    against = [compare(lowest.runs, end.runs, tests) for end in (first, last)]
    numbers = (
        f"{_mean_at(first)}, {number(lowest.mean)} at {lowest.at} and {number(last.mean)} at {last.at} (from "
        f"{first.at} to {lowest.at}: {against[0]}; from {last.at} to {lowest.at}: {against[1]})."
    )
    if any(outcomes == ("holds", "holds") for _, outcomes in against_ends):
        return ClaimFinding("holds", numbers, confidence)
    no_valley = all("does not hold" in outcomes for _, outcomes in against_ends)
    return ClaimFinding("does not hold" if no_valley else "undecided", numbers, confidence)


def flat(points: Points, tests: int = 1, margin: float = FLAT) -> ClaimFinding:
    """Whether no value of a curve is more than `margin` above another.

    All pairs are compared, n(n - 1)/2 intervals of ratios, so that no pair has to be selected.
    """
    first = points[0]
    confidence, broken = _check_runs(points, tests)
    if broken is not None:
        return broken
    # Of each pair the larger over the smaller, so that one bound is enough.
    ordered = sorted(points, key=lambda values: values.mean)
    pairs = [(low, high) for i, low in enumerate(ordered) for high in ordered[i + 1 :]]
    ratios = [(low, high, times) for low, high in pairs if (times := _times(high, low, tests)) is not None]
    if not ratios:
        return cannot_tell("too few points or runs for an interval.", confidence)
    low, high, widest = max(ratios, key=lambda pair: (pair[2].value, pair[1].mean))
    text = "" if math.isinf(widest.value) else f", {number(widest.value)} times (interval {widest})"
    numbers = (
        f"{first.name} is {number(low.mean)} at {low.at} and {number(high.mean)} at {high.at}{text}; "
        f"at most {1 + margin:g} times is level."
    )
    # A pair whose runs say the opposite of its means counts in both directions.
    if any(i.low > 1 + margin or 0 < i.high < 1 / (1 + margin) for *_, i in ratios):
        return ClaimFinding("does not hold", numbers, confidence)
    level = all(i.high < 1 + margin and i.low > 1 / (1 + margin) for *_, i in ratios)
    return ClaimFinding("holds" if level else "undecided", numbers, confidence)


def varies(points: Points, tests: int = 1, factor: float = FAR) -> ClaimFinding:
    """Whether some value of a curve is more than `factor` times another: the opposite of `flat`."""
    level = flat(points, tests, factor - 1)
    if any(values.diverged for values in points):
        return level
    opposite: dict[Outcome, Outcome] = {"holds": "does not hold", "does not hold": "holds", "undecided": "undecided"}
    text = level.numbers.replace(f"at most {factor:g} times is level", f"required: more than {factor:g} times")
    return replace(level, outcome=opposite[level.outcome], numbers=text)


# ------------------------------------------------------------------------------------------------------------- helpers


def _check_runs(values: Points, tests: int) -> tuple[str, ClaimFinding | None]:
    """Return the confidence of a test in words, and its finding if runs diverged."""
    runs = values[0].runs.size
    confidence = f"95% over {runs} paired runs"
    if tests > 1:
        confidence = f"95% for all {tests} intervals of the claim together (Bonferroni), {runs} paired runs"
    diverged = dict.fromkeys(f"{v.name} diverged in {v.diverged} of {v.runs.size} runs" for v in values if v.diverged)
    return confidence, ClaimFinding("does not hold", f"{'; '.join(diverged)}.", confidence) if diverged else None


def _too_few_pairs(first: Values, second: Values, confidence: str) -> ClaimFinding:
    return cannot_tell(f"{_text(first)}, {_text(second)}: too few paired runs for an interval.", confidence)


def _text(values: Values) -> str:
    return f"{values.name} {number(values.mean)}"


def _mean_at(values: Values) -> str:
    return f"{values.name} is {number(values.mean)} at {values.at}"


def _sign(gap: Gap) -> Outcome:
    """Whether a gap is below its bound; values that are equal in every run are not."""
    if gap.below:
        return "holds"
    return "does not hold" if gap.above or gap.equal else "undecided"


def _inside(interval: Interval, low: float, high: float) -> Outcome:
    """Whether an interval lies between two bounds."""
    if interval.low > high or interval.high < low:
        return "does not hold"
    return "holds" if low < interval.low and interval.high < high else "undecided"


def _times(high: Values, low: Values, tests: int) -> Interval | None:
    """Return the ratio by run where all values are above 0, otherwise that of the means."""
    times = ratio_by_run(high.runs, low.runs, tests)
    return ratio(high.runs, low.runs, tests) if times is None else times
