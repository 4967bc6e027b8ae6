"""The expected course of the counts: what is publicly known about r(t) before any record of it.

    r(t)   = mu(t) + e(t)             mu: a level per region, or a profile over a season
    e(t+1) = a e(t) + w(t+1)          w(t) has the variance q(t), fixed or in proportion to mu(t)

As a filter this is r(t) = A r(t-1) + b(t) + w(t) with the public offset b(t) = mu(t) - A mu(t-1). A filter that knows
the course starts at mu with the variance that e has settled at, and falls back to mu where records say little.

Where many people are expected by day and few by night, a deviation of the day would be carried into the night as it is.
With a scale s(t), such as the expected count, deviations are in proportion to it, and shrink and grow with it:

    e(t) = s(t) u(t),   u(t+1) = a u(t) + v(t+1)              so e(t+1) = a s(t+1)/s(t) e(t) + s(t+1) v(t+1)

Then q(t) is the variance of s(t) v(t), and a s(t+1)/s(t), which may be larger than 1, is what filters multiply by.

A profile has one row per part of the season (such as an hour of the week). Time is counted in ticks, which are whole
numbers: slot t begins `offset + step t` ticks after the beginning of some season, and a season is `season` ticks long.
So the row of a slot is exact for every calendar, also where a season is not a whole number of slots.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from dpcrowd.arrays import Floats, PerRegion
from dpcrowd.errors import BadInput, counted
from dpcrowd.filters.tails import Tails

__all__ = ["Course", "UnknownSeason", "same_course"]

_FEW_PEOPLE = 10.0
_LEAST_VAR = 1e-9
_NEGLIGIBLE = 1e-18  # a part of the variance below this is beyond what rounding leaves
_MOST_SETTLED = 1024  # variances that are kept
_MOST_SLOTS = 10_000  # of a season that are looked at: more than a year of hours


@dataclass(frozen=True)
class UnknownSeason:
    """A season of which only the size and the speed are known: it has moved, or is gone.

        r(t) = level + e(t)          e(t+1) = transition e(t) + a change of variance noise_var

    e has the variance of the season, and is half forgotten when two slots of the season have a correlation of a half:
    a season is smoother than that from slot to slot, and turns sooner. Each number (d,).
    """

    level: PerRegion
    transition: PerRegion
    noise_var: PerRegion

    @property
    def settled_var(self) -> PerRegion:
        """The variance (d,) of e(t) if nothing was ever observed."""
        return np.asarray(self.noise_var / (1.0 - np.square(self.transition)))

    def predict(self, mean: Floats, var: Floats, steps: int) -> tuple[Floats, Floats]:
        """Return mean and variance (N, d) some slots later."""
        left = self.transition**steps
        return self.level + left * (mean - self.level), np.square(left) * (var - self.settled_var) + self.settled_var


@dataclass(frozen=True)
class Course:
    """What is expected of every slot.

    profile   (rows, d) mu by row of the season; one row: a constant level
    variance  (rows, d) q by row. One below 1e-9 counts as that: a filter that is certain of a slot could learn nothing
              about it, and others could not compare themselves with it
    scale     (rows, d) s by row, each > 0; None: deviations are carried over as they are
    season, offset, step  ticks; see above
    tails     where deviations are mostly small and sometimes large; None: nowhere

    >>> course = Course(np.array([[10.0], [30.0]]), np.array([[4.0], [4.0]]), season=2, offset=1, step=1)
    >>> [float(course.mean(slot)[0]) for slot in range(3)]
    [30.0, 10.0, 30.0]
    """

    profile: Floats
    variance: Floats
    season: int = 1
    offset: int = 0
    step: int = 0
    scale: Floats | None = None
    tails: Tails | None = field(default=None, metadata={"later": True})

    def __post_init__(self) -> None:
        if self.profile.ndim != 2 or self.profile.shape != self.variance.shape or not self.profile.size:
            raise BadInput(
                f"the profile of a course has shape {self.profile.shape} and its variance {self.variance.shape}; "
                "allowed: both (rows, regions)."
            )
        if not (np.isfinite(self.profile).all() and np.isfinite(self.variance).all() and (self.variance >= 0).all()):
            raise BadInput("the profile of a course must be finite numbers, and its variance finite numbers >= 0.")
        if self.scale is not None and not (
            self.scale.shape == self.profile.shape and np.isfinite(self.scale).all() and (self.scale > 0).all()
        ):
            raise BadInput("the scale of a course must have the shape of its profile, and finite numbers > 0.")
        if self.tails is not None and self.tails.usual.size != self.profile.shape[1]:
            raise BadInput(
                f"the tails of a course are those of {counted(self.tails.usual.size, 'region')}, and it has "
                f"{self.profile.shape[1]}."
            )
        if self.season < 1 or self.step < 0:
            raise BadInput(f"a season of {self.season} ticks in steps of {self.step}; allowed: from 1, and from 0.")
        if (self.variance < _LEAST_VAR).any():
            object.__setattr__(self, "variance", np.maximum(self.variance, _LEAST_VAR))

    def with_more_regions(self, number: int) -> Course:
        """Return the course of `number` more regions, each like the first one."""
        profile, variance, scale = (
            None if part is None else np.concatenate([part, np.repeat(part[:, :1], number, axis=1)], axis=1)
            for part in (self.profile, self.variance, self.scale)
        )
        assert profile is not None and variance is not None
        tails = None if self.tails is None else self.tails.with_more_regions(number)
        return replace(self, profile=profile, variance=variance, scale=scale, tails=tails)

    def row(self, slot: int) -> int:
        """Return the row of the profile that a slot, which may be before slot 0, belongs to."""
        return (self.offset + self.step * int(slot)) % self.season * len(self.profile) // self.season

    def mean(self, slot: int) -> PerRegion:
        """Return mu(t), (d,)."""
        return np.asarray(self.profile[self.row(slot)])

    def noise_var(self, slot: int) -> PerRegion:
        """Return q(t), (d,): the variance of what a slot adds to the deviation."""
        return np.asarray(self.variance[self.row(slot)])

    def ratio(self, before: int, slot: int) -> PerRegion | float:
        """Return s(slot)/s(before), (d,): by what a deviation is larger if it lasts from one slot to another."""
        if self.scale is None:
            return 1.0
        return np.asarray(self.scale[self.row(slot)] / self.scale[self.row(before)])

    def carried(self, transition: Floats, slot: int, steps: int = 1) -> Floats:
        """Return which part of the deviation of `steps` slots before is left in a slot: a^steps s(t)/s(t-steps)."""
        part = transition if steps == 1 else transition**steps
        return part if self.scale is None else np.asarray(part * self.ratio(slot - steps, slot))

    def added_var(self, slot: int, steps: int, transition: Floats) -> PerRegion:
        """Return the variance (d,) that the last slots up to `slot` add: the sum of a^2k q(t-k) over k < `steps`.

        With a scale, each of them is multiplied by the square of s(t)/s(t-k).
        """
        square = np.square(np.broadcast_to(transition, self.profile.shape[1:]))
        largest = float(square.max())
        if 0.0 < largest < 1.0:  # older slots add nothing that could be seen
            steps = min(steps, 1 + math.ceil(math.log(_NEGLIGIBLE) / math.log(largest)))
        total = np.zeros(self.profile.shape[1])
        for one in range(slot - steps + 1, slot + 1):
            total = square * total + self._added[self.row(one)]
        return total if self.scale is None else np.asarray(total * np.square(self.scale[self.row(slot)]))

    def settled_var(self, slot: int, transition: Floats) -> PerRegion:
        """Return the variance (d,) of e(t) if nothing was ever observed."""
        square = np.square(np.broadcast_to(transition, self.profile.shape[1:]))
        if (square >= 1.0).any():
            raise BadInput("a course needs a transition with |a| < 1 in every region, or it would forget nothing.")
        key = (self.offset + self.step * int(slot)) % self.season, square.tobytes()
        settled = self._settled.get(key)
        if settled is None:  # looked up once: a thread of the API may clear what another one has found
            if len(self._settled) >= _MOST_SETTLED:
                self._settled.clear()
            settled = self._settled[key] = self._settle(slot, transition, square)
        return settled.copy()

    def _settle(self, slot: int, transition: Floats, square: Floats) -> PerRegion:
        """Return the sum over all earlier slots. A season repeats itself: where more slots than one season count, its
        sum is enough. Deviations that stay for good would need tens of thousands of slots.
        """
        largest = float(square.max())
        steps = 1 if largest == 0.0 else 1 + math.ceil(math.log(_NEGLIGIBLE) / math.log(largest))
        cycle = self.season // math.gcd(self.season, self.step) if self.step else 1
        if steps <= cycle:
            return self.added_var(slot, steps, transition)
        return np.asarray(self.added_var(slot, cycle, transition) / (1.0 - square**cycle))

    @cached_property
    def largest_level(self) -> PerRegion:
        """The level of a region in the busiest part of the season, (d,), and at least that of an average region."""
        return self._or_average(self.profile.max(axis=0))

    @cached_property
    def level_by_noise(self) -> PerRegion:
        """The square of the level by the mean variance, (d,): how much larger the level is than what slots add.

        The level is the mean over the season, and at least that of an average region.
        """
        return np.asarray(np.square(self._or_average(self.profile.mean(axis=0))) / self.variance.mean(axis=0))

    @staticmethod
    def _or_average(level: PerRegion) -> PerRegion:
        """Return levels that are at least that of an average region and a few people: all may fill that were empty."""
        return np.asarray(np.maximum(level, max(float(level.mean()), _FEW_PEOPLE)))

    @cached_property
    def unknown_season(self) -> UnknownSeason | None:
        """What is expected if nobody knows any more when the season is where; None: there is no season."""
        slots = self.season // math.gcd(self.season, self.step) if self.step else 1
        course = np.stack([self.mean(slot) for slot in range(min(slots, _MOST_SLOTS))])
        level = course.mean(axis=0)
        square = np.square(course - level).mean(axis=0)
        if not (square > 0.0).any():
            return None
        spectrum = np.square(np.abs(np.fft.rfft(course - level, axis=0)))
        products = np.fft.irfft(spectrum, n=len(course), axis=0) / len(course)
        lasts = np.maximum(np.argmax(products <= 0.5 * square, axis=0), 1)  # every season has such a slot
        transition = 0.5 ** (1.0 / lasts)
        noise_var = np.maximum(square * (1.0 - np.square(transition)), self.variance.max(axis=0))
        return UnknownSeason(level, transition, noise_var)

    @cached_property
    def _added(self) -> list[PerRegion]:
        """What a slot adds, by row, in units of the scale: an answer with many slots asks for it in each of them."""
        return list(self.variance if self.scale is None else self.variance / np.square(self.scale))

    @cached_property
    def _settled(self) -> dict[tuple[int, bytes], PerRegion]:
        """The variances that `settled_var` has computed, by time of the season and transition.

        Each is a sum over hundreds of slots, and every start of a server that learns asks for the same dozens.
        """
        return {}


def same_course(one: Course | None, other: Course | None) -> bool:
    """Whether two courses expect the same of every slot, number by number."""
    if one is None or other is None:
        return one is other
    if (one.scale is None) != (other.scale is None):
        return False
    same_scale = one.scale is None or other.scale is None or np.array_equal(one.scale, other.scale)
    if (one.tails is None) != (other.tails is None):
        return False
    if one.tails is not None and other.tails is not None:
        parts = ("usual", "unusual")
        same_scale &= all(np.array_equal(getattr(one.tails, part), getattr(other.tails, part)) for part in parts)
    same_season = same_scale and (one.season, one.offset, one.step) == (other.season, other.offset, other.step)
    return same_season and np.array_equal(one.profile, other.profile) and np.array_equal(one.variance, other.variance)
