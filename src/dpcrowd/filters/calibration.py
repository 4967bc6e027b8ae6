"""Whether a filter's variances are right: normalised innovations of other servers' measurements, and their statistics.

A measurement in information form, y = H z / R and Y = H^2 / R, has the innovation y - Y m against a prior with mean m
and variance P that does not contain it. The innovation has the variance Y + Y P Y, so

    n = (y - Y m) / sqrt(Y + Y P Y)                     the same as (z - H m) / sqrt(H^2 P + R)

has mean square 1, and 95% of its values are within 1.96, if the variances are right (94% where Laplace noise
dominates). With full matrices, n_k is divided by the square root of the k-th entry of the diagonal. All of it is
public: priors come from noisy values that were paid for.

That holds if the errors of measurement and prior are independent. `schemes.innovations` says what is in its place where
they are not: users who stay, and shares that are learned.

The sum of several regions is one measurement, with one innovation. It counts in the total and in none of its regions:
nobody knows which of them it is about.

The window has the last 100 slots. Where these hold fewer than 200 values, it goes back as far as it takes to hold them,
but never further than 10,000 slots: what is older says nothing of today's crowd.

Values of one slot share a prior and may all be wrong together, so fewer than 200 of them say something only if they are
from enough slots. With N values in total, at most M in one slot, and a part x of them outside the interval where at
most q are expected, Chernoff's bound for the slots, which are independent if the variances are right, is

    P(as many outside) <= exp(-N/M (x log(x/q) + (1-x) log((1-x)/(1-q))))

whatever the correlation within a slot: it counts N/M slots of M values each (`Calibration.chance_of_coverage`).

Slots are not independent where users stay: the part s of a server's deviation is left at its next sample, and if one
of its values is outside, so are probably the next ones. Squares of normal values have the correlation s^(2k) after k
samples, so that a sum of many has the variance of a sum of fewer independent ones, by the factor

    D = 1 + 2 (s^2 + s^4 + ...) = (1 + s^2) / (1 - s^2)                                          (`dependence_of`)

`ENOUGH` and N/M count N/D values then. A region has few values, so its evidence is taken over a longer time than the
total: 100 D slots, of which only sums over blocks of D slots are kept (`RegionEvidence`).
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpcrowd.arrays import Bools, Floats, Ints

__all__ = [
    "BOUND",
    "ENOUGH",
    "LONGEST",
    "WINDOW",
    "Calibration",
    "CalibrationWindow",
    "RegionEvidence",
    "dependence_of",
    "normalised",
    "normalised_innovations",
]

BOUND = 1.96
"""Standard deviations that the interval of 95% reaches to either side."""

WINDOW = 100
"""Number of slots over which a running calibration is taken, if they hold enough values."""

ENOUGH = 200
"""Number of innovations for which the window becomes longer, and below which they say too little."""

LONGEST = 10_000
"""Number of slots that the window has at most."""

_LARGEST = 10.0
"""Larger innovations count as this in a mean square, so that one absurd value does not rule it: its square is half of
`ENOUGH`, so that among as few values as that it adds 0.5, and a mean square of 1 stays below the 1.6 that stands for
several. If intervals are right, no value is as large: Laplace noise exceeds ten standard deviations once in 1.4
million."""


def normalised_innovations(info_vec: Floats, info_mat: Floats, prior: Floats, prior_var: Floats) -> Floats:
    """Return n of each measurement and region, (M, d); NaN where nothing was measured or the prior is unknown.

    info_vec   (M, d) y
    info_mat   (M, d), or (M, d, d) with full matrices: Y
    prior      (d,) or (M, d)
    prior_var  (d,) or (M, d), infinite where the prior is unknown; with full matrices (d, d) or (M, d, d)

    >>> normalised_innovations(np.array([[3.0]]), np.array([[1.0]]), np.array([1.0]), np.array([3.0]))
    array([[1.]])
    """
    with np.errstate(all="ignore"):
        if info_mat.ndim == 2:
            innovation = info_vec - info_mat * prior
            variance = info_mat + info_mat * info_mat * prior_var
        else:
            innovation = info_vec - np.einsum("mjk,...k->mj", info_mat, prior)
            full = info_mat + info_mat @ prior_var @ info_mat
            variance = np.einsum("mkk->mk", full)
    return normalised(innovation, variance)


def normalised(innovation: Floats, variance: Floats) -> Floats:
    """Return innovations in units of their standard deviations; NaN where the variance is infinite or 0."""
    with np.errstate(all="ignore"):
        values = innovation / np.sqrt(variance)
        usable = np.isfinite(variance) & (variance > 0.0) & ~np.isnan(values)
        return np.where(usable, values, np.nan)


def dependence_of(kept: float) -> float:
    """Return D, the number of a server's successive values that say as much as one that is independent.

    kept  s, the part of the server's deviation that is left at its next sample

    >>> dependence_of(0.0), round(dependence_of(0.95), 1)
    (1.0, 19.5)
    """
    return (1.0 + kept * kept) / max(1.0 - kept * kept, 2.0 / LONGEST)


@dataclass(frozen=True)
class RegionEvidence:
    """What there is of each region by itself, over at least the slots of the window; arrays (d,).

    values    number of innovations, without those of sums
    coverage  share of them within `BOUND`; NaN where there are none
    fullest   number of innovations in the slot that has most of them
    since     the first slot that they may be of
    """

    values: Ints
    coverage: Floats
    fullest: Ints
    since: int = 0


@dataclass(frozen=True)
class Calibration:
    """Statistics of normalised innovations, in total and by region; NaN where there are none.

    since        first slot from which on innovations were counted; None: none yet
    slots        number of slots of the window in which a measurement of another server was fused
    records      number of measurements, each of some or all regions
    values       (d,) number of innovations per region, without those of sums
    sums         number of innovations that are of the sum of several regions
    window       number of slots that it looks back
    fullest      number of innovations of the slot that has most of them
    enough_at    slot at which there will be enough values if they come as fast as so far; infinite if never, since
                 the window does not hold as many; None: there are enough, or none yet
    mean_square  (d,) mean of n^2, in which n is at most `_LARGEST`
    coverage     (d,) share of innovations within `BOUND`
    evidence     what there is of each region by itself; None: unknown
    dependence   D, number of a server's successive values that say as much as one
    needed       number of innovations that are enough

    total_...    the same over all regions and sums
    """

    since: int | None
    slots: int
    records: int
    values: Ints
    mean_square: Floats
    coverage: Floats
    total_mean_square: float
    total_coverage: float
    sums: int = 0
    window: int = WINDOW
    fullest: int = 0
    enough_at: float | None = None
    evidence: RegionEvidence | None = None
    dependence: float = 1.0
    needed: int = ENOUGH

    @property
    def total_values(self) -> int:
        """Number of all innovations."""
        return int(self.values.sum()) + self.sums

    def chance_of_coverage(self, expected: float) -> float:
        """Return an upper bound on the probability of a coverage this low, if it is `expected` or more.

        expected  above 0 and below 1

        >>> window = CalibrationWindow(regions=1)
        >>> for slot in range(3):
        ...     window.add(slot, np.array([[5.0]]))
        >>> round(window.summary().chance_of_coverage(0.9), 6)
        0.001
        """
        return _chance(self.total_coverage, self.total_values, self.fullest * self.dependence, expected)

    def narrow_regions(self, expected: float, chance: float) -> list[int]:
        """Return the regions in which so few values are inside that it would be rarer than `chance` in any of them."""
        if (of := self.evidence) is None:
            return []
        each = chance / max(len(of.values), 1)
        alike = of.fullest * self.dependence
        facts = zip(of.coverage.tolist(), of.values.tolist(), alike.tolist(), strict=True)
        return [place for place, region in enumerate(facts) if _chance(*region, expected) < each]


def _chance(inside: float, values: int, alike: float, expected: float) -> float:
    """Return an upper bound on the probability that so few of these values are inside, if `expected` should be.

    alike  how many of them may be right or wrong together
    """
    if not values or inside >= expected:
        return 1.0
    terms = ((inside, expected), (1.0 - inside, 1.0 - expected))
    divergence = sum(part * math.log(part / usual) for part, usual in terms if part > 0.0)
    return math.exp(-divergence * values / alike)


@dataclass(frozen=True)
class _SlotSums:
    """What a slot adds: by region (d,), and by sums of several regions (joint)."""

    slot: int
    records: int
    values: Ints
    squares: Floats
    inside: NDArray[np.int64]
    joint_values: int
    joint_squares: float
    joint_inside: int

    @property
    def number(self) -> int:
        return int(self.values.sum()) + self.joint_values


@dataclass
class _Block:
    """What slots that follow one another add to each region; arrays (d,) that are replaced, and never changed."""

    number: int
    values: Ints
    inside: NDArray[np.int64]
    fullest: Ints


class _RegionBlocks:
    """Sums per region over blocks of D slots: as many blocks as the window has slots, and at most `longest` slots.

    With D = 1 they are those of the slots.
    """

    def __init__(self, regions: int, dependence: float, length: int, longest: int) -> None:
        self._size = math.ceil(dependence)
        self._slots = min(length * self._size, longest)
        self._nothing = np.zeros(regions, dtype=np.int64)
        self._blocks: deque[_Block] = deque()

    def add(self, sums: _SlotSums) -> None:
        number = sums.slot // self._size
        self._forget_after(number)
        if self._blocks and self._blocks[-1].number == number:
            block = self._blocks[-1]
            block.values, block.inside = block.values + sums.values, block.inside + sums.inside
            block.fullest = np.maximum(block.fullest, sums.values)
        else:
            self._blocks.append(_Block(number, sums.values, sums.inside, sums.values))

    def remove(self, sums: _SlotSums) -> None:
        """Take back what the last slot added; `fullest` may stay too large, which is safe."""
        self._forget_after(sums.slot // self._size)
        block = self._blocks[-1]
        block.values, block.inside = block.values - sums.values, block.inside - sums.inside

    def _forget_after(self, number: int) -> None:
        """Forget blocks of later slots, which the slots of this block will follow once more."""
        while self._blocks and self._blocks[-1].number > number:
            self._blocks.pop()

    def forget(self, slot: int, window: int) -> None:
        """Forget what is older than the longer of this memory and the window, which ends with `slot`."""
        oldest = (slot - max(self._slots, window) + 1) // self._size
        while self._blocks and self._blocks[0].number < oldest:
            self._blocks.popleft()

    def evidence(self, since: int) -> RegionEvidence:
        """Return what there is of each region; `since`: the first slot that was ever counted."""
        values, inside, fullest = self._nothing, self._nothing, self._nothing
        for one in self._blocks:
            values, inside, fullest = values + one.values, inside + one.inside, np.maximum(fullest, one.fullest)
        first = self._blocks[0].number * self._size if self._blocks else since
        return RegionEvidence(values, inside / np.where(values > 0, values, np.nan), fullest, max(first, since))


class CalibrationWindow:
    """Innovations of the last slots, as sums per slot and region.

    length      number of slots, if they hold `enough` values
    longest     number of slots that it goes back for them
    dependence  D, number of a server's successive values that say as much as one (`dependence_of`)

    >>> window = CalibrationWindow(regions=1)
    >>> window.add(7, np.array([[0.5], [-2.5]]))
    >>> window.summary().total_coverage, window.summary().total_mean_square
    (0.5, 3.25)
    """

    def __init__(
        self,
        regions: int,
        length: int = WINDOW,
        enough: int = ENOUGH,
        longest: int = LONGEST,
        dependence: float = 1.0,
    ) -> None:
        self.regions, self.length, self.longest, self.dependence = regions, length, longest, dependence
        self.enough = math.ceil(enough * dependence)
        self._since: int | None = None
        self._last = -1
        self._nothing = np.zeros(regions, dtype=np.int64), np.zeros(regions), np.zeros(regions, dtype=np.int64)
        self._slots: deque[_SlotSums] = deque()
        self._blocks = _RegionBlocks(regions, dependence, length, longest)

    def add(self, slot: int, innovations: Floats, of_sums: Bools | None = None) -> None:
        """Add the innovations (M, d) of a slot; a slot of the window that is released again replaces what was counted.

        of_sums  (M, d) which of them are of the sum of several regions; None: none
        """
        self._since = slot if self._since is None else min(self._since, slot)
        self._last = slot
        while self._slots and self._slots[-1].slot >= slot:
            self._blocks.remove(self._slots.pop())
        there = ~np.isnan(innovations)
        squares = np.square(np.where(there, np.clip(innovations, -_LARGEST, _LARGEST), 0.0))
        inside = there & (squares <= BOUND * BOUND)
        records = int(np.count_nonzero(there.any(axis=1)))
        joint = np.zeros_like(there) if of_sums is None else there & of_sums
        single = there & ~joint
        by_region = self._nothing  # shared by slots that have sums only: a long window stays small
        if single.any():
            by_region = single.sum(axis=0), np.where(single, squares, 0.0).sum(axis=0), (inside & single).sum(axis=0)
        joined = int(joint.sum()), float(squares[joint].sum()), int((inside & joint).sum())
        if records:
            self._slots.append(_SlotSums(slot, records, *by_region, *joined))
            self._blocks.add(self._slots[-1])
        number = sum(one.number for one in self._slots)
        while self._slots and self._slots[0].slot <= slot - self.length:
            number -= self._slots[0].number
            if number < self.enough and self._slots[0].slot > slot - self.longest:
                break
            self._slots.popleft()
        self._blocks.forget(slot, self._window())

    def _window(self) -> int:
        """Return how many slots it looks back."""
        return self.length if not self._slots else max(self.length, self._last - self._slots[0].slot + 1)

    def summary(self) -> Calibration:
        """Return the statistics of the window."""
        values, inside = np.zeros(self.regions, dtype=np.int64), np.zeros(self.regions, dtype=np.int64)
        squares = np.zeros(self.regions)
        for one in self._slots:
            values, inside, squares = values + one.values, inside + one.inside, squares + one.squares
        number = np.where(values > 0, values, np.nan)
        joint_values = sum(one.joint_values for one in self._slots)
        total_squares = float(squares.sum()) + sum(one.joint_squares for one in self._slots)
        total_inside = int(inside.sum()) + sum(one.joint_inside for one in self._slots)
        total = int(values.sum()) + joint_values or np.nan
        return Calibration(
            since=self._since,
            slots=len(self._slots),
            records=sum(one.records for one in self._slots),
            values=values,
            mean_square=squares / number,
            coverage=inside / number,
            total_mean_square=total_squares / total,
            total_coverage=total_inside / total,
            sums=joint_values,
            window=self._window(),
            fullest=max((one.number for one in self._slots), default=0),
            enough_at=self._enough_at(int(values.sum()) + joint_values),
            evidence=self._blocks.evidence(self._since or 0),
            dependence=self.dependence,
            needed=self.enough,
        )

    def _enough_at(self, number: int) -> float | None:
        """Return when there are enough values; there are so many."""
        if self._since is None or not 0 < number < self.enough:
            return None
        slots = self._last - max(self._since, self._last - self.longest + 1) + 1
        needed = math.ceil(self.enough * slots / number)
        return self._last + needed - slots if needed <= self.longest else math.inf
