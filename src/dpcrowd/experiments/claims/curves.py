"""Tests of whole curves: does one lie below another, does it fall, grow or have a valley."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from dpcrowd.experiments.claims.intervals import difference, number
from dpcrowd.experiments.claims.judge import Finding, Values, below, confidence, gone, sign, worst_of

__all__ = ["Curve", "below_everywhere", "falls", "grows", "steps", "u_shaped"]

Curve = Sequence[tuple[str, Values]]  # ("ρ=0.1", values), in the order of x


def steps(points: int) -> int:
    """Intervals that `falls` and `grows` take: from end to end, and every step between."""
    return points if points > 2 else max(points - 1, 1)


def below_everywhere(first: Curve, second: Curve, tests: int = 1, factor: float = 1.0) -> Finding:
    """Whether the first lies below the second at every x; one interval for each.

    An x at which both are 0 in every run (as consensus errors are in a complete network) has nothing to compare, unless
    it is so everywhere.
    """
    pairs = [(at, a, b) for (at, a), (_, b) in zip(first, second, strict=True)]
    some = [(at, a, b) for at, a, b in pairs if a.runs.any() or b.runs.any()] or pairs
    found = [(at, a, b, below(a, b, tests, factor)) for at, a, b in some]
    if not found:
        return Finding("undecided", "no points.", "")
    outcomes = [finding.outcome for *_, finding in found]
    order = ("does not hold", "undecided", "holds")
    # The least favourable point speaks for the curve: the worst outcome, then the largest quotient.
    at, _, _, worst = min(found, key=lambda p: (order.index(p[3].outcome), -_quotient(p[1], p[2])))
    count = "" if len(found) == 1 else f"So at {outcomes.count('holds')} of {len(found)} points; least so at "
    empty = [at for at, a, b in pairs if not (a.runs.any() or b.runs.any())] if len(some) < len(pairs) else []
    nothing = f" Both are 0 at {', '.join(empty)}." if empty else ""
    return Finding(worst_of(outcomes), f"{count}{at}: {worst.numbers}{nothing}", worst.confidence)


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
    turn = 1.0 if falling else -1.0
    whole = difference(turn * last.runs, turn * first.runs, tests)
    pairs = list(pairwise(curve))
    moves = [(a[0], b[0], difference(turn * b[1].runs, turn * a[1].runs, tests)) for a, b in pairs]
    known = [(a, b, move) for a, b, move in moves if move is not None]
    if whole is None or not known:
        return Finding("undecided", f"{first.name}: too few points or runs for an interval.", sure)
    # A significant step the wrong way is the worst; among others, the one that goes least the right way.
    a, b, worst = max(known, key=lambda move: (move[2].low > 0, move[2].value))
    outcome = sign(whole)
    if any(move.low > 0 for *_, move in known):
        outcome = "does not hold"
    if whole.low == whole.high == 0.0:
        return Finding("does not hold", f"{first.name} is the same at {start} and {end} in every run.", sure)
    low, high = sorted((turn * whole.low, turn * whole.high))
    numbers = (
        f"{first.name} is {_mean(first)} at {start} and {_mean(last)} at {end} "
        f"(change {number(turn * whole.value)}, interval {number(low)} to {number(high)})"
    )
    if len(known) > 1:
        low, high = sorted((turn * worst.low, turn * worst.high))
        numbers += f"; least so from {a} to {b}: {number(turn * worst.value)}, interval {number(low)} to {number(high)}"
    return Finding(outcome, f"{numbers}.", sure)


def u_shaped(curve: Curve, tests: int = 1) -> Finding:
    """Whether some inner value is below both ends; two intervals for each inner value."""
    (start, first), (end, last) = curve[0], curve[-1]
    sure = confidence(first.runs.size, tests)
    broken = gone([values for _, values in curve], sure)
    if broken is not None:
        return broken
    inner = curve[1:-1]
    if not inner:
        return Finding("undecided", f"{first.name}: no point between {start} and {end}.", sure)
    found = [(at, v, (below(v, first, tests).outcome, below(v, last, tests).outcome)) for at, v in inner]
    at, lowest, _ = min(found, key=lambda point: point[1].mean)
    numbers = (
        f"{first.name} is {_mean(first)} at {start}, {_mean(last)} at {end}, and lowest between them at {at}: "
        f"{_mean(lowest)}."
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
