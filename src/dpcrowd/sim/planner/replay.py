"""The expected error on a known series of levels: what relay's filter would have done, computed without drawing noise.

The gains of the filter follow from public facts alone, so its error is linear in what it cannot know: the changes of
the series, the spread of the counts, and the noise. With e the error, c = r(t) - A r(t - 1), Y the information of the
prior, S the sum after the records of a slot, and f = Y/S,

    mean      b(t) = f (A b(t - 1) - c(t)) + (1 - f) m(t)
    variance  V(t) = f^2 A^2 V(t - 1) + sum_j w_j^2 Var(z_j)/S^2
    excess    k(t) = f^4 A^4 k(t - 1) + sum_j w_j^4 3 (Var(noise_j)/H_j^2)^2/S^4

m is how far the counts are off on average: a count drawn by the paper's model is cut at 0. k is the fourth cumulant, by
which a mean of a few Laplace draws differs from a normal variable:

    E |e| = E |N(b, V)| (1 - k/(24 (V + b^2)^2))

This answers what one variance Q cannot: a real series has calm and lively times, and a relative error is largest where
the level is low. Records arrive late as in `schemes.prediction`. Where users stay, `replay_staying` does the same with
the gains of a filter that knows it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from dpcrowd.arrays import Floats
from dpcrowd.filters.persistence import remainder
from dpcrowd.privacy import Guarantee
from dpcrowd.schemes.prediction import PublicFacts, arrived_sums, record_noise, record_weights

__all__ = ["BURN_IN", "EXCESS", "MEAN_ABSOLUTE", "ErrorState", "Series", "SeriesErrors", "errors_on_run", "mean_errors"]

BURN_IN = 20
"""Slots at the start that do not count, as in a simulation; at most half of a series."""

MEAN_ABSOLUTE = math.sqrt(2.0 / math.pi)
"""The mean absolute value of a standard normal variable."""

EXCESS = 3.0
"""The excess kurtosis of Laplace noise."""

_RECEIVERS = 12


@dataclass(frozen=True, eq=False)
class Series:
    """Levels slot by slot, (runs, slots, regions): one run for a file, several draws of a synthetic process."""

    levels: Floats

    def merged(self, others: list[int], numbers: list[int]) -> Series:
        """Return the series with some regions merged into one, which comes last."""
        total = self.levels[:, :, numbers].sum(axis=2, keepdims=True)
        return Series(np.concatenate([self.levels[:, :, others], total], axis=2))

    def scored_level(self, guarantee: Guarantee) -> Floats:
        """Return the mean level of the slots in which errors count, one per region."""
        levels = self.levels[:, : guarantee.length] if guarantee.kind == "finite" else self.levels
        return np.asarray(levels[:, min(BURN_IN, levels.shape[1] // 2) :].mean(axis=(0, 1)))

    def in_longer_slots(self, factor: float) -> Series | None:
        """Return the sums over `factor` slots; None if that is not a whole number, or too few slots are left."""
        slots = round(factor)
        number = self.levels.shape[1] // max(slots, 1)
        if abs(factor - slots) > 1e-9 or slots < 1 or number < 2:
            return None
        runs, _, regions = self.levels.shape
        return Series(self.levels[:, : number * slots].reshape(runs, number, slots, regions).sum(axis=2))


@dataclass(frozen=True)
class SeriesErrors:
    """Expected errors on a series, averaged over runs, servers and slots, one per region.

    relative     E |error|/max(truth, 1)
    absolute     E |error|, in people
    mean_square  E error^2
    level        the mean truth of the same slots, in people
    """

    relative: Floats
    absolute: Floats
    mean_square: Floats
    level: Floats


def errors_on_run(facts: PublicFacts, samples: int, levels: Floats) -> Floats:
    """Return relative, absolute and squared errors on one run (slots, regions), (3, regions that `facts` selects).

    A finite guarantee ends the series.
    """
    if facts.guarantee.kind == "finite":
        levels = levels[: facts.guarantee.length]
    rows = len(facts.delays) // facts.blocks
    chosen = np.linspace(0, rows - 1, min(rows, _RECEIVERS)).astype(np.int64)
    few = replace(facts, delays=facts.delays.reshape(facts.blocks, rows, -1)[:, chosen].reshape(-1, len(facts.shares)))
    records = _arriving_records(few, samples, len(levels))
    return _errors(few, records, levels[:, few.regions])


@dataclass(frozen=True)
class _Records:
    """What the records of each slot bring: sums over those that have arrived, (slots, receivers, regions).

    information  sum of w
    noise        sum of w^2 Var(noise)/H^2
    spread       sum of w^2 b, where b times a function of the level is the variance of a count, divided by H^2
    excess       sum of w^4 3 (Var(noise)/H^2)^2
    """

    information: Floats
    noise: Floats
    spread: Floats
    excess: Floats


def _arriving_records(facts: PublicFacts, samples: int, slots: int) -> list[_Records]:
    """Return what has arrived 0, 1, ..., D slots after the slot of a record."""
    weights, shares = record_weights(facts, samples), facts.shares_of_regions
    noise = record_noise(facts, samples) / np.square(shares)
    spread = np.ones_like(shares)
    if facts.observation != "paper":
        spread = np.where(facts.cancelling_regions, 1.0, 1.0 - shares) / shares
    squares = np.square(weights)
    values = (weights, squares * noise, squares * spread, EXCESS * np.square(squares * noise))
    sums = [_of_changing_links(arrived_sums(facts, samples, slots, value), facts.blocks) for value in values]
    records = [_Records(*of_age) for of_age in zip(*sums, strict=True)]
    return [_with_cancellation(facts, of_age) for of_age in records] if facts.cancelling_regions.any() else records


def _with_cancellation(facts: PublicFacts, records: _Records) -> _Records:
    """Return the same, where fresh deviations of all servers sum to 0: see `filters.persistence`."""
    information = records.information
    divisor = remainder(information, np.where(facts.cancelling_regions, facts.expected, 0.0))
    in_common = np.where(facts.cancelling_regions, np.square(information), 0.0)
    return _Records(
        information / divisor,
        records.noise / divisor**2,
        (records.spread - in_common) / divisor**2,
        records.excess / divisor**4,
    )


def _of_changing_links(sums: list[Floats], blocks: int) -> list[Floats]:
    """Return the sums (slots, receivers, regions) if records of slot s travel over the links of block s mod B."""
    slots, rows, regions = sums[0].shape
    slot = np.arange(slots)
    return [values.reshape(slots, blocks, rows // blocks, regions)[slot, slot % blocks] for values in sums]


@dataclass(frozen=True)
class _Crowd:
    """One series, and what is known of its counts: shapes (slots, 1, regions), to be broadcast over receivers.

    change  r(t) - A r(t - 1)
    offset  how far counts are off on average, divided by H
    spread  the variance of a count, divided by H^2 and by b of `_Records`
    """

    change: Floats
    offset: Floats
    spread: Floats

    @classmethod
    def of(cls, facts: PublicFacts, levels: Floats) -> _Crowd:
        change = np.zeros_like(levels)
        change[1:] = levels[1:] - facts.transition * levels[:-1]
        if facts.observation == "paper":
            offset, spread = _cut_at_zero(levels, np.sqrt(facts.paper_var))
        else:
            offset, spread = np.zeros_like(levels), levels
        return cls(change[:, None], offset[:, None], spread[:, None])


def _cut_at_zero(mean: Floats, deviation: Floats) -> tuple[Floats, Floats]:
    """Return by how much max(0, N(mean, deviation^2)) is larger than `mean` on average, and its variance."""
    ratio = mean / deviation
    above, density = _normal_cdf(ratio), np.exp(-0.5 * np.square(ratio)) / math.sqrt(2.0 * math.pi)
    first = mean * above + deviation * density
    second = (np.square(mean) + np.square(deviation)) * above + mean * deviation * density
    return first - mean, np.maximum(second - np.square(first), 0.0)


def _normal_cdf(values: Floats) -> Floats:
    from scipy.special import ndtr

    return np.asarray(ndtr(values))


@dataclass(frozen=True)
class ErrorState:
    """The information of a filter; mean, variance and fourth cumulant of its error. Information 0: no estimate."""

    information: Floats
    mean: Floats
    variance: Floats
    excess: Floats


def _errors(facts: PublicFacts, records: list[_Records], levels: Floats) -> Floats:
    """Return relative, absolute and squared errors (3, regions), averaged over receivers and slots."""
    crowd, deepest = _Crowd.of(facts, levels), len(records) - 1
    slots = len(records[0].information)
    # In slot t, a server has all records up to slot t - D, and of the later ones those that have arrived.
    state = _delayed(_complete_states(facts, records[-1], crowd), deepest)
    for age in range(deepest - 1, -1, -1):
        state = _advance(facts, state, _delayed(records[age], age), _delayed(crowd, age))
    first = min(BURN_IN, slots // 2)
    return mean_errors(_since(state, first), levels[first:, None])


def _complete_states(facts: PublicFacts, records: _Records, crowd: _Crowd) -> ErrorState:
    """Return the state of every slot when all its records have arrived, (slots, receivers, regions).

    That is `_advance`, slot after slot, operation by operation; what does not depend on the slot before is computed
    for all slots at once, which takes a third of the time.
    """
    a, a2, q = facts.transition, np.square(facts.transition), facts.process_var
    prior, total = np.empty_like(records.information), np.empty_like(records.information)
    mean, variance, excess = (np.empty_like(total) for _ in range(3))
    before = np.zeros(total.shape[1:])
    with np.errstate(divide="ignore", invalid="ignore"):
        for slot, information in enumerate(records.information):
            np.divide(1.0, a2 / before + q, out=prior[slot])
            before = np.add(prior[slot], information, out=total[slot])
    kept, scale = _weights(prior, total)
    offset = (1.0 - kept) * crowd.offset
    factor, added = np.square(kept * a), scale * (records.noise + records.spread * crowd.spread)
    factor_excess, added_excess = np.square(factor), np.square(scale) * records.excess
    last_mean = last_variance = last_excess = np.zeros(total.shape[1:])
    for slot in range(len(total)):
        last_mean = np.add(kept[slot] * (a * last_mean - crowd.change[slot]), offset[slot], out=mean[slot])
        last_variance = np.add(factor[slot] * last_variance, added[slot], out=variance[slot])
        last_excess = np.add(factor_excess[slot] * last_excess, added_excess[slot], out=excess[slot])
    return ErrorState(total, mean, variance, excess)


Arrays = TypeVar("Arrays", _Records, _Crowd, ErrorState)


def _since(state: ErrorState, first: int) -> ErrorState:
    return ErrorState(*(array[first:] for array in vars(state).values()))


def _delayed(arrays: Arrays, slots: int) -> Arrays:
    """Return the arrays so that slot t has what slot t - `slots` had; before the first slot all are 0."""
    return type(arrays)(*(_shift(array, slots) for array in vars(arrays).values()))


def _shift(array: Floats, slots: int) -> Floats:
    slots = min(slots, len(array))
    return np.concatenate([np.zeros_like(array[:slots]), array[: len(array) - slots]])


def _advance(facts: PublicFacts, state: ErrorState, records: _Records, crowd: _Crowd) -> ErrorState:
    """Predict the next slot and take its records."""
    a = facts.transition
    with np.errstate(divide="ignore", invalid="ignore"):
        prior = 1.0 / (np.square(a) / state.information + facts.process_var)
    total = prior + records.information
    kept, scale = _weights(prior, total)
    mean = kept * (a * state.mean - crowd.change) + (1.0 - kept) * crowd.offset
    factor = np.square(kept * a)
    variance = factor * state.variance + scale * (records.noise + records.spread * crowd.spread)
    excess = np.square(factor) * state.excess + np.square(scale) * records.excess
    return ErrorState(total, mean, variance, excess)


def _weights(prior: Floats, total: Floats) -> tuple[Floats, Floats]:
    """Return how much of the prediction is kept, and the square by which sums over records are divided."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(total > 0.0, prior / total, 0.0), np.where(total > 0.0, 1.0 / np.square(total), 0.0)


def mean_errors(state: ErrorState, truth: Floats) -> Floats:
    """Return relative, absolute and squared errors (3, d), averaged over slots and receivers that have an estimate.

    state  of slots, receivers and regions, (slots, n, d)
    truth  (slots, 1, d)
    """
    known = state.information > 0.0
    mean, variance = state.mean, state.variance
    deviation = np.sqrt(variance)
    square = variance + np.square(mean)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(deviation > 0.0, mean / deviation, 0.0)
        size = deviation * MEAN_ABSOLUTE * np.exp(-0.5 * np.square(ratio)) + mean * (2.0 * _normal_cdf(ratio) - 1.0)
        size = np.where(deviation > 0.0, size, np.abs(mean))
        size = size * (1.0 - np.where(square > 0.0, state.excess / np.square(square), 0.0) / 24.0)
    number = np.maximum(known.sum(axis=(0, 1)), 1)

    def average(values: Floats) -> Floats:
        return np.asarray(np.where(known, values, 0.0).sum(axis=(0, 1)) / number)

    return np.stack([average(size / np.maximum(truth, 1.0)), average(size), average(square)])
