"""Tests of whole curves: does one lie below another, does it fall, grow or have a valley."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from dpcrowd.experiments.claims.intervals import Gap, compare, number
from dpcrowd.experiments.claims.judge import Finding, Values, below, cannot_tell, confidence, gone, sign, worst_of

__all__ = ["Curve", "below_everywhere", "falls", "grows", "steps", "u_shaped"]

Curve = Sequence[tuple[str, Values]]  # ("ρ=0.1", values), in the order of x


def steps(points: int) -> int:
    """Intervals that `falls` and `grows` take: from end to end, and every step between."""
    return points if points > 2 else max(points - 1, 1)


def below_everywhere(first: Curve, second: Curve, tests: int = 1, factor: float = 1.0) -> Finding:
    """Whether the first lies below the second at every x; one interval for each."""
    pairs = [(at, a, b) for (at, a), (_, b) in zip(first, second, strict=True)]
    found = [(at, a, b, below(a, b, tests, factor)) for at, a, b in pairs]
    if not found:
        return cannot_tell("no points.", "", "There are no points to compare.")
    outcomes = [finding.outcome for *_, finding in found]
    order = ("does not hold", "undecided", "holds")
    # The least favourable point speaks for the curve: the worst outcome, then the largest quotient.
    at, _, _, worst = min(found, key=lambda p: (order.index(p[3].outcome), -_quotient(p[1], p[2])))
    count = "" if len(found) == 1 else f"So at {outcomes.count('holds')} of {len(found)} points; least so at "
    return Finding(worst_of(outcomes), f"{count}{at}: {worst.numbers}", worst.confidence, worst.cause)


def falls(curve: Curve, tests: int = 1) -> Finding:
    """Whether the last value is below the first and no step rises; `steps` intervals."""
    return _monotone(curve, tests, falling=True)


def grows(curve: Curve, tests: int = 1) -> Finding:
    """Whether the last value is above the first and no step falls."""
    return _monotone(curve, tests, falling=False)


def _monotone(curve: Curve, tests: int, *, falling: bool) -> Finding:
    (start, first), (end, last) = curve[0], curve[-1]
    sure = confidence(first.runs.size, tests)
    broken = gone([values for _, values in curve], sure)
    if broken is not None:
        return broken
    whole = _move(first, last, tests, falling)
    moves = [(a[0], b[0], _move(a[1], b[1], tests, falling)) for a, b in pairwise(curve)]
    known = [(a, b, move) for a, b, move in moves if move is not None]
    if whole is None or not known:
        return cannot_tell(f"{first.name}: too few points or runs for an interval.", sure)
    if whole.equal:
        return Finding("does not hold", f"{first.name} is the same at {start} and {end} in every run.", sure)
    # A significant step the wrong way is the worst; among others, the one that goes least the right way.
    a, b, worst = max(known, key=lambda move: (move[2].above, move[2].size))
    outcome = "does not hold" if any(move.above for *_, move in known) else sign(whole)
    numbers = f"{first.name} is {_mean(first)} at {start} and {_mean(last)} at {end} ({_way(whole, falling)})"
    if len(known) > 1:
        numbers += f"; least so from {a} to {b}: {_way(worst, falling)}"
    return Finding(outcome, f"{numbers}.", sure)


def _move(start: Values, end: Values, tests: int, falling: bool) -> Gap | None:
    """Below its bound if it goes the right way: the later value over the earlier one, or the other way round."""
    return compare(end.runs, start.runs, tests) if falling else compare(start.runs, end.runs, tests)


def _way(gap: Gap, falling: bool) -> str:
    """The move as the reader sees it, from the earlier to the later value."""
    value, low, high = gap.interval.value, gap.interval.low, gap.interval.high
    if not falling:
        value, low, high = (1 / value, 1 / high, 1 / low) if gap.by_ratio else (-value, -high, -low)
    bounds = f"interval {number(low)} to {number(high)}"
    return f"run by run {number(value)} times, {bounds}" if gap.by_ratio else f"change {number(value)}, {bounds}"


def u_shaped(curve: Curve, tests: int = 1) -> Finding:
    """Whether some inner value is below both ends; two intervals for each inner value."""
    (start, first), (end, last) = curve[0], curve[-1]
    sure = confidence(first.runs.size, tests)
    broken = gone([values for _, values in curve], sure)
    if broken is not None:
        return broken
    inner = curve[1:-1]
    if not inner:
        return cannot_tell(
            f"{first.name}: no point between {start} and {end}.", sure, "There is no point between the ends."
        )
    if first.runs.size < 2:
        return cannot_tell(f"{first.name}: too few runs for an interval.", sure)
    found = [(at, v, (below(v, first, tests).outcome, below(v, last, tests).outcome)) for at, v in inner]
    # A point that is shown to be below both ends speaks for the curve, otherwise the lowest.
    at, lowest, _ = min(found, key=lambda point: (point[2] != ("holds", "holds"), point[1].mean))
    against = [compare(lowest.runs, end.runs, tests) for end in (first, last)]
    numbers = (
        f"{first.name} is {_mean(first)} at {start}, {_mean(lowest)} at {at} and {_mean(last)} at {end} (from {start} "
        f"to {at}: {against[0]}; from {end} to {at}: {against[1]})."
    )
    if any(outcomes == ("holds", "holds") for *_, outcomes in found):
        return Finding("holds", numbers, sure)
    no_valley = all("does not hold" in outcomes for *_, outcomes in found)
    return Finding("does not hold" if no_valley else "undecided", numbers, sure)


def _mean(values: Values) -> str:
    return number(values.mean)


def _quotient(a: Values, b: Values) -> float:
    base = b.mean
    return a.mean / base if base else 0.0
