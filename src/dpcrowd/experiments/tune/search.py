"""Differential evolution of theta, xi and T_s, and of Q if asked for, on the estimates with their intervals.

With the objective "crps" the score is that of the estimate together with its variance (`filters.crps`), relative to the
mean count of each region: intervals that are too narrow do not pay. With "are" it is the mean relative error, as in the
paper, which does not look at the variance. Q is left to `dpcrowd fit` unless it is asked for: even by CRPS, the Q that
is best on a few runs can be too small for the slots after them. In any case a candidate is refused if its 95% intervals
cover less than `MIN_COVERAGE` and less than with the present parameters.

A finite budget that is spent before the end of the span leaves slots in which servers only predict. Scores on a few
runs hide that, since a stream that happens to stay where it was costs nothing; so, of the parameters that score no
worse than the present ones, those whose budget lasts are preferred, unless that is switched off, and of those whose
budget does not last, the ones that lose the fewest slots.

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

from dpcrowd.arrays import Floats, Truth
from dpcrowd.filters import ProcessModel
from dpcrowd.filters.crps import normal_crps
from dpcrowd.schemes.tuning import Tuning
from dpcrowd.sim.config import SimulationConfig
from dpcrowd.sim.data.seeds import Purpose, generator
from dpcrowd.sim.engine import run_batch
from dpcrowd.sim.simulate import batches

__all__ = [
    "AXES",
    "MIN_COVERAGE",
    "OBJECTIVES",
    "TunedParameters",
    "TuningScores",
    "evaluate",
    "evolve",
    "population",
    "with_parameters",
]

Progress = Callable[[int, int], None]

AXES: dict[str, tuple[float, float]] = {
    "process_var": (1e-3, 1e3),  # a factor
    "theta": (0.05, 50.0),
    "xi": (0.005, 5.0),
    "sample_fraction": (0.02, 1.0),
    "rescue_theta": (0.05, 50.0),
}
OBJECTIVES = ("crps", "are")
MIN_COVERAGE = 0.9
"""Coverage of the 95% intervals that no candidate may fall below, unless the present parameters are below it, too."""

_PER_AXIS = 4  # members of the population per axis
_TOLERANCE = 2e-3  # the search ends when the errors of the population differ by less, relative to their mean
_EXHAUSTED = 1e9  # more than any score
_WORSE = 1e12  # more than any score of parameters that are no worse than the present ones
_WORTH_A_WORKER = 5_000_000  # values x slots x evaluations below which starting workers costs more than it saves


@dataclass(frozen=True)
class TuningScores:
    """Means over the tuning runs.

    crps               in parts of a region's mean count
    coverage           of 95% intervals
    exhausted_at       the median slot of the span from which on servers had no budget for another sample; None: the
                       budget of all lasted
    exhausted_servers  the share of the servers to which that happened
    lost_slots         the share of the slots in which servers had no budget, averaged over all servers
    """

    are: float
    crps: float
    coverage: float
    exhausted_at: int | None = None
    exhausted_servers: float = 0.0
    lost_slots: float = 0.0

    def value(self, objective: str) -> float:
        """Return what is minimised."""
        return self.crps if objective == "crps" else self.are


@dataclass(frozen=True)
class TunedParameters:
    """The best parameters, and their scores on the tuning runs."""

    model: ProcessModel
    tuning: dict[str, float]
    scores: TuningScores


@dataclass(frozen=True, eq=False)
class _Objective:
    """The score of a point, which is minimised; points are logarithms of the axes' values. Workers get a copy.

    min_coverage    of the intervals; below it a point is refused
    most            score of the present parameters; points above it come after all others
    must_last       whether points whose budget is exhausted come after those whose budget lasts
    """

    config: SimulationConfig
    axes: tuple[str, ...]
    objective: str
    min_coverage: float
    most: float
    must_last: bool

    def values(self, point: Floats) -> dict[str, float]:
        """Return the parameters of a point with four digits, exactly as they are simulated and written to a file."""
        return {name: float(f"{10.0**x:.4g}") for name, x in zip(self.axes, point.tolist(), strict=True)}

    def parameters(self, point: Floats) -> tuple[ProcessModel, dict[str, float]]:
        values = self.values(point)
        factor = values.pop("process_var", None)
        model = self.config.data.model
        if factor is None:
            return model, values
        scaled = [float(f"{factor * q:.6g}") for q in model.process_var.ravel()]
        return ProcessModel(model.transition, np.reshape(scaled, model.process_var.shape)), values

    def __call__(self, point: Floats) -> float:
        model, tuning = self.parameters(point)
        return self.score(evaluate(with_parameters(self.config, model, tuning)))

    def score(self, scores: TuningScores) -> float:
        """Return what is minimised."""
        if scores.coverage < self.min_coverage:
            return math.inf
        value = scores.value(self.objective)
        if value > self.most:
            return _WORSE * (1.0 + value)
        return value + _EXHAUSTED * (1.0 + scores.lost_slots) if self.must_last and scores.lost_slots else value


def with_parameters(config: SimulationConfig, model: ProcessModel, tuning: dict[str, Any]) -> SimulationConfig:
    """Return the same simulation with other parameters."""
    return replace(config, data=replace(config.data, model=model), tuning=replace(config.tuning, **tuning))


def evaluate(config: SimulationConfig) -> TuningScores:
    """Return the scores of the only scheme over the runs; infinite errors if a run has none or diverged."""
    errors, scores, coverages, exhausted = [], [], [], []
    for runs in batches(config, range(config.runs), 1):
        (record,) = run_batch(replace(config, keep_estimates=True), runs)
        errors.append(record.are)
        coverages.append(record.coverage95)
        if record.exhausted_at is not None:
            exhausted.append(record.exhausted_at.ravel())
        assert record.estimates is not None and record.variances is not None
        for place, run in enumerate(runs):
            truth = config.data.truth(generator(config.seed, run, Purpose.TRUTH))
            scores.append(relative_crps(record.estimates[place], record.variances[place], truth, config))
    coverage = float(np.concatenate(coverages).mean())
    are, crps = float(np.concatenate(errors).mean()), float(np.mean(scores))
    return TuningScores(
        _or_infinite(are),
        _or_infinite(crps),
        coverage if math.isfinite(coverage) else 0.0,
        *_exhaustion(np.concatenate(exhausted) if exhausted else np.empty(0), config.data.slots),
    )


def _exhaustion(exhausted_at: Floats, slots: int) -> tuple[int | None, float, float]:
    """Return the median slot, the share of servers and the share of lost slots, from a slot or NaN per server."""
    ends = exhausted_at[~np.isnan(exhausted_at)]
    if not ends.size:
        return None, 0.0, 0.0
    return int(np.median(ends)), ends.size / exhausted_at.size, float((slots - ends).sum() / slots / exhausted_at.size)


def relative_crps(estimates: Floats, variances: Floats, truth: Truth, config: SimulationConfig) -> float:
    """Return the mean CRPS of one run, (slots, servers, regions), from the burn-in on, every region counting alike.

    A region's scores are divided by its mean count. An estimate without an interval scores as one of width 0, and a
    missing one as an estimate of 0 would.
    """
    estimates, variances = estimates[config.burn_in :], variances[config.burn_in :]
    counts = truth[config.burn_in :].astype(np.float64)
    with np.errstate(all="ignore"):
        error = np.where(np.isnan(estimates), 0.0, estimates) - counts[:, None, :]
        usable = np.isfinite(variances) & (variances > 0.0) & ~np.isnan(estimates)
        scores = np.where(usable, normal_crps(error, np.where(usable, variances, 1.0)), np.abs(error))
        by_region = scores.mean(axis=(0, 1)) / np.maximum(counts.mean(axis=0), 1.0)
        return float(by_region.mean())


def _or_infinite(value: float) -> float:
    return value if math.isfinite(value) else math.inf


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
    objective: str = "crps",
    must_last: bool = True,
) -> TunedParameters:
    """Return the parameters with the smallest score among about `evaluations` candidates, or the present ones.

    must_last  whether parameters whose budget is exhausted before the end are chosen only if those of all candidates
               that score no worse than the present ones are, too
    """
    from scipy.optimize import differential_evolution

    present = TunedParameters(
        config.data.model,
        {name: getattr(config.tuning, name) for name in axes if name != "process_var"},
        evaluate(config),
    )
    searched = _Objective(
        config,
        axes,
        objective,
        min_coverage=min(MIN_COVERAGE, present.scores.coverage),
        most=present.scores.value(objective),
        must_last=must_last,
    )
    size = population(axes)
    generations = evaluations // size
    result = differential_evolution(
        searched,
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
    if not result.fun < searched.score(present.scores):
        return present
    model, tuning = searched.parameters(result.x)
    return TunedParameters(model, tuning, evaluate(with_parameters(config, model, tuning)))


def _start(tuning: Tuning, axes: tuple[str, ...]) -> list[float]:
    """Return the present parameters as a point; a value beyond an axis starts at its end."""
    values = [1.0 if name == "process_var" else getattr(tuning, name) for name in axes]
    return [math.log10(float(np.clip(value, *AXES[name]))) for name, value in zip(axes, values, strict=True)]


def _jobs(config: SimulationConfig, evaluations: int, jobs: int | None) -> int:
    if jobs is not None:
        return jobs
    work = config.runs * config.servers * len(config.data.regions) * config.data.slots * evaluations
    return 1 if work < _WORTH_A_WORKER else os.cpu_count() or 1


class _Workers:
    """The map function of differential evolution: it uses one process or several, and counts evaluations."""

    def __init__(self, jobs: int, total: int, progress: Progress | None) -> None:
        self._jobs, self._total, self._progress, self._evaluations = jobs, total, progress, 0

    def __call__(self, function: Callable[[Floats], float], points: Iterable[Floats]) -> list[float]:
        values = []
        for value in self._map(function, points):
            values.append(value)
            self._evaluations += 1
            if self._progress is not None:
                self._progress(self._evaluations, self._total)
        return values

    def _map(self, function: Callable[[Floats], float], points: Iterable[Floats]) -> Iterable[Any]:
        if self._jobs == 1:
            return map(function, points)
        from joblib import Parallel, delayed

        parallel = Parallel(n_jobs=self._jobs, return_as="generator")
        results: Iterable[Any] = parallel(delayed(function)(point) for point in points)
        return results
