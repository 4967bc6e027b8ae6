"""The evidence for a claim: the sweeps of its figure, the results of their points, and views of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from dpcrowd.arrays import PerRun, PerRunAndSlot
from dpcrowd.experiments.claims.claim import Claim
from dpcrowd.experiments.claims.findings import Points
from dpcrowd.experiments.claims.slot_cost import SlotCost
from dpcrowd.experiments.figures import FIGURES, Sweep, Values
from dpcrowd.experiments.points.plan import RunPlan
from dpcrowd.experiments.points.run import Results

__all__ = ["Evidence", "settling_slot"]

_SMOOTHED = 10
_SETTLED = 1.25


@dataclass(frozen=True, eq=False)
class Evidence:
    """Everything that one claim is judged on."""

    claim: Claim
    plan: RunPlan
    results: Results
    slot_cost: SlotCost | None = None

    @cached_property
    def sweeps(self) -> list[Sweep]:
        """The sweeps of the claim's figure, on its data sets and under its ledger."""
        return self.sweeps_of(self.claim.figures[0])

    def sweeps_of(self, number: int) -> list[Sweep]:
        """Return the sweeps of any figure, on the data sets and under the ledger of the claim."""
        (figure,) = (figure for figure in FIGURES if figure.number == number)
        return [
            sweep
            for sweep in figure.sweeps(self.plan)
            if (not self.claim.data or sweep.data in self.claim.data)
            and self.claim.ledger in (None, sweep.points[0][1].accounting)
        ]

    def by_budget(self, data: str) -> tuple[Sweep, Sweep]:
        """Return the sweeps of a data set at the weakest and at the strongest privacy."""
        sweeps = sorted((s for s in self.sweeps if s.data == data), key=lambda sweep: sweep.points[0][1].epsilon)
        return sweeps[-1], sweeps[0]

    def points(self, sweep: Sweep, label: str, metric: str, view: str = "") -> Points:
        """Return the values of a scheme along a sweep, or a view of them."""
        if view in OVER_TIME:
            by_slot = np.stack([slot.runs for slot in sweep.over_time(self.results, label, metric).points], axis=1)
            return OVER_TIME[view](sweep.curve(self.results, label, metric).points[0].name, by_slot)
        curve = sweep.curve(self.results, label, metric)
        if view == "below full density":
            # At ρ=1 every server receives from every other, and all agree whatever the scheme.
            return [values for x, values in zip(curve.x, curve.points, strict=True) if x < 1]
        return ALONG_X[view](curve.points)

    def lead(self, sweep: Sweep, label: str, rivals: Sequence[str], metric: str) -> Points:
        """Return the values of a scheme divided by the lowest value of any rival in the same run."""
        others = [self.points(sweep, rival, metric) for rival in rivals]
        lowest = [np.min([points[i].runs for points in others], axis=0) for i in range(len(others[0]))]
        mine = self.points(sweep, label, metric)
        return [replace(values, runs=values.runs / best) for values, best in zip(mine, lowest, strict=True)]


def _rise(points: Points) -> Points:
    return [Values(f"increase of {points[0].name}", points[-1].runs - points[0].runs)]


ALONG_X: dict[str, Callable[[Points], Points]] = {
    "": lambda points: points,
    "first": lambda points: points[:1],
    "last": lambda points: points[-1:],
    "rise": _rise,
}
"""Views of a curve."""


def settling_slot(by_slot: PerRunAndSlot) -> PerRun:
    """Return the first slot of each run from which 10 slots on average have an error of at most 1.25 times its level.

    The level is the mean over the last quarter of the stream; NaN for a run that diverged.
    """
    width = min(_SMOOTHED, by_slot.shape[1])
    sums = np.cumsum(np.pad(by_slot, ((0, 0), (1, 0))), axis=1)
    smooth = (sums[:, width:] - sums[:, :-width]) / width
    first = (smooth <= _SETTLED * _level(by_slot)[:, None]).argmax(axis=1).astype(np.float64)
    return np.where(np.isfinite(by_slot).all(axis=1), first, np.nan)


def _level(by_slot: PerRunAndSlot) -> PerRun:
    return np.asarray(by_slot[:, -max(by_slot.shape[1] // 4, 1) :].mean(axis=1))


def _spans(name: str, by_slot: PerRunAndSlot) -> Points:
    middle, end = by_slot.shape[1] // 2, by_slot.shape[1]
    cuts = ((0, 10), (10, middle), (middle, end))
    return [Values(name, by_slot[:, a:b].mean(axis=1), f"slots {a} to {b - 1}") for a, b in cuts]


OVER_TIME: dict[str, Callable[[str, PerRunAndSlot], Points]] = {
    "start": lambda name, by_slot: [Values(name, by_slot[:, 0])],
    "second half": lambda name, by_slot: [Values(name, by_slot[:, by_slot.shape[1] // 2 :].mean(axis=1))],
    "spans": _spans,
    "settling slot": lambda name, by_slot: [Values(name, settling_slot(by_slot))],
    "level": lambda name, by_slot: [Values(name, _level(by_slot))],
}
"""Views of the values in each slot."""
