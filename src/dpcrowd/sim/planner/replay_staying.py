"""The expected error on a known series of levels where users stay: `replay` with the gains of `filters.persistence`.

The filter follows P and x at the levels of the series (`schemes.prediction_staying`), which gives the gains k of a
slot's records and the part phi = 1 - k H of the prior that remains. The error e is linear in what the filter cannot
know. With c = r(t) - A r(t - 1), C = Cov(delta) and the noise N of a record,

    mean      b <- phi (A b - c)
    variance  V <- phi^2 A^2 V + 2 phi k y + k C k + N k^2      y = Cov(e, delta), predicted: A (1 - turnover) y
              y <- phi y + C k
    excess    as in `replay`, from the noise

P and x are what the filter believes, V and y what is true on this series: they differ where it changes more, or less,
than Q says.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from dpcrowd.arrays import Floats
from dpcrowd.filters.observation import ROUNDING
from dpcrowd.filters.persistence import PersistentRecords, persistent_gain
from dpcrowd.schemes.prediction import PublicFacts, record_noise
from dpcrowd.schemes.prediction_staying import ArrivingRecords, StayingState
from dpcrowd.sim.planner.replay import BURN_IN, EXCESS, ErrorState, mean_errors

__all__ = ["errors_on_staying_run"]

_EVALUATED = 200  # slots of a series in which late records are followed


@dataclass(frozen=True)
class _State:
    """What filters believe, and the errors that they have: mean, variance and fourth cumulant (n, d), y (m, n, d)."""

    belief: StayingState
    mean: Floats
    variance: Floats
    excess: Floats
    common: Floats


def errors_on_staying_run(facts: PublicFacts, samples: int, levels: Floats) -> Floats:
    """Return relative, absolute and squared errors on one run (slots, regions), (3, regions that `facts` selects).

    A finite guarantee ends the series.
    """
    if facts.guarantee.kind == "finite":
        levels = levels[: facts.guarantee.length]
    levels = levels[:, facts.regions]
    noise = record_noise(facts, samples)
    records = ArrivingRecords(facts, (samples,), (facts.alpha * noise,))
    series = _Followed(records, noise, levels)
    deepest, slots = records.deepest, len(levels)
    first = min(BURN_IN, slots // 2)
    number = slots - first if deepest == 0 else min(slots - first, _EVALUATED)
    evaluated = [first + (slots - first) * place // number for place in range(number)]
    state = series.start()
    states: deque[_State] = deque([state], maxlen=deepest + 1)
    results = []
    for slot in range(slots):
        state = series.followed(state, slot, deepest)
        states.append(state)
        if slot in evaluated:
            current = states[0]
            for age in range(min(deepest - 1, slot), -1, -1):
                current = series.followed(current, slot - age, age)
            results.append(current)
    parts = ("mean", "variance", "excess")
    information = 1.0 / np.array([current.belief.var for current in results])
    moments = (np.array([getattr(current, name) for current in results]) for name in parts)
    return mean_errors(ErrorState(information, *moments), levels[evaluated][:, None])


@dataclass(frozen=True)
class _Followed:
    """One series, slot by slot.

    noise   the variance of the noise of a record
    levels  (slots, d)
    """

    records: ArrivingRecords
    noise: float
    levels: Floats

    def start(self) -> _State:
        shape = self.records.shape
        zeros = np.zeros(shape[1:])
        return _State(self.records.start(), zeros, zeros, zeros, np.zeros(shape))

    def followed(self, state: _State, slot: int, age: int) -> _State:
        """Return the state after a slot, with its records that have arrived `age` slots later."""
        facts, level = self.records.facts, self.levels[slot][None]
        a = facts.transition
        change = level - a * self.levels[slot - 1] if slot else np.zeros_like(level)
        prior = _State(
            self.records.predicted(state.belief),
            a * state.mean - change,
            np.square(a) * state.variance,
            np.square(np.square(a)) * state.excess,
            (a * (1.0 - facts.turnover)) * state.common,
        )
        records = self.records.of_slot(slot, age, np.maximum(level, 1.0))
        return prior if records is None else self._fused(prior, records, level)

    def _fused(self, prior: _State, records: PersistentRecords, level: Floats) -> _State:
        gain = persistent_gain(prior.belief.var, prior.belief.cross, records)
        share, partition = records.shares, records.partition
        phi, k, origins = gain.phi, gain.weights, records.origins
        spread = np.where(partition, share * level, np.maximum(share * (1.0 - share) * level, ROUNDING))[origins]
        crowd = np.where(partition, level, 0.0)
        squares = np.square(k)
        variance = np.square(phi) * prior.variance + (squares * (self.noise + spread)).sum(axis=0)
        variance += 2.0 * phi * (k * prior.common[origins]).sum(axis=0) - crowd * np.square(1.0 - phi)
        common = phi * prior.common - share * (crowd * (1.0 - phi))
        common[origins] += spread * k
        excess = np.square(np.square(phi)) * prior.excess + EXCESS * np.square(squares * self.noise).sum(axis=0)
        return _State(StayingState(gain.var, gain.cross), phi * prior.mean, np.maximum(variance, 0.0), excess, common)
