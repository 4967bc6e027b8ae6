"""What the claims on many regions share: sweeps under one ledger, with what moving users really pay beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from dpcrowd.experiments.claims.asking import falling as falling_case
from dpcrowd.experiments.claims.asking import growing, lower, nearly_none, noted
from dpcrowd.experiments.claims.cases import Asked, Case, curve_of, name_of, on
from dpcrowd.experiments.claims.curves import Curve
from dpcrowd.experiments.claims.intervals import Gap, number
from dpcrowd.experiments.claims.reasons import against_the_limit, mean_of, overpaid, overpayment, versus
from dpcrowd.experiments.figures.figure import METRIC_NAMES
from dpcrowd.experiments.points.plan import Plan
from dpcrowd.experiments.points.point import Point
from dpcrowd.experiments.points.run import Results
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

    def lower(
        self, first: str, second: str, metric: str, factor: float = 1.0, data: tuple[str, ...] = ()
    ) -> list[Case]:
        """Whether one scheme is below another everywhere, a case for each data set (or for some)."""
        return [
            self.noted(
                lower(
                    f"{on(name)}, {METRIC_NAMES[metric]} of {name_of(first)} below {name_of(second)}",
                    self.curve(name, first, metric),
                    self.curve(name, second, metric),
                    factor,
                ),
                name,
                (first, second),
            )
            for name in data or self.plan.multi
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

    def why_beaten(self, mine: str, rivals: tuple[str, ...], asked: Asked) -> str:
        """For the worst defeat in ARE on each data set: the samples or the fusion, how often, and who pays what."""
        told = []
        for data in self.plan.multi:
            if (worst := self._worst_defeat(data, ((mine, rival) for rival in rivals), asked)) is not None:
                _, where, point, rival = worst
                cause = against_the_limit(self.results, point, mine, rival, where, asked.tests)
                told.append(cause + (self._oftener(point, mine, rival) if cause else ""))
        return " ".join(text for text in told if text)

    def why_not_worst(self, worst: str, others: tuple[str, ...], asked: Asked) -> str:
        """Who is worse than the scheme that should be the worst, and what the two pay."""
        told = []
        for data in self.plan.multi:
            defeat = self._worst_defeat(data, ((other, worst) for other in others), asked, name_second=False)
            if defeat is None:
                continue
            gap, where, point, other = defeat
            text = f"{where}: {name_of(other)} has a higher ARE than {name_of(worst)} ({gap})"
            paid = [overpayment(self.results, point, label) for label in (other, worst)]
            if paid[1] > 1.01 * max(paid[0], 1.0):
                text += f", whose moving users pay {number(paid[1])} ε where those of the other pay {number(paid[0])} ε"
            told.append(f"{text}.{self._oftener(point, worst, other)}")
        return " ".join(told)

    def _worst_defeat(
        self, data: str, pairs: Iterable[tuple[str, str]], asked: Asked, *, name_second: bool = True
    ) -> tuple[Gap, str, Point, str] | None:
        """Where on a failing data set a first scheme is shown to be worst beside a second in ARE."""
        if not asked.fails_on(data):
            return None
        lost = [
            (gap, f"{on(data)}, {self.x}={x:g}", point, second if name_second else first)
            for first, second in pairs
            for x, point in self.points(data)
            if (gap := versus(self.results, point, first, second, asked.tests)) is not None and gap.above
        ]
        return max(lost, key=lambda defeat: defeat[0].size, default=None)

    def _oftener(self, point: Point, mine: str, rival: str) -> str:
        """How often the two sample."""
        often = [mean_of(self.results, point, label, "frequency") for label in (mine, rival)]
        if not np.isfinite(often).all() or round(100 * often[0]) == round(100 * often[1]):
            return ""
        return f" {name_of(mine)} samples {often[0]:.0%} of the slots there, {name_of(rival)} {often[1]:.0%}."

    def _along(self, ask: Callable[[str, Curve], Case], data: str, label: str, metric: str) -> Case:
        case = ask(f"{on(data)}, {name_of(label)}", self.curve(data, label, metric))
        return self.noted(case, data, (label,))

    def noted(self, case: Case, data: str, labels: tuple[str, ...]) -> Case:
        """The case with what moving users of some schemes really pay."""
        return noted(case, overpaid(self.results, [point for _, point in self.points(data)], labels))
