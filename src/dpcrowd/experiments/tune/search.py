"""Differential evolution on the mean relative error (ARE), as the paper tunes Q, theta, xi and T_s.

Every candidate is simulated on the same few runs (common random numbers), so that differences come from the parameters
alone. Each axis is the logarithm of a parameter; Q has one axis, a factor on the variances of all regions. The present
parameters are evaluated first and are part of the first population: on these runs the result is never worse than they
are. On other runs it may be worse, which is why some slots are not used for tuning.

A generation is complete before the next one begins, so the result depends only on the seed, not on the number of
processes.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpcrowd.arrays import Floats
from dpcrowd.filters import ProcessModel
from dpcrowd.schemes.tuning import Tuning
from dpcrowd.sim.config import SimulationConfig
from dpcrowd.sim.engine import run_batch
from dpcrowd.sim.simulate import batches

__all__ = ["AXES", "TunedParameters", "evolve", "mean_are", "population", "with_parameters"]

Progress = Callable[[int, int], None]

AXES: dict[str, tuple[float, float]] = {
    "process_var": (1e-3, 1e3),  # a factor
    "theta": (0.05, 50.0),
    "xi": (0.005, 5.0),
    "sample_fraction": (0.02, 1.0),
    "rescue_theta": (0.05, 50.0),
}
_PER_AXIS = 4  # members of the population per axis
_TOLERANCE = 2e-3  # the search ends when the errors of the population differ by less, relative to their mean
_WORTH_A_WORKER = 5_000_000  # values x slots x evaluations below which starting workers costs more than it saves


@dataclass(frozen=True)
class TunedParameters:
    """The best parameters, and their error on the tuning runs."""

    model: ProcessModel
    tuning: dict[str, float]
    are: float


@dataclass(frozen=True, eq=False)
class _Objective:
    """The error of a point, which is minimised; points are logarithms of the axes' values. Workers get a copy."""

    config: SimulationConfig
    axes: tuple[str, ...]

    def values(self, point: Floats) -> dict[str, float]:
        """Return the parameters of a point with four digits, exactly as they are simulated and written to a file."""
        return {name: float(f"{10.0**x:.4g}") for name, x in zip(self.axes, point.tolist(), strict=True)}

    def parameters(self, point: Floats) -> tuple[ProcessModel, dict[str, float]]:
        values = self.values(point)
        factor = values.pop("process_var")
        model = self.config.data.model
        scaled = [float(f"{factor * q:.6g}") for q in model.process_var.ravel()]
        return ProcessModel(model.transition, np.reshape(scaled, model.process_var.shape)), values

    def __call__(self, point: Floats) -> float:
        model, tuning = self.parameters(point)
        return mean_are(with_parameters(self.config, model, tuning))


def with_parameters(config: SimulationConfig, model: ProcessModel, tuning: dict[str, Any]) -> SimulationConfig:
    """Return the same simulation with other parameters."""
    return replace(config, data=replace(config.data, model=model), tuning=replace(config.tuning, **tuning))


def mean_are(config: SimulationConfig) -> float:
    """Return the mean ARE of the only scheme over the runs; infinite if a run has none or diverged."""
    errors = [run_batch(config, runs)[0].are for runs in batches(config, range(config.runs), 1)]
    mean = float(np.concatenate(errors).mean())
    return mean if math.isfinite(mean) else math.inf


def population(axes: Iterable[str]) -> int:
    """Return the number of points of a generation."""
    return max(5, _PER_AXIS * len(tuple(axes)))


def evolve(
    config: SimulationConfig,
    axes: tuple[str, ...],
    *,
    evaluations: int,
    seed: int,
    jobs: int | None,
    progress: Progress | None = None,
) -> TunedParameters:
    """Return the parameters with the smallest error among about `evaluations` candidates."""
    from scipy.optimize import differential_evolution

    objective = _Objective(config, axes)
    present = TunedParameters(
        config.data.model, {name: getattr(config.tuning, name) for name in axes[1:]}, mean_are(config)
    )
    size = population(axes)
    generations = evaluations // size
    result = differential_evolution(
        objective,
        [(math.log10(low), math.log10(high)) for low, high in (AXES[name] for name in axes)],
        x0=_start(config.tuning, axes),
        maxiter=generations - 1,
        popsize=_PER_AXIS,
        tol=_TOLERANCE,
        polish=False,
        seed=np.random.default_rng(seed),
        updating="deferred",
        workers=_Workers(_jobs(config, evaluations, jobs), generations * size, progress),
    )
    if not result.fun < present.are:
        return present
    model, tuning = objective.parameters(result.x)
    return TunedParameters(model, tuning, float(result.fun))


def _start(tuning: Tuning, axes: tuple[str, ...]) -> list[float]:
    """Return the present parameters as a point; a value beyond an axis starts at its end."""
    values = [1.0, *(getattr(tuning, name) for name in axes[1:])]
    return [math.log10(float(np.clip(value, *AXES[name]))) for name, value in zip(axes, values, strict=True)]


def _jobs(config: SimulationConfig, evaluations: int, jobs: int | None) -> int:
    if jobs is not None:
        return jobs
    work = config.runs * config.servers * len(config.data.regions) * config.data.slots * evaluations
    return 1 if work < _WORTH_A_WORKER else os.cpu_count() or 1


class _Workers:
    """The map function of differential evolution: it uses one process or several, and counts evaluations."""

    def __init__(self, jobs: int, total: int, progress: Progress | None) -> None:
        self._jobs, self._total, self._progress, self._done = jobs, total, progress, 0

    def __call__(self, function: Callable[[Floats], float], points: Iterable[Floats]) -> list[float]:
        values = []
        for value in self._map(function, points):
            values.append(value)
            self._done += 1
            if self._progress is not None:
                self._progress(self._done, self._total)
        return values

    def _map(self, function: Callable[[Floats], float], points: Iterable[Floats]) -> Iterable[Any]:
        if self._jobs == 1:
            return map(function, points)
        from joblib import Parallel, delayed

        parallel = Parallel(n_jobs=self._jobs, return_as="generator")
        results: Iterable[Any] = parallel(delayed(function)(point) for point in points)
        return results
