"""From results to a verdict: the cases of a claim are gathered first; each then knows how many intervals all take."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from dpcrowd.experiments.claims.curves import Curve
from dpcrowd.experiments.claims.judge import ROUNDING, Finding, Values
from dpcrowd.experiments.claims.verdict import Outcome, Part, Verdict, combine
from dpcrowd.experiments.figures.figure import DATA_NAMES
from dpcrowd.experiments.figures.rosters import STYLES
from dpcrowd.experiments.points.point import Point
from dpcrowd.experiments.points.run import Results

__all__ = ["Asked", "Case", "curve_of", "decide", "decide_most", "name_of", "on", "renamed", "values_of"]


@dataclass(frozen=True)
class Asked:
    """What a reason is looked for: the cases that fail, and how many intervals the claim takes."""

    failed: tuple[str, ...]
    tests: int

    def fails_on(self, data: str) -> bool:
        """Whether a case of a data set fails."""
        return any(name.startswith(on(data)) for name in self.failed)


Reason = Callable[[Asked], str]


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


def decide(cases: Sequence[Case], reason: Reason | str = "", undecided: str = "", likely: str = "") -> Verdict:
    """Ask all cases.

    reason     looked for in the results where a case fails
    likely     what to suspect where the results show no reason
    undecided  stands where no case fails
    """
    parts, findings, tests = _asked(cases)
    verdict = combine(parts)
    return combine(parts, _why(verdict.outcome, parts, findings, tests, reason, undecided, likely))


def decide_most(cases: Sequence[Case], reason: Reason | str = "") -> Verdict:
    """For claims about most cases: holds if it does in more than half of them, fails if it fails in half of them."""
    parts, findings, tests = _asked(cases)
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
    return Verdict(outcome, (all_cases, *parts), _why(outcome, parts, findings, tests, reason, ""))


def _why(
    outcome: Outcome,
    parts: Sequence[Part],
    findings: Sequence[Finding],
    tests: int,
    reason: Reason | str,
    undecided: str,
    likely: str = "",
) -> str:
    if outcome == "holds":
        return ""
    if outcome == "does not hold":
        failed = tuple(part.case for part in parts if part.outcome == "does not hold")
        found = reason if isinstance(reason, str) else reason(Asked(failed, tests))
        return found or likely or "The recorded numbers point to no reason."
    unclear = [finding for finding in findings if finding.outcome == "undecided"]
    causes = dict.fromkeys(finding.cause for finding in unclear if finding.cause)
    if any(not finding.cause for finding in unclear):
        causes["The intervals of the undecided cases are too wide to tell; more runs make them narrower."] = None
    return " ".join(text for text in (undecided, *causes) if text)


def _asked(cases: Sequence[Case]) -> tuple[list[Part], list[Finding], int]:
    tests = max(1, sum(case.intervals for case in cases))
    findings = [case.ask(tests) for case in cases]
    pairs = zip(cases, findings, strict=True)
    return [Part(case.name, f.outcome, f.numbers, f.confidence) for case, f in pairs], findings, tests
