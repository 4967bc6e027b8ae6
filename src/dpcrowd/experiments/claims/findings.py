"""The statistical tests behind the claims: pure functions on what schemes scored run by run, each with its numbers.

A test takes the values at one setting, or the points of a curve in the order of x. `tests` is the number of intervals
in the whole claim (see `intervals`). A run that diverged (NaN or infinity) never raises: the scheme to which it
happened fails the test.
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
    "Finding",
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
class Finding:
    """The outcome of one test, the figures behind it, and how sure it is.

    `cause` says why a test is undecided, where that is not the width of its interval.
    """

    outcome: Outcome
    numbers: str
    confidence: str
    cause: str = ""


def cannot_tell(numbers: str, sure: str, cause: str = "There are too few runs for an interval.") -> Finding:
    """Undecided, but not because an interval is too wide."""
    return Finding("undecided", numbers, sure, cause)


def worst_of(outcomes: Sequence[Outcome]) -> Outcome:
    """The outcome of several tests that must all hold."""
    if "does not hold" in outcomes:
        return "does not hold"
    return "holds" if outcomes and all(outcome == "holds" for outcome in outcomes) else "undecided"


# ------------------------------------------------------------------------------------------- values at one setting


def below(first: Values, second: Values, tests: int = 1, factor: float = 1.0) -> Finding:
    """Whether `factor` times the first is below the second, paired by run."""
    sure, broken = _begin((first, second), tests)
    if broken is not None:
        # A second that diverged to infinity is above whatever stays finite.
        if not first.diverged and np.isposinf(second.runs).any() and not np.isnan(second.runs).any():
            return Finding("holds", broken.numbers, sure)
        return broken if first.diverged else cannot_tell(broken.numbers, sure, broken.numbers)
    gap = compare(first.runs, second.runs, tests, factor)
    if gap is None:
        return _unpaired(first, second, sure)
    if factor == 1.0 and gap.equal:
        return Finding("does not hold", f"{_text(first)} and {_text(second)} are equal in every run.", sure)
    bound = "" if factor == 1.0 else f"; below {number(1 / factor)} times is asked for"
    text = str(gap) if gap.by_ratio or factor == 1.0 else f"{number(factor)}·first − second: {gap}"
    return Finding(_sign(gap), f"{_text(first)}, {_text(second)}; {text}{bound}.", sure)


def agrees(first: Values, second: Values, tests: int = 1, margin: float = MATCH) -> Finding:
    """Whether two means are equal up to `margin`, by the interval of their ratio."""
    sure, broken = _begin((first, second), tests)
    if broken is not None:
        return broken
    interval = ratio(first.runs, second.runs, tests)
    if interval is None:
        return _unpaired(first, second, sure)
    numbers = (
        f"{_text(first)}, {_text(second)}: ratio {number(interval.value)}, interval {interval}; "
        f"allowed: {1 - margin:g} to {1 + margin:g}."
    )
    return Finding(_inside(interval, 1 - margin, 1 + margin), numbers, sure)


def within(first: Values, second: Values, margin: float, unit: str, tests: int = 1) -> Finding:
    """Whether two means differ by less than `margin`, by the interval of their difference."""
    sure, broken = _begin((first, second), tests)
    if broken is not None:
        return broken
    gap = difference(first.runs, second.runs, tests)
    if gap is None:
        return _unpaired(first, second, sure)
    numbers = (
        f"{_text(first)}, {_text(second)}: difference {number(gap.value)}, interval {gap}; allowed: ±{margin:g} {unit}."
    )
    return Finding(_inside(gap, -margin, margin), numbers, sure)


def at_most(values: Values, limit: float, what: str) -> Finding:
    """Whether no run is above a limit that holds for each: nothing is estimated, so nothing is uncertain."""
    return _largest(values, limit, what, values.runs <= limit)


def negligible(values: Values) -> Finding:
    """Whether no run has more than rounding."""
    size = np.abs(values.runs)
    return _largest(replace(values, runs=size), NEGLIGIBLE, "rounding stays below", size < NEGLIGIBLE)


def _largest(values: Values, limit: float, what: str, fine: Bools) -> Finding:
    sure = f"largest of {values.runs.size} runs"
    _, broken = _begin((values,), 1)
    if broken is not None:
        return replace(broken, confidence=sure)
    if values.runs.size == 0:
        return cannot_tell(f"{values.name} has no runs.", sure, "There are no runs.")
    numbers = f"{_text(values)}, at most {number(float(values.runs.max()))} in a run; {what} {number(limit)}."
    return Finding("holds" if fine.all() else "does not hold", numbers, sure)


# ---------------------------------------------------------------------------------------------------- points of a curve


def below_everywhere(first: Points, second: Points, tests: int = 1, factor: float = 1.0) -> Finding:
    """Whether the first lies below the second at every x; one interval for each."""
    comparisons = [(a, b, below(a, b, tests, factor)) for a, b in zip(first, second, strict=True)]
    if not comparisons:
        return cannot_tell("no points.", "", "There are no points to compare.")
    outcomes = [finding.outcome for *_, finding in comparisons]
    order = ("does not hold", "undecided", "holds")

    def favour(comparison: tuple[Values, Values, Finding]) -> tuple[int, float]:
        a, b, finding = comparison
        return order.index(finding.outcome), -(a.mean / b.mean if b.mean else 0.0)

    # The least favourable point speaks for the curve: the worst outcome, then the largest quotient.
    a, _, worst = min(comparisons, key=favour)
    count = "" if len(outcomes) == 1 else f"So at {outcomes.count('holds')} of {len(outcomes)} points; least so at "
    return replace(worst, outcome=worst_of(outcomes), numbers=f"{count}{a.at}: {worst.numbers}")


def falls(points: Points, tests: int = 1) -> Finding:
    """Whether the last value is below the first and no step rises; an interval for the whole way and for each step."""
    return _monotone(points, tests, falling=True)


def grows(points: Points, tests: int = 1) -> Finding:
    """Whether the last value is above the first and no step falls."""
    return _monotone(points, tests, falling=False)


def _monotone(points: Points, tests: int, *, falling: bool) -> Finding:
    first, last = points[0], points[-1]
    sure, broken = _begin(points, tests)
    if broken is not None:
        return broken

    def move(start: Values, end: Values) -> Gap | None:
        """Below its bound if it goes the right way."""
        return compare(end.runs, start.runs, tests) if falling else compare(start.runs, end.runs, tests)

    complete = move(first, last)
    steps = [(a.at, b.at, gap) for a, b in pairwise(points) if (gap := move(a, b)) is not None]
    if complete is None or not steps:
        return cannot_tell(f"{first.name}: too few points or runs for an interval.", sure)
    if complete.equal:
        return Finding("does not hold", f"{first.name} is the same at {first.at} and {last.at} in every run.", sure)
    # A significant step the wrong way is the worst; among others, the one that goes least the right way.
    a, b, worst = max(steps, key=lambda step: (step[2].above, step[2].size))
    outcome = "does not hold" if any(step.above for *_, step in steps) else _sign(complete)
    numbers = f"{_mean_at(first)} and {number(last.mean)} at {last.at} ({_way(complete, falling)})"
    if len(steps) > 1:
        numbers += f"; least so from {a} to {b}: {_way(worst, falling)}"
    return Finding(outcome, f"{numbers}.", sure)


def _way(gap: Gap, falling: bool) -> str:
    """The move as the reader sees it, from the earlier to the later value."""
    value, low, high = gap.interval.value, gap.interval.low, gap.interval.high
    if not falling:
        value, low, high = (1 / value, 1 / high, 1 / low) if gap.by_ratio else (-value, -high, -low)
    bounds = f"interval {number(low)} to {number(high)}"
    return f"run by run {number(value)} times, {bounds}" if gap.by_ratio else f"change {number(value)}, {bounds}"


def u_shaped(points: Points, tests: int = 1) -> Finding:
    """Whether some inner value is below both ends; two intervals for each inner value."""
    first, inner, last = points[0], points[1:-1], points[-1]
    sure, broken = _begin(points, tests)
    if broken is not None:
        return broken
    if not inner:
        text = f"{first.name}: no point between {first.at} and {last.at}."
        return cannot_tell(text, sure, "There is no point between the ends.")
    if first.runs.size < 2:
        return cannot_tell(f"{first.name}: too few runs for an interval.", sure)
    against_ends = [(v, (below(v, first, tests).outcome, below(v, last, tests).outcome)) for v in inner]
    # A point that is shown to be below both ends speaks for the curve, otherwise the lowest.
    lowest, _ = min(against_ends, key=lambda point: (point[1] != ("holds", "holds"), point[0].mean))
    against = [compare(lowest.runs, end.runs, tests) for end in (first, last)]
    numbers = (
        f"{_mean_at(first)}, {number(lowest.mean)} at {lowest.at} and {number(last.mean)} at {last.at} (from "
        f"{first.at} to {lowest.at}: {against[0]}; from {last.at} to {lowest.at}: {against[1]})."
    )
    if any(outcomes == ("holds", "holds") for _, outcomes in against_ends):
        return Finding("holds", numbers, sure)
    no_valley = all("does not hold" in outcomes for _, outcomes in against_ends)
    return Finding("does not hold" if no_valley else "undecided", numbers, sure)


def flat(points: Points, tests: int = 1, margin: float = FLAT) -> Finding:
    """Whether no value of a curve is more than `margin` above another.

    All pairs are compared, n(n - 1)/2 intervals of ratios, so that none has to be picked.
    """
    first = points[0]
    sure, broken = _begin(points, tests)
    if broken is not None:
        return broken
    # Of each pair the larger over the smaller, so that one bound is enough.
    ordered = sorted(points, key=lambda values: values.mean)
    pairs = [(low, high) for i, low in enumerate(ordered) for high in ordered[i + 1 :]]
    ratios = [(low, high, times) for low, high in pairs if (times := _times(high, low, tests)) is not None]
    if not ratios:
        return cannot_tell("too few points or runs for an interval.", sure)
    low, high, widest = max(ratios, key=lambda pair: (pair[2].value, pair[1].mean))
    text = "" if math.isinf(widest.value) else f", {number(widest.value)} times (interval {widest})"
    numbers = (
        f"{first.name} is {number(low.mean)} at {low.at} and {number(high.mean)} at {high.at}{text}; "
        f"at most {1 + margin:g} times is level."
    )
    # A pair whose runs say the opposite of its means counts in both directions.
    if any(i.low > 1 + margin or 0 < i.high < 1 / (1 + margin) for *_, i in ratios):
        return Finding("does not hold", numbers, sure)
    level = all(i.high < 1 + margin and i.low > 1 / (1 + margin) for *_, i in ratios)
    return Finding("holds" if level else "undecided", numbers, sure)


def varies(points: Points, tests: int = 1, factor: float = FAR) -> Finding:
    """Whether some value of a curve is more than `factor` times another: the opposite of `flat`."""
    level = flat(points, tests, factor - 1)
    if any(values.diverged for values in points):
        return level
    opposite: dict[Outcome, Outcome] = {"holds": "does not hold", "does not hold": "holds", "undecided": "undecided"}
    text = level.numbers.replace(f"at most {factor:g} times is level", f"more than {factor:g} times is asked for")
    return replace(level, outcome=opposite[level.outcome], numbers=text)


# -------------------------------------------------------------------------------------------------------------- pieces


def _begin(values: Points, tests: int) -> tuple[str, Finding | None]:
    """How sure the intervals of a test are, and its finding if runs diverged."""
    runs = values[0].runs.size
    sure = f"95% over {runs} paired runs"
    if tests > 1:
        sure = f"95% for all {tests} intervals of the claim together (Bonferroni), {runs} paired runs"
    diverged = dict.fromkeys(f"{v.name} diverged in {v.diverged} of {v.runs.size} runs" for v in values if v.diverged)
    return sure, Finding("does not hold", f"{'; '.join(diverged)}.", sure) if diverged else None


def _unpaired(first: Values, second: Values, sure: str) -> Finding:
    return cannot_tell(f"{_text(first)}, {_text(second)}: too few paired runs for an interval.", sure)


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
    """By run where all values are above 0; of the means otherwise."""
    times = ratio_by_run(high.runs, low.runs, tests)
    return ratio(high.runs, low.runs, tests) if times is None else times
