"""Whether a curve stays level or varies: all pairs of its values are compared, so that none has to be picked."""

from __future__ import annotations

import math

from dpcrowd.experiments.claims.curves import Curve
from dpcrowd.experiments.claims.intervals import Interval, number, ratio, ratio_by_run
from dpcrowd.experiments.claims.judge import FAR, FLAT, Finding, Values, cannot_tell, confidence, gone
from dpcrowd.experiments.claims.verdict import Outcome

__all__ = ["flat", "pairs_of", "varies"]


def pairs_of(points: int) -> int:
    """Intervals that `flat` and `varies` take."""
    return points * (points - 1) // 2


def flat(curve: Curve, tests: int = 1, margin: float = FLAT) -> Finding:
    """Whether no value of a curve is more than `margin` above another: n(n - 1)/2 intervals of ratios."""
    first = curve[0][1]
    sure = confidence(first.runs.size, tests)
    broken = gone([values for _, values in curve], sure)
    if broken is not None:
        return broken
    # Of each pair the larger over the smaller, so that one bound is enough.
    ordered = sorted(curve, key=lambda at: at[1].mean)
    pairs = [(low, high) for i, low in enumerate(ordered) for high in ordered[i + 1 :]]
    found = [(low, high, _times(high[1], low[1], tests)) for low, high in pairs]
    known = [(low, high, interval) for low, high, interval in found if interval is not None]
    if not known:
        return cannot_tell("too few points or runs for an interval.", sure)
    (low_at, low), (high_at, high), widest = max(known, key=lambda pair: (pair[2].value, pair[1][1].mean))
    times = "" if math.isinf(widest.value) else f", {number(widest.value)} times (interval {widest})"
    numbers = (
        f"{first.name} is {number(low.mean)} at {low_at} and {number(high.mean)} at {high_at}{times}; "
        f"at most {1 + margin:g} times is level."
    )
    # A pair whose runs say the opposite of its means counts in both directions.
    apart = any(i.low > 1 + margin or 0 < i.high < 1 / (1 + margin) for *_, i in known)
    if apart:
        return Finding("does not hold", numbers, sure)
    level = all(i.high < 1 + margin and i.low > 1 / (1 + margin) for *_, i in known)
    return Finding("holds" if level else "undecided", numbers, sure)


def varies(curve: Curve, tests: int = 1, factor: float = FAR) -> Finding:
    """Whether some value of a curve is more than `factor` times another: the opposite of `flat`."""
    found = flat(curve, tests, factor - 1)
    if any(values.diverged for _, values in curve):
        return found
    turned: dict[Outcome, Outcome] = {"holds": "does not hold", "does not hold": "holds", "undecided": "undecided"}
    told = found.numbers.replace(f"at most {factor:g} times is level", f"more than {factor:g} times is asked for")
    return Finding(turned[found.outcome], told, found.confidence, found.cause)


def _times(high: Values, low: Values, tests: int) -> Interval | None:
    """By run where all values are above 0; of the means otherwise."""
    found = ratio_by_run(high.runs, low.runs, tests)
    return ratio(high.runs, low.runs, tests) if found is None else found
