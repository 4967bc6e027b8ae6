"""The statistical tests behind the claims: pure functions on values by run, each of which says what it found.

`tests` is the number of intervals in the whole claim (see `intervals`). A run that diverged (NaN or infinity) never
raises: the scheme to which it happened fails the test.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpcrowd.experiments.claims.intervals import (
    Floats,
    Gap,
    compare,
    difference,
    number,
    ratio,
)
from dpcrowd.experiments.claims.verdict import Outcome

__all__ = [
    "FAR",
    "FLAT",
    "MATCH",
    "NEARLY_NONE",
    "ROUNDING",
    "Finding",
    "Values",
    "agrees",
    "below",
    "cannot_tell",
    "confidence",
    "gone",
    "negligible",
    "sign",
    "stays_below",
    "within",
    "worst_of",
]

FAR = 2.0  # "far below", "much less": less than half
FLAT = 0.2  # "unchanged", "not sensitive": no value is more than a fifth above another
MATCH = 0.1  # "equals": within a tenth
NEARLY_NONE = 0.01  # "almost no", "nearly no": less than a hundredth
ROUNDING = 1e-6  # "zero": people; sums of the same numbers in another order differ by less


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


@dataclass(frozen=True, eq=False)
class Values:
    """What a scheme scored in each run."""

    name: str
    runs: Floats

    def __post_init__(self) -> None:
        object.__setattr__(self, "runs", np.asarray(self.runs, dtype=np.float64))

    @property
    def mean(self) -> float:
        """Over the runs; NaN without any."""
        return float(self.runs.mean()) if self.runs.size else math.nan

    @property
    def diverged(self) -> int:
        """In how many runs there is no finite value."""
        return int((~np.isfinite(self.runs)).sum())

    def __str__(self) -> str:
        return f"{self.name} {number(self.mean)}"


def confidence(runs: int, tests: int = 1) -> str:
    """How sure an interval is."""
    if tests <= 1:
        return f"95% over {runs} paired runs"
    return f"95% for all {tests} intervals of the claim together (Bonferroni), {runs} paired runs"


def below(first: Values, second: Values, tests: int = 1, factor: float = 1.0) -> Finding:
    """Whether `factor` times the first is below the second, paired by run."""
    sure = confidence(first.runs.size, tests)
    broken = gone((first, second), sure)
    if broken is not None:
        # A second that diverged to infinity is above whatever stays finite.
        if not first.diverged and np.isposinf(second.runs).any() and not np.isnan(second.runs).any():
            return Finding("holds", broken.numbers, sure)
        return broken if first.diverged else cannot_tell(broken.numbers, sure, broken.numbers)
    gap = compare(first.runs, second.runs, tests, factor)
    if gap is None:
        return cannot_tell(f"{first}, {second}: too few paired runs for an interval.", sure)
    if factor == 1.0 and gap.equal:
        return Finding("does not hold", f"{first} and {second} are equal in every run.", sure)
    asked = "" if factor == 1.0 else f"; below {number(1 / factor)} times is asked for"
    told = str(gap) if gap.by_ratio or factor == 1.0 else f"{number(factor)}·first − second: {gap}"
    return Finding(sign(gap), f"{first}, {second}; {told}{asked}.", sure)


def stays_below(values: Values, limit: float, what: str) -> Finding:
    """Whether no run is above a limit that holds for each: nothing is estimated, so nothing is uncertain."""
    sure = f"largest of {values.runs.size} runs"
    broken = gone((values,), sure)
    if broken is not None:
        return broken
    if values.runs.size == 0:
        return cannot_tell(f"{values.name} has no runs.", sure, "There are no runs.")
    largest = float(values.runs.max())
    return Finding(
        "holds" if largest <= limit else "does not hold",
        f"{values}, at most {number(largest)} in a run; {what} {number(limit)}.",
        sure,
    )


def agrees(first: Values, second: Values, tests: int = 1, margin: float = MATCH) -> Finding:
    """Whether two means are equal up to `margin`, by the interval of their ratio."""
    sure = confidence(first.runs.size, tests)
    broken = gone((first, second), sure)
    if broken is not None:
        return broken
    interval = ratio(first.runs, second.runs, tests)
    if interval is None:
        return cannot_tell(f"{first}, {second}: too few paired runs for an interval.", sure)
    numbers = (
        f"{first}, {second}: ratio {number(interval.value)}, interval {interval}; "
        f"allowed: {1 - margin:g} to {1 + margin:g}."
    )
    if interval.low > 1 + margin or interval.high < 1 - margin:
        return Finding("does not hold", numbers, sure)
    inside = 1 - margin < interval.low and interval.high < 1 + margin
    return Finding("holds" if inside else "undecided", numbers, sure)


def within(first: Values, second: Values, margin: float, unit: str, tests: int = 1) -> Finding:
    """Whether two means differ by less than `margin`, by the interval of their difference."""
    sure = confidence(first.runs.size, tests)
    broken = gone((first, second), sure)
    if broken is not None:
        return broken
    gap = difference(first.runs, second.runs, tests)
    if gap is None:
        return cannot_tell(f"{first}, {second}: too few paired runs for an interval.", sure)
    numbers = f"{first}, {second}: difference {number(gap.value)}, interval {gap}; allowed: ±{margin:g} {unit}."
    if gap.low > margin or gap.high < -margin:
        return Finding("does not hold", numbers, sure)
    return Finding("holds" if -margin < gap.low and gap.high < margin else "undecided", numbers, sure)


def negligible(values: Values, limit: float = ROUNDING) -> Finding:
    """Whether no run has more than rounding: nothing is estimated, so nothing is uncertain."""
    sure = f"largest of {values.runs.size} runs"
    broken = gone((values,), sure)
    if broken is not None:
        return broken
    if values.runs.size == 0:
        return cannot_tell(f"{values.name} has no runs.", sure, "There are no runs.")
    largest = float(np.abs(values.runs).max())
    numbers = f"{values}, at most {number(largest)} in a run; rounding stays below {number(limit)}."
    return Finding("holds" if largest < limit else "does not hold", numbers, sure)


def worst_of(outcomes: Sequence[Outcome]) -> Outcome:
    """Of several tests that must all hold."""
    if "does not hold" in outcomes:
        return "does not hold"
    return "holds" if outcomes and all(outcome == "holds" for outcome in outcomes) else "undecided"


def sign(gap: Gap) -> Outcome:
    """Whether a gap is below its bound; values that are equal in every run are not."""
    if gap.below:
        return "holds"
    return "does not hold" if gap.above or gap.equal else "undecided"


def gone(values: Sequence[Values], sure: str) -> Finding | None:
    """What to say where runs diverged; None where none did."""
    lost = [v for v in values if v.diverged]
    if not lost:
        return None
    said = "; ".join(dict.fromkeys(f"{v.name} diverged in {v.diverged} of {v.runs.size} runs" for v in lost))
    return Finding("does not hold", f"{said}.", sure)
