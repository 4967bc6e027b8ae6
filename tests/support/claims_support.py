"""Made-up worlds for the claims: one in which everything is as the paper says, and one in which nothing is."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dpcrowd.experiments.claims.slot_cost import SlotCost, SlotTiming
from dpcrowd.experiments.points.plan import RunPlan
from dpcrowd.experiments.points.point import Point
from dpcrowd.experiments.points.run import Results
from dpcrowd.privacy import Paid
from dpcrowd.schemes.tuning import Tuning
from dpcrowd.sim.recorder import RunRecords
from dpcrowd.sim.result import SimulationResult

RUNS = 12
SLOTS = 120

Floats = NDArray[np.float64]
Mean = Callable[[Point, str, str], float]


def made_up_plan(*data: str, runs: int = RUNS) -> RunPlan:
    """A plan over few values, on data sets that hold nothing but what claims ask of them."""
    fractions = {"linear": 0.3, "flu": 0.4}
    regions = {"multi-linear": 6, "multi-flu": 51}
    sets = {
        name: SimpleNamespace(
            tuning=Tuning(sample_fraction=fractions.get(name, 0.3)), regions=range(regions.get(name, 1))
        )
        for name in data or ("linear", "flu", "multi-linear", "multi-flu")
    }
    return RunPlan(
        data=cast(Any, sets),
        runs=runs,
        servers=20,
        densities=(0.2, 0.4, 1.0),
        intervals=(1, 3, 8, 50),
        epsilons=(0.1, 0.4, 1.0),
        windows=(20, 60, 100),
    )


_ARE = {
    **{"fast": 0.4, "dfast": 0.3, "dpcrowd": 0.2, "central": 0.1, "dpcrowd-adaptive": 0.2},
    **{"rescuedp": 1.0, "drescuedp": 0.6, "dpcrowd-w": 0.4, "dpegasus": 0.5, "dbd": 0.55, "dba": 0.56},
}
_ACE = {"fast": 100.0, "dpcrowd": 20.0, "dpcrowd-adaptive": 60.0, "rescuedp": 100.0, "dpcrowd-w": 30.0}
_METRICS = ("are", "ace", "frequency", "packets_per_slot", "latency_ms", "mse", "claimed_mse")
_VALLEY = {1: 0.5, 3: 0.2, 8: 0.3, 50: 0.8}


def as_claimed(point: Point, label: str, metric: str) -> float:
    """Means in a world in which the paper is right."""
    interval = next(entry.interval for entry in point.entries if entry.label == label)
    privacy = 2.0 - point.epsilon
    crowd = 1.5 - 0.5 * point.density if label == "dpcrowd" and point.epsilon < 1 else 1.0
    window = 1.0 if point.window is None else point.window / 100
    harder = 2.0 if point.data == "flu" and label != "dpcrowd-adaptive" else 1.0
    if metric == "are":
        if interval is not None:
            return _VALLEY[interval]
        if label == "dpcrowd-plus":
            return (0.1 if point.data == "multi-flu" else 0.3) * privacy * window
        return _ARE.get(label, 2.0) * privacy * crowd * window * harder
    if metric == "ace":
        if interval is not None:
            return 50.0 / interval
        return (10.0 if label == "dpcrowd-plus" else _ACE.get(label, 0.0)) * privacy * crowd * window * harder
    if metric == "frequency":
        return 0.1 if interval is None else 1.0 / interval
    if metric == "packets_per_slot":
        return 10.0 * (1 + point.density) if label.startswith("dpcrowd") else 1e4 * (1 + 10 * point.density)
    if metric == "latency_ms":
        return 100.0 if label.startswith("dpcrowd") else 1000.0 - 500.0 * point.density
    return 1000.0 * privacy  # mse and claimed_mse are equal


def turned_round(point: Point, label: str, metric: str) -> float:
    """Means in a world in which every order and every trend is the opposite, and what was level is not."""
    scale = {"are": 1.0, "ace": 1e4, "frequency": 1.0, "packets_per_slot": 1e9, "latency_ms": 1e5}.get(metric, 1e6)
    value = scale / (as_claimed(point, label, metric) + 1e-3)
    if label in ("dfast", "dpcrowd") and point.window is None:
        value *= 1 + point.density
    return 2 * value if metric == "claimed_mse" else value


@cache
def slow_start(label: str) -> Floats:
    """How the error over time comes down to its level: FAST and DFAST slowly, DPCrowd at once."""
    slots = np.arange(SLOTS)
    decay = 3.0 if label == "dpcrowd" else 20.0
    return np.asarray(1.0 + 4.0 * np.exp(-slots / decay) + 0.2 * (1 - slots / SLOTS))


@cache
def _scatter(point: Point, label: str, runs: int) -> dict[str, Floats]:
    """By how many standard deviations the runs of each metric are off: the same in all worlds."""
    rng = np.random.default_rng(zlib.crc32(repr((point, label)).encode()))
    return {metric: rng.standard_normal(runs) for metric in _METRICS}


@dataclass
class World(Results):
    """Results that are made up; `changes` replaces the values of (label, metric) everywhere."""

    mean: Mean = as_claimed
    start: Callable[[str], Floats] = slow_start
    runs: int = RUNS
    spread: float = 1e-3
    moving: float = 1.0
    seconds: float = 1e-6
    changes: dict[tuple[str, str], Callable[[Floats], Floats]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._made: dict[Point, SimulationResult] = {}

    def __getitem__(self, point: Point) -> SimulationResult:
        made = self._made.get(point)
        if made is None:
            labels = [entry.label for entry in point.entries]
            made = SimulationResult({label: self._record(point, label) for label in labels}, {}, ())
            self._made[point] = made
        return made

    def _record(self, point: Point, label: str) -> RunRecords:
        scatter = _scatter(point, label, self.runs)

        def values(metric: str) -> Floats:
            scattered = self.mean(point, label, metric) * (1 + self.spread * scatter[metric])
            change = self.changes.get((label, metric))
            return scattered if change is None else change(scattered)

        known: dict[str, Any] = {metric: values(metric) for metric in _METRICS}
        over_time = known["are"][:, None] * self.start(label)
        if self.mean is turned_round:
            over_time = known["are"][:, None] / self.start(label)
        nothing = np.zeros(self.runs)
        paid = Paid(*(round(times * point.epsilon * 1e9) for times in (1.0, self.moving, self.moving)))
        return RunRecords(
            label=label,
            runs=np.arange(self.runs),
            heartbeats_per_slot=nothing,
            bytes_per_slot=nothing,
            total_error=nothing,
            mae=nothing,
            rmse=nothing,
            coverage95=nothing,
            missing=nothing,
            are_by_slot=over_time,
            ace_by_slot=over_time,
            paid=(paid,) * self.runs,
            seconds=self.seconds,
            server_slots=1,
            **known,
        )


def timed(milliseconds: float) -> SlotCost:
    """A live server that always takes so long."""
    kinds = [("dpcrowd", 1), ("dpcrowd-plus", 51)]
    timings = [
        SlotTiming(name, regions, secure, 300, milliseconds, milliseconds, milliseconds)
        for name, regions in kinds
        for secure in (False, True)
    ]
    return SlotCost("a machine", tuple(timings))
