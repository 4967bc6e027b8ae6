"""The prediction for a request: the covariance recursion of `schemes.prediction`, on the real schedule and distances.

The recursion gives standard deviations. What people ask for is derived from them:

    interval  level +- 1.96 sd
    error     sqrt(2/pi) sd E[1/r]: the mean of |error|/r if errors are Gaussian, which is what ARE measures
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from dpcrowd.arrays import Floats, Ints
from dpcrowd.privacy import Guarantee
from dpcrowd.schemes.base import half_width
from dpcrowd.schemes.prediction import PublicFacts, best_samples, predicted_deviation
from dpcrowd.schemes.relay import Hops
from dpcrowd.sim.config import SimulationConfig
from dpcrowd.sim.planner.moving import with_moving
from dpcrowd.sim.planner.request import Levels, PlanRequest
from dpcrowd.sim.planning import ReachChoice, best_reach, public_facts, reach_choices

__all__ = ["MEAN_ABSOLUTE", "Prediction", "choices", "config_of", "facts_of", "guarantee_of", "predict"]

MEAN_ABSOLUTE = math.sqrt(2.0 / math.pi)
"""The mean absolute value of a standard normal variable."""

_TOGETHER = 12  # regions per pass of the recursion


@dataclass(frozen=True)
class Prediction:
    """What a network reaches in the steady state, averaged over servers and slots.

    deviation  standard deviations of the estimates, one per region of `levels`
    """

    levels: Levels
    epsilon: float
    reach: Hops
    samples: int
    deviation: tuple[float, ...]

    @property
    def half_width(self) -> tuple[float, ...]:
        """Half the width of each region's 95% interval."""
        return tuple(half_width(np.square(self.deviation)).tolist())

    @property
    def errors(self) -> tuple[float, ...]:
        """The expected relative error of each region."""
        pairs = zip(self.deviation, self.levels.inverse_level, strict=True)
        return tuple(MEAN_ABSOLUTE * deviation * inverse for deviation, inverse in pairs)

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
def _facts_at_one(request: PlanRequest, reach: Hops) -> PublicFacts:
    return public_facts(config_of(request), request.scheme(reach), guarantee_of(request))


def facts_of(request: PlanRequest, reach: Hops) -> PublicFacts:
    """Return the public facts of a request; graph, distances and shares are computed once for all values of epsilon."""
    return replace(_facts_at_one(replace(request, epsilon=1.0), reach), guarantee=guarantee_of(request))


def choices(request: PlanRequest, samples: int | None = None) -> Iterator[ReachChoice]:
    """Yield the choices of a reach, "all" first, with this number of samples, or the best one of each."""
    if samples is not None:
        samples = request.scheme("all", samples).samples_per(request.length)  # refuses more than one per slot
    return reach_choices(lambda reach: facts_of(request, reach), samples)


def predict(request: PlanRequest, reach: Hops | None = None, samples: int | None = None) -> Prediction:
    """Return the prediction; None: the recommended reach, and the best number of samples."""
    if reach is None:
        choice = best_reach(choices(request, samples))
        reach, samples = choice.reach, choice.samples
    facts = facts_of(request, reach)
    samples = best_samples(facts) if samples is None else request.scheme(reach, samples).samples_per(request.length)
    regions = np.arange(len(request.levels))
    parts = [
        _deviation(facts, regions[first : first + _TOGETHER], samples) for first in range(0, regions.size, _TOGETHER)
    ]
    deviation = np.concatenate(parts)
    if request.levels.covariances is not None:
        covariances = np.array(request.levels.covariances)
        deviation = with_moving(deviation, np.array(request.levels.process_var), covariances)
    return Prediction(request.levels, request.epsilon, reach, samples, tuple(deviation.tolist()))


def _deviation(facts: PublicFacts, regions: Ints, samples: int) -> Floats:
    return np.asarray(predicted_deviation(replace(facts, selection=regions), [samples])[0])
