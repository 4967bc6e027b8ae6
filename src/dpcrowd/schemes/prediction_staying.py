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

Several numbers of samples are followed side by side, as if each had receivers of its own: the arrays are small, so most
of the time would otherwise go into calling functions on them.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from dpcrowd.arrays import Bools, Floats, Ints
from dpcrowd.filters.persistence import (
    LEAST_PART,
    PersistentRecords,
    are_partitioned,
    deviation_spread,
    persistent_gain,
)
from dpcrowd.kernels.engine import compiled
from dpcrowd.kernels.staying import follow_staying
from dpcrowd.sampling.schedule import samples_due

if TYPE_CHECKING:
    from dpcrowd.schemes.prediction import PublicFacts

__all__ = ["ArrivingRecords", "StayingState", "persistent_deviation"]

_RECEIVERS, _FEWEST_RECEIVERS, _CELLS = 6, 2, 1 << 14
_CELLS_TOGETHER = 1 << 15  # of the numbers of samples that are followed side by side
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
    samples    per window or horizon: one or several numbers, each with receivers of its own, one after the other
    noise_var  the variance that the filter takes for that of the noise of a record, for each number of samples
    """

    facts: PublicFacts
    samples: tuple[int, ...]
    noise_var: tuple[float, ...]
    _due: dict[int, tuple[Ints, Floats]] = field(default_factory=dict)
    _late: dict[tuple[int, int], Ints] = field(default_factory=dict)

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

    def _delays_in(self, slot: int) -> Ints:
        """Return how late the records of the servers that are heard are at the receivers, (n, m).

        Where links change, a few slots have been drawn, and no receiver has the same neighbours for long: it takes the
        place of another one in each slot.
        """
        blocks, rows, _ = self._delays.shape
        key = (slot % blocks, slot % rows) if blocks > 1 else (0, 0)
        if key not in self._late:
            delays = self._delays[key[0]][(self._rows + key[1]) % rows]
            if blocks > 1:
                delays = np.where(self._always, 0, delays)
            self._late[key] = np.ascontiguousarray(delays[:, self._origins])
        return self._late[key]

    @cached_property
    def _phases(self) -> Ints:
        """The offsets of the schedules of the servers that are heard, (numbers of samples, m)."""
        return np.array([self.facts.phases(number)[self._origins] for number in self.samples])

    def _due_in(self, slot: int) -> tuple[Ints, Floats]:
        """Return which servers sample in a slot, (k,), and the variances of their noise, (k, numbers of samples).

        The variance is infinite where a server does not sample with that number. Schedules repeat after the window.
        """
        length = self.facts.guarantee.length
        place = slot % length
        if place not in self._due:
            samples = np.array(self.samples)[:, None]
            due = samples_due(place, samples, length, self._phases)
            origins = np.flatnonzero(due.any(axis=0))
            variances = np.where(due[:, origins], np.array(self.noise_var)[:, None], np.inf)
            self._due[place] = origins, np.ascontiguousarray(variances.T)
        return self._due[place]

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

    @cached_property
    def shape(self) -> tuple[int, int, int]:
        """The numbers of servers that are heard, of receivers (of all numbers of samples) and of regions."""
        return len(self._origins), len(self.samples) * len(self._rows), len(self.facts.regions)

    @cached_property
    def _constants(self) -> tuple[Floats, Floats, Floats, Floats, Floats, Floats]:
        """What the compiled loop needs in every slot: one column per receiver and region."""
        facts, (servers, receivers, regions) = self.facts, self.shape
        people, a = facts.expected[None], facts.transition

        def columns(values: Floats, *rows: int) -> Floats:
            return np.ascontiguousarray(np.broadcast_to(values, (*rows, receivers, regions))).reshape(*rows, -1)

        return (
            columns(np.square(a)),
            columns(facts.process_var),
            columns(a * (1.0 - facts.turnover)),
            columns(self.shares, servers),
            columns(deviation_spread(self.shares, people, self.partition), servers),
            columns(np.where(self.partition, people, 0.0)),
        )

    def start(self) -> StayingState:
        """Return what filters know before the first record: nothing, or what an expected course tells."""
        facts = self.facts
        shape = self.shape
        var = np.full(shape[1:], np.inf)
        if facts.model.course is not None:
            var[:] = facts.process_var / (1.0 - np.square(facts.transition))
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
        due, variances = self._due_in(slot)
        delays = self._delays_in(slot)[:, due]
        arrived = (delays >= 0) & (delays <= age)
        if not arrived.any():
            return None
        noise_var = np.where(arrived.T[:, None], variances[:, :, None], np.inf).reshape(len(due), -1, 1)
        return PersistentRecords(due, np.zeros(()), noise_var, self.shares, people, self.partition)

    def only(self, numbers: Sequence[int]) -> ArrivingRecords:
        """Return the records for some of the numbers of samples, by their places."""
        return ArrivingRecords(
            self.facts,
            tuple(self.samples[number] for number in numbers),
            tuple(self.noise_var[number] for number in numbers),
        )

    def followed(self, state: StayingState, slot: int, age: int) -> StayingState:
        """Return the state after a slot, with its records that have arrived `age` slots later.

        The crowd is at its expected level. The compiled loop, where there is one, gives the same bits.
        """
        if (loop := compiled(follow_staying, self.facts.engine)) is not None:
            columns = state.var.size
            var, cross = np.empty(columns), np.empty((len(state.cross), columns))
            before = state.var.reshape(-1), state.cross.reshape(cross.shape)
            origins, noise = self._due_in(slot)
            delays = self._delays_in(slot)
            loop(*before, *self._constants, origins, noise, delays, age, LEAST_PART, var, cross)
            return StayingState(var.reshape(state.var.shape), cross.reshape(state.cross.shape))
        state = self.predicted(state)
        records = self.of_slot(slot, age, self.facts.expected[None])
        if records is None:
            return state
        gain = persistent_gain(state.var, state.cross, records)
        return StayingState(gain.var, gain.cross)


def persistent_deviation(facts: PublicFacts, samples: Sequence[int], noise_var: Sequence[float], slots: int) -> Floats:
    """Return standard deviations of the estimates in the steady state, averaged over servers and slots.

    samples    numbers of samples
    noise_var  the variance of the noise of a record, as the filter takes it, for each of them
    slots      of one pass, after which the schedule repeats

    The result is an array (numbers of samples, regions). What is returned for a number does not depend on the others.
    """
    receivers = ArrivingRecords(facts, (1,), (1.0,)).shape
    together = max(1, _CELLS_TOGETHER // math.prod(receivers))
    parts = [
        _deviations(facts, samples[first : first + together], noise_var[first : first + together], slots)
        for first in range(0, len(samples), together)
    ]
    return np.concatenate(parts)


def _deviations(facts: PublicFacts, samples: Sequence[int], noise_var: Sequence[float], slots: int) -> Floats:
    """Return what `persistent_deviation` returns, for numbers of samples that are followed side by side.

    Passes lead to the steady state, and one more pass is averaged. A number of samples leaves after its own.
    """
    records = ArrivingRecords(facts, tuple(samples), tuple(noise_var))
    deepest = records.deepest
    fewest = max(deepest, min(math.ceil(3.0 / facts.turnover), _LONGEST_MEMORY))
    number = slots if deepest == 0 else min(slots, _EVALUATED)
    evaluated = {slots * place // number for place in range(number)}
    results = np.empty((len(samples), len(facts.regions)))
    active, is_steady = np.arange(len(samples)), np.zeros(len(samples), dtype=np.bool_)
    states: deque[StayingState] = deque([records.start()], maxlen=deepest + 1)
    first = 0
    while True:
        before, deviations = states[-1].var, []
        for slot in range(first, first + slots):
            states.append(records.followed(states[-1], slot, deepest))
            if is_steady.any() and slot - first in evaluated:
                current = states[0]
                for age in range(deepest - 1, -1, -1):
                    current = records.followed(current, slot - age, age)
                deviations.append(_by_number(np.sqrt(current.var), len(active)).mean(axis=1))
        first += slots
        if is_steady.any():
            results[active[is_steady]] = np.mean(deviations, axis=0)[is_steady]
            remaining = np.flatnonzero(~is_steady)
            if not remaining.size:
                break
            before, states = _of_numbers(before, remaining, len(active)), _restrict(states, remaining, len(active))
            active, records = active[remaining], records.only(remaining.tolist())
        pairs = zip(_by_number(before, len(active)), _by_number(states[-1].var, len(active)), strict=True)
        enough = first >= fewest
        is_steady = np.array([enough and (first >= _LONGEST_MEMORY or _close(*pair)) for pair in pairs], dtype=np.bool_)
    return results


def _by_number(values: Floats, numbers: int) -> Floats:
    """Return values of receivers (n, d) with an axis of their numbers of samples, (numbers, receivers, d)."""
    return values.reshape(numbers, -1, values.shape[-1])


def _of_numbers(values: Floats, chosen: Ints, numbers: int) -> Floats:
    """Return the values (..., n, d) of the receivers of some numbers of samples."""
    by_number = values.reshape(*values.shape[:-2], numbers, -1, values.shape[-1])[..., chosen, :, :]
    return np.ascontiguousarray(by_number).reshape(*values.shape[:-2], -1, values.shape[-1])


def _restrict(states: deque[StayingState], chosen: Ints, numbers: int) -> deque[StayingState]:
    """Return the states of the receivers of some numbers of samples."""
    parts = (
        StayingState(_of_numbers(state.var, chosen, numbers), _of_numbers(state.cross, chosen, numbers))
        for state in states
    )
    return deque(parts, maxlen=states.maxlen)


def _close(before: Floats, after: Floats) -> bool:
    """Whether a pass has changed no variance by more than a part that nobody would notice."""
    known = np.isfinite(before) & np.isfinite(after)
    changes = np.abs(np.where(known, before, 0.0) - np.where(known, after, 0.0))
    return bool((known | np.isinf(after)).all() and (changes <= _STEADY * after).all())
