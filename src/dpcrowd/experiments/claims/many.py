"""What the claims on many regions share: sweeps under one ledger, with what moving users really pay beside them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dpcrowd.experiments.claims.asking import falling as falling_case
from dpcrowd.experiments.claims.asking import growing, lower, nearly_none, noted
from dpcrowd.experiments.claims.cases import Case, absent, curve_of, name_of, on
from dpcrowd.experiments.claims.curves import Curve
from dpcrowd.experiments.claims.intervals import number
from dpcrowd.experiments.claims.reasons import against_the_limit, mean_of, overpaid, overpayment
from dpcrowd.experiments.figures.figure import METRIC_NAMES
from dpcrowd.experiments.plan import MULTI, Plan
from dpcrowd.experiments.point import Point
from dpcrowd.experiments.run import Results
from dpcrowd.privacy import Accounting

__all__ = ["PLUS", "Sweep"]

PLUS = "dpcrowd-plus"


@dataclass(frozen=True, eq=False)
class Sweep:
    """The results of figure 6 or 7 under one ledger; `x` names what is swept."""

    plan: Plan
    results: Results
    accounting: Accounting
    swept: Callable[[Plan, str, Accounting], list[tuple[float, Point]]]
    x: str

    def points(self, data: str) -> list[tuple[float, Point]]:
        """(x, point) on a data set."""
        return self.swept(self.plan, data, self.accounting)

    def curve(self, data: str, label: str, metric: str) -> Curve:
        """What a scheme scored."""
        return curve_of(self.results, self.points(data), label, metric, self.x)

    def lower(self, first: str, second: str, metric: str, factor: float = 1.0) -> list[Case]:
        """Whether one scheme is below another everywhere, a case for each data set."""
        return [
            self.noted(
                lower(
                    f"{on(data)}, {METRIC_NAMES[metric]} of {name_of(first)} below {name_of(second)}",
                    self.curve(data, first, metric),
                    self.curve(data, second, metric),
                    factor,
                ),
                data,
                (first, second),
            )
            for data in self.plan.multi
        ]

    def nearly_none(self, first: str, second: str, metric: str) -> list[Case]:
        """Whether one scheme has almost nothing of what another has."""
        return [
            self.noted(
                nearly_none(
                    f"{on(data)}, {name_of(first)} against {name_of(second)}",
                    self.curve(data, first, metric),
                    self.curve(data, second, metric),
                ),
                data,
                (first, second),
            )
            for data in self.plan.multi
        ]

    def falling(self, label: str, metric: str) -> list[Case]:
        """Whether it falls along the sweep, a case for each data set."""
        return [self._along(falling_case, data, label, metric) for data in self.plan.multi]

    def growing(self, label: str, metric: str) -> list[Case]:
        """Whether it grows along the sweep, a case for each data set."""
        return [self._along(growing, data, label, metric) for data in self.plan.multi]

    def absent(self) -> list[Case]:
        """Cases for the data sets that are not there."""
        return absent(self.plan, *MULTI)

    def why_beaten(self, mine: str, rivals: tuple[str, ...]) -> str:
        """For the worst defeat in ARE on each data set: the samples or the fusion, how often, and who pays what."""
        told = []
        for data in self.plan.multi:
            lost = [
                (self._quotient(point, mine, rival), x, point, rival)
                for x, point in self.points(data)
                for rival in rivals
            ]
            quotient, x, point, rival = max(lost, key=lambda defeat: defeat[0])
            if not quotient > 1:
                continue
            told.append(
                against_the_limit(self.results, point, mine, rival, f"{on(data)}, {self.x}={x:g}")
                + self._oftener(point, mine, rival)
            )
        return " ".join(text for text in told if text)

    def why_not_worst(self, worst: str, others: tuple[str, ...]) -> str:
        """Who is worse than the scheme that should be the worst, and what the two pay."""
        told = []
        for data in self.plan.multi:
            lost = [
                (self._quotient(point, other, worst), x, point, other)
                for x, point in self.points(data)
                for other in others
            ]
            quotient, x, point, other = max(lost, key=lambda defeat: defeat[0])
            if not quotient > 1.01:
                continue
            text = (
                f"{on(data)}, {self.x}={x:g}: {name_of(other)} has {number(quotient)} times the ARE of {name_of(worst)}"
            )
            paid = [overpayment(self.results, point, label) for label in (other, worst)]
            if paid[1] > 1.01 * max(paid[0], 1.0):
                text += f", whose moving users pay {number(paid[1])} ε where those of the other pay {number(paid[0])} ε"
            told.append(f"{text}.{self._oftener(point, worst, other)}")
        return " ".join(told)

    def why_no_consensus(self, mine: str, rival: str) -> str:
        """How the ACE of two schemes compares on each data set, and how often they sample where it is worst."""
        told = []
        for data in self.plan.multi:
            ratios = [(self._quotient(point, mine, rival, "ace"), x, point) for x, point in self.points(data)]
            low, (high, x, point) = min(ratios, key=lambda r: r[0])[0], max(ratios, key=lambda r: r[0])
            text = f"{on(data)}: {number(low)} to {number(high)} times the ACE of {name_of(rival)}"
            if high < 1:
                text += ", lower everywhere."
            else:
                text += f", most at {self.x}={x:g}.{self._oftener(point, mine, rival)}"
            told.append(text)
        return " ".join(told)

    def _oftener(self, point: Point, mine: str, rival: str) -> str:
        """How often the two sample."""
        often = [mean_of(self.results, point, label, "frequency") for label in (mine, rival)]
        if not np.isfinite(often).all():
            return ""
        return f" {name_of(mine)} samples {often[0]:.0%} of the slots there, {name_of(rival)} {often[1]:.0%}."

    def _quotient(self, point: Point, first: str, second: str, metric: str = "are") -> float:
        base = mean_of(self.results, point, second, metric)
        return mean_of(self.results, point, first, metric) / base if base else 0.0

    def _along(self, ask: Callable[[str, Curve], Case], data: str, label: str, metric: str) -> Case:
        case = ask(f"{on(data)}, {name_of(label)}", self.curve(data, label, metric))
        return self.noted(case, data, (label,))

    def noted(self, case: Case, data: str, labels: tuple[str, ...]) -> Case:
        """The case with what moving users of some schemes really pay."""
        return noted(case, overpaid(self.results, [point for _, point in self.points(data)], labels))
