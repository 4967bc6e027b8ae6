"""From results to a verdict: the cases of a claim are gathered first; each then knows how many intervals all take."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from dpcrowd.experiments.claims.curves import Curve
from dpcrowd.experiments.claims.judge import ROUNDING, Finding, Values
from dpcrowd.experiments.claims.verdict import Outcome, Part, Verdict, combine
from dpcrowd.experiments.figures.figure import DATA_NAMES
from dpcrowd.experiments.plan import Plan
from dpcrowd.experiments.point import Point
from dpcrowd.experiments.rosters import STYLES
from dpcrowd.experiments.run import Results

__all__ = ["Case", "absent", "curve_of", "decide", "decide_most", "name_of", "on", "renamed", "values_of"]

Reason = Callable[[], str]


@dataclass(frozen=True)
class Case:
    """One question of a claim: `ask` takes the number of intervals of the whole claim, of which `intervals` are its."""

    name: str
    intervals: int
    ask: Callable[[int], Finding]


def name_of(label: str) -> str:
    """How a scheme is called in the report."""
    return STYLES[label].name if label in STYLES else label


def on(data: str) -> str:
    """How a data set is called in the report."""
    return DATA_NAMES.get(data, data)


def values_of(results: Results, point: Point, label: str, metric: str) -> Values:
    """What a scheme scored at a point, by run; consensus errors of mere rounding are none."""
    runs = np.asarray(getattr(results[point][label], metric), dtype=np.float64)
    if metric == "ace":
        runs = np.where(np.abs(runs) < ROUNDING, 0.0, runs)
    return Values(name_of(label), runs)


def curve_of(results: Results, swept: Iterable[tuple[float, Point]], label: str, metric: str, x: str) -> Curve:
    """What a scheme scored along a sweep; `x` names the swept setting."""
    return [(f"{x}={value:g}", values_of(results, point, label, metric)) for value, point in swept]


def renamed(curve: Curve, name: str) -> Curve:
    """The same curve under another name, where both sides of a comparison are of one scheme."""
    return [(at, Values(name, values.runs)) for at, values in curve]


def absent(plan: Plan, *names: str) -> list[Case]:
    """A case for each data set that a claim speaks of and that is not there: without it, it cannot hold."""
    text = "Not judged: the data set is not on this machine."
    return [Case(on(data), 0, lambda _: Finding("undecided", text, "")) for data in names if data not in plan.data]


def decide(cases: Sequence[Case], reason: Reason | str = "") -> Verdict:
    """Ask all cases; `reason` is looked for only where the claim does not hold."""
    verdict = combine(_asked(cases))
    if verdict.outcome == "holds":
        return verdict
    return combine(verdict.parts, _why(verdict.outcome, reason))


def decide_most(cases: Sequence[Case], reason: Reason | str = "") -> Verdict:
    """For claims about most cases: holds if it does in more than half of them, fails if it fails in half of them."""
    parts = _asked(cases)
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
    if outcome == "holds":
        return Verdict(outcome, (all_cases, *parts))
    return Verdict(outcome, (all_cases, *parts), _why(outcome, reason))


def _why(outcome: Outcome, reason: Reason | str) -> str:
    found = reason if isinstance(reason, str) else reason()
    if found:
        return found
    if outcome == "undecided":
        return "The intervals of the undecided cases are too wide to tell; more runs make them narrower."
    return "The recorded numbers point to no reason."


def _asked(cases: Sequence[Case]) -> list[Part]:
    tests = max(1, sum(case.intervals for case in cases))
    found = [(case.name, case.ask(tests)) for case in cases]
    return [Part(name, finding.outcome, finding.numbers, finding.confidence) for name, finding in found]
