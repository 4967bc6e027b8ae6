"""The prediction for a request: the covariance recursion of `schemes.prediction`, on the real schedule and distances.

The recursion gives standard deviations. What people ask for is derived from them:

    interval  level +- 1.96 sd
    error     sqrt(2/pi) sd/max(level, 1): the mean of |error|/max(r, 1) if errors are Gaussian, as of ARE
    total     sum of the regions' absolute errors, sqrt(2/pi) sd, over the sum of their people

Where the levels are those of a series, slot by slot, the error is the one that is expected on it (`replay`). Around a
process model, the errors are those of counts that may be near 0 (`skewed`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import count

import numpy as np

from dpcrowd.arrays import Floats
from dpcrowd.kernels.engine import best_engine
from dpcrowd.privacy import Guarantee
from dpcrowd.schemes.base import half_width
from dpcrowd.schemes.prediction import (
    PublicFacts,
    ReachChoice,
    best_reach,
    best_samples,
    predicted_deviation,
    reach_choices,
)
from dpcrowd.schemes.relay import Hops
from dpcrowd.sim.config import SimulationConfig
from dpcrowd.sim.planner.moving import with_moving
from dpcrowd.sim.planner.replay import MEAN_ABSOLUTE, Series, SeriesErrors, errors_on_run
from dpcrowd.sim.planner.replay_staying import errors_on_staying_run
from dpcrowd.sim.planner.request import Levels, PlanRequest
from dpcrowd.sim.planner.skewed import errors_around_model
from dpcrowd.sim.planning import public_facts

__all__ = ["MEAN_ABSOLUTE", "Prediction", "choices", "config_of", "facts_of", "fulfils", "guarantee_of", "predict"]

_TOGETHER = 12  # regions per pass of the recursion
_NOBODY = 1e-6  # people: levels are at least 1e-9
_SHARES = 6  # draws of the shares, where they are drawn
_FAR = 1.3  # by what deviations of one draw may be larger or smaller than those of all


@dataclass(frozen=True)
class Prediction:
    """What a network reaches in the steady state, averaged over servers and slots.

    deviation  standard deviations of the estimates, as the filters claim them, one per region of `levels`
    on_series  the errors on the series of `levels`, if it has one
    """

    levels: Levels
    epsilon: float
    reach: Hops
    samples: int
    deviation: tuple[float, ...]
    on_series: SeriesErrors | None = None

    @property
    def half_width(self) -> tuple[float, ...]:
        """Half the width of each region's 95% interval."""
        return tuple(half_width(np.square(self.deviation)).tolist())

    @property
    def errors(self) -> tuple[float, ...]:
        """The expected relative error of each region."""
        if self.on_series is not None:
            return tuple(self.on_series.relative.tolist())
        if self.levels.transition is not None:
            return self._around_model[1]
        pairs = zip(self.deviation, self.levels.inverse_level, strict=True)
        return tuple(MEAN_ABSOLUTE * deviation * inverse for deviation, inverse in pairs)

    @property
    def absolute_errors(self) -> tuple[float, ...]:
        """The expected absolute error of each region, in people."""
        if self.on_series is not None:
            return tuple(self.on_series.absolute.tolist())
        if self.levels.transition is not None:
            return self._around_model[0]
        return tuple(MEAN_ABSOLUTE * deviation for deviation in self.deviation)

    @cached_property
    def _around_model(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """The expected absolute and relative errors of filters that know a process model."""
        regions = range(len(self.levels))
        absolute, relative = errors_around_model(self.levels, np.square(self.deviation), regions)
        return tuple(absolute.tolist()), tuple(relative.tolist())

    @property
    def people(self) -> float | None:
        """The expected people of all regions in a slot; None: nobody is expected."""
        people = sum(self.levels.people if self.on_series is None else self.on_series.level.tolist())
        return people if people > _NOBODY else None

    @property
    def total_error(self) -> float | None:
        """The sum of the regions' expected absolute errors over the sum of their people, as simulations score it.

        None: nobody is expected.
        """
        return None if self.people is None else sum(self.absolute_errors) / self.people

    @property
    def model_error(self) -> float | None:
        """The total error of the process model alone, without any record; None without a model, or without people."""
        if self.levels.transition is None or self.people is None:
            return None
        absolute, _ = errors_around_model(self.levels, self.levels.spread, range(len(self.levels)))
        return float(absolute.sum()) / self.people

    @property
    def error(self) -> float:
        """The mean of the regions' expected relative errors."""
        return sum(self.errors) / len(self.errors)

    @property
    def hidden(self) -> tuple[int, ...]:
        """The regions that cannot be told from 0: half the width of their interval is at least their level."""
        pairs = zip(self.half_width, self.levels.level, strict=True)
        return tuple(k for k, (half, level) in enumerate(pairs) if half >= level)


@lru_cache(maxsize=64)
def config_of(request: PlanRequest) -> SimulationConfig:
    """Return the simulation of a request, made once."""
    return request.config()


def guarantee_of(request: PlanRequest) -> Guarantee:
    """Return the guarantee of a request."""
    guarantee = config_of(request).entrants[0].guarantee
    assert guarantee is not None
    return guarantee


@lru_cache(maxsize=64)
def _facts_at_one(request: PlanRequest, reach: Hops, run: int) -> PublicFacts:
    facts = public_facts(config_of(request), request.scheme(reach), guarantee_of(request), run)
    facts = replace(facts, turnover=config_of(request).turnover, engine=best_engine())
    count_var = request.levels.count_var
    return facts if count_var is None else replace(facts, count_var=np.array(count_var))


def facts_of(request: PlanRequest, reach: Hops, run: int = 0) -> PublicFacts:
    """Return the public facts of a request; graph, distances and shares are computed once for all values of epsilon.

    run  which draw of the links, and of the shares if they are drawn; a plan describes the network of the first
    """
    return replace(_facts_at_one(replace(request, epsilon=1.0), reach, run), guarantee=guarantee_of(request))


def _draws(request: PlanRequest) -> int:
    """Return how many draws of the shares are averaged: one where a plan describes a network whose links stay."""
    return _SHARES if config_of(request).network.dynamic and request.has_drawn_shares else 1


class _Choices:
    """The choices of a reach, each computed when it is first asked for and then remembered."""

    def __init__(self, computed: Iterator[ReachChoice]) -> None:
        self._computed = computed
        self.known: list[ReachChoice] = []

    def __iter__(self) -> Iterator[ReachChoice]:
        for number in count():
            if number == len(self.known):
                choice = next(self._computed, None)
                if choice is None:
                    return
                self.known.append(choice)
            yield self.known[number]


@lru_cache(maxsize=64)
def _choices(request: PlanRequest, samples: int | None) -> _Choices:
    return _Choices(reach_choices(lambda reach: facts_of(request, reach), samples))


def choices(request: PlanRequest, samples: int | None = None) -> Iterator[ReachChoice]:
    """Yield the choices of a reach, "all" first, with this number of samples, or the best one of each."""
    if samples is not None:
        samples = request.scheme("all", samples).samples_per(request.length)  # refuses more than one per slot
    return iter(_choices(request, samples))


@lru_cache(maxsize=64)
def _best_samples(request: PlanRequest, reach: Hops) -> int:
    """Return the best number of samples for a reach, which the choice of the reach may have computed already."""
    known = (choice.samples for choice in _choices(request, None).known if choice.reach == reach)
    samples = next(known, None)
    return best_samples(facts_of(request, reach)) if samples is None else samples


def predict(request: PlanRequest, reach: Hops | None = None, samples: int | None = None) -> Prediction:
    """Return the prediction; None: the recommended reach, and the best number of samples."""
    return _predict(request, reach, samples, _draws(request))


def fulfils(request: PlanRequest, reach: Hops | None, condition: Callable[[Prediction], bool]) -> bool:
    """Whether the prediction fulfils a condition that, if it holds, holds for smaller deviations, too.

    Where several draws of the shares are averaged, the first one decides alone if it is far from where the condition
    begins to hold: a search asks for many predictions, most of which are.
    """
    draws = _draws(request)
    if draws > 1 and request.levels.series is None:
        rough = _predict(request, reach, None, 1)
        wider, narrower = (
            condition(replace(rough, deviation=tuple(factor * value for value in rough.deviation)))
            for factor in (_FAR, 1.0 / _FAR)
        )
        if wider == narrower:
            return wider
    return condition(_predict(request, reach, None, draws))


@lru_cache(maxsize=64)
def _predict(request: PlanRequest, reach: Hops | None, samples: int | None, number: int) -> Prediction:
    """Return the prediction from this number of draws of the shares."""
    if reach is None:
        choice = best_reach(choices(request, samples))
        reach, samples = choice.reach, choice.samples
    facts = facts_of(request, reach)
    if samples is None:
        samples = _best_samples(request, reach)
    samples = request.scheme(reach, samples).samples_per(request.length)
    draws = [facts, *(facts_of(request, reach, run) for run in range(1, number))]
    deviation = np.mean([_in_parts(one, lambda part: predicted_deviation(part, [samples])[0]) for one in draws], axis=0)
    series = request.levels.series
    on_series = None if series is None else _errors_on_series(draws, samples, series)
    if request.levels.covariances is not None:
        covariances = np.array(request.levels.covariances)
        deviation = with_moving(deviation, np.array(request.levels.process_var), covariances)
    return Prediction(request.levels, request.epsilon, reach, samples, tuple(deviation.tolist()), on_series)


def _in_parts(facts: PublicFacts, compute: Callable[[PublicFacts], Floats]) -> Floats:
    """Return what `compute` returns for all regions, (..., d), computed for a few of them at a time."""
    regions = np.arange(facts.model.regions)
    groups = (regions[first : first + _TOGETHER] for first in range(0, regions.size, _TOGETHER))
    return np.concatenate([compute(replace(facts, selection=group)) for group in groups], axis=-1)


def _errors_on_series(draws: Sequence[PublicFacts], samples: int, series: Series) -> SeriesErrors:
    """Return the expected errors, averaged over the runs of a series and the draws of the shares.

    Run r of a simulation has draw r, so they belong together; what there are more of decides how many are averaged.
    """
    levels = series.levels
    expected_errors = errors_on_staying_run if draws[0].users_stay else errors_on_run
    results = []
    for number in range(max(len(draws), len(levels))):
        run, facts = levels[number % len(levels)], draws[number % len(draws)]
        results.append(_in_parts(facts, lambda part, run=run: expected_errors(part, samples, run)))  # type: ignore[misc]
    relative, absolute, mean_square = np.mean(results, axis=0)
    return SeriesErrors(relative, absolute, mean_square, series.scored_level(draws[0].guarantee))
