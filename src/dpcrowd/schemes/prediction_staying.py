"""The accuracy of relay where users stay: variances and covariances with deviations, from public facts alone.

While its users stay, so does the deviation of a server's count from H r, and two records of one server have less to say
than two fresh ones. The gains of the filter that knows this (`filters.persistence`) depend on schedule, shares, delays,
Q and the level of the crowd, and not on what was measured, so its variance P and what its errors have in common with
each deviation, x, can be followed beforehand with the same function:

    predict   P <- a^2 P + Q          x <- a (1 - turnover) x
    records   P, x <- `persistent_gain` of the records that have arrived

In slot t a server has all records up to slot t - D, and of the later ones those that have arrived: the prediction goes
back to the state of slot t - D and takes those.

x has one number per server that is heard, receiver and region, so a few receivers stand for all where there are many.
Where links change, a few draws of them and of the receiver's place stand for all (`ArrivingRecords`).
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from dpcrowd.arrays import Bools, Floats, Ints
from dpcrowd.filters.persistence import PersistentRecords, are_partitioned, persistent_gain
from dpcrowd.sampling.schedule import samples_due

if TYPE_CHECKING:
    from dpcrowd.schemes.prediction import PublicFacts

__all__ = ["ArrivingRecords", "StayingState", "persistent_deviation"]

_RECEIVERS, _FEWEST_RECEIVERS, _CELLS = 6, 2, 1 << 14
_EVALUATED = 16  # slots of a pass in which late records are followed
_LONGEST_MEMORY = 512  # slots that lead to the steady state, if a pass has fewer
_STEADY = 0.02  # change of a variance from one pass to the next in what is called a steady state


@dataclass(frozen=True)
class StayingState:
    """What filters believe after a slot: variances (n, d), infinite without an estimate, and x (m, n, d)."""

    var: Floats
    cross: Floats


@dataclass(frozen=True)
class ArrivingRecords:
    """The records that a few receivers get: which, when, and how noisy they are.

    facts      the public facts; users stay, so its turnover is below 1
    samples    per window or horizon
    noise_var  the variance that the filter takes for that of the noise of a record
    """

    facts: PublicFacts
    samples: int
    noise_var: float

    @cached_property
    def _delays(self) -> Ints:
        """Delays of all servers' records, (blocks, rows, m): one row where everybody has the same records."""
        facts = self.facts
        delays = facts.delays
        if facts.blocks == 1 and (delays == delays[0]).all():
            return delays[None, :1]
        return delays.reshape(facts.blocks, -1, delays.shape[1])

    @cached_property
    def _rows(self) -> Ints:
        """The rows of the receivers that stand for all, (n,)."""
        rows, cells = self._delays.shape[1], self._delays.shape[2] * len(self.facts.regions)
        number = min(rows, max(_FEWEST_RECEIVERS, min(_RECEIVERS, _CELLS // cells)))
        return np.linspace(0, rows - 1, number).astype(np.int64)

    @cached_property
    def _always(self) -> Bools:
        """The servers whose records a receiver has in their own slot, whichever links were drawn, (n, m)."""
        return np.asarray((self._delays[:, self._rows] == 0).all(axis=0))

    @cached_property
    def _origins(self) -> Ints:
        """The servers of which somebody has records; the deviations of others make no difference."""
        return np.flatnonzero((self._delays >= 0).any(axis=(0, 1)))

    def _delays_of(self, slot: int, origins: Ints) -> Ints:
        """Return how late the records of some servers are at the receivers, (n, origins).

        Where links change, a few slots have been drawn, and no receiver has the same neighbours for long: it takes the
        place of another one in each slot.
        """
        blocks, rows, _ = self._delays.shape
        if blocks == 1:
            return np.asarray(self._delays[0][self._rows][:, origins])
        delays = self._delays[slot % blocks][(self._rows + slot) % rows][:, origins]
        return np.where(self._always[:, origins], 0, delays)

    @cached_property
    def _phases(self) -> Ints:
        return np.asarray(self.facts.phases(self.samples)[self._origins])

    @cached_property
    def deepest(self) -> int:
        """The longest delay D, in slots."""
        return int(self._delays.max(initial=0))

    @cached_property
    def shares(self) -> Floats:
        """Shares of the servers that are heard, (m, 1, 1) or (m, 1, d)."""
        return self.facts.shares_of_regions[self._origins][:, None]

    @cached_property
    def partition(self) -> Bools:
        """Whether the users of a region are divided among all servers, (1, 1) or (1, d)."""
        return are_partitioned(self.facts.shares_of_regions[None])

    @property
    def shape(self) -> tuple[int, int, int]:
        """The numbers of servers that are heard, of receivers and of regions."""
        return len(self._origins), len(self._rows), len(self.facts.regions)

    def start(self) -> StayingState:
        """Return what filters know before the first record: nothing, or what an expected course tells."""
        facts = self.facts
        shape = self.shape
        var = np.full(shape[1:], np.inf)
        if facts.model.course is not None:
            var = np.broadcast_to(facts.process_var / (1.0 - np.square(facts.transition)), shape[1:])
        return StayingState(var, np.zeros(shape))

    def predicted(self, state: StayingState) -> StayingState:
        """Return the priors of the next slot."""
        a = self.facts.transition
        return StayingState(
            np.square(a) * state.var + self.facts.process_var, (a * (1.0 - self.facts.turnover)) * state.cross
        )

    def of_slot(self, slot: int, age: int, people: Floats) -> PersistentRecords | None:
        """Return the records of a slot that have arrived `age` slots later, without their values; None: none.

        people  (1, d) the level of the crowd in that slot
        """
        guarantee = self.facts.guarantee
        due = np.flatnonzero(samples_due(slot, self.samples, guarantee.length, self._phases))
        delays = self._delays_of(slot, self._origins[due])
        arrived = (delays >= 0) & (delays <= age)
        if not arrived.any():
            return None
        noise_var = np.where(arrived.T[..., None], self.noise_var, np.inf)
        return PersistentRecords(due, np.zeros(()), noise_var, self.shares, people, self.partition)

    def followed(self, state: StayingState, slot: int, age: int, people: Floats) -> StayingState:
        """Return the state after a slot, with its records that have arrived `age` slots later."""
        state = self.predicted(state)
        records = self.of_slot(slot, age, people)
        if records is None:
            return state
        gain = persistent_gain(state.var, state.cross, records)
        return StayingState(gain.var, gain.cross)


def persistent_deviation(facts: PublicFacts, samples: int, noise_var: float, slots: int) -> Floats:
    """Return standard deviations of the estimates in the steady state, averaged over servers and slots, (regions,).

    noise_var  the variance of the noise of a record, as the filter takes it
    slots      of one pass, after which the schedule repeats
    """
    records = ArrivingRecords(facts, samples, noise_var)
    people, deepest = facts.expected[None], records.deepest
    fewest = max(deepest, min(math.ceil(3.0 / facts.turnover), _LONGEST_MEMORY))
    number = slots if deepest == 0 else min(slots, _EVALUATED)
    evaluated = {slots * place // number for place in range(number)}
    state = records.start()
    states: deque[StayingState] = deque([state], maxlen=deepest + 1)
    first, before = 0, state.var
    while first == 0 or not (first >= fewest and (first >= _LONGEST_MEMORY or _close(before, state.var))):
        before = state.var
        for slot in range(first, first + slots):
            state = records.followed(state, slot, deepest, people)
            states.append(state)
        first += slots
    deviations = []
    for slot in range(first, first + slots):
        state = records.followed(state, slot, deepest, people)
        states.append(state)
        if slot - first in evaluated:
            current = states[0]
            for age in range(deepest - 1, -1, -1):
                current = records.followed(current, slot - age, age, people)
            deviations.append(np.sqrt(current.var).mean(axis=0))
    return np.asarray(np.mean(deviations, axis=0))


def _close(before: Floats, after: Floats) -> bool:
    """Whether a pass has changed no variance by more than a part that nobody would notice."""
    known = np.isfinite(before) & np.isfinite(after)
    changes = np.abs(np.where(known, before, 0.0) - np.where(known, after, 0.0))
    return bool((known | np.isinf(after)).all() and (changes <= _STEADY * after).all())
