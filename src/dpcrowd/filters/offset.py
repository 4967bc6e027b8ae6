"""By how much estimates are off after a jump of the crowd, whatever the filter believes of its changes.

A filter whose Q is next to nothing hardly moves when an empty region fills, and no factor of that Q says how far the
region has moved. But everything that it fuses shows it. With M and P, the variances of posterior and prior, and phi =
M/P, what was fused in a slot is one measurement whose innovation and variance are

    e = (posterior - prior)/(1 - phi)          V = P/(1 - phi)

If the estimate is off by b, these have the mean b. So their mean with weights that fade shows b. What the filter
corrects by itself is no longer off:

    by a measurement      b <- (f Y b + e/V)/(f Y + 1/V)          Y <- f Y + 1/V
    from slot to slot     b <- (a phi + 1 - a) b

A filter that knows a course returns to it with every slot, and so does its offset: 1 - a. Where deviations follow a
scale (`course`), the offset does, too. What has to be added to the
variance of the posterior is

    jump = (phi b)^2           where b^2 is more than 8 (1/Y + D), less of it from 4 (1/Y + D) on

D is the variance of the deviation of a server's users from its share, which is in all its samples while they stay. e is
bounded, so that no single draw of noise is a jump. Where a course says how large regions are, b counts as twice the
level at most until b^2 is more than 30 (1/Y + D): several weak samples that are off by chance, each by many times the
crowd, would make intervals absurd.

Everything is a function of released values, and neither estimates nor schedules depend on it. Arrays are (N, d).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from dpcrowd.arrays import Floats
from dpcrowd.filters.staying import kept_part

__all__ = ["Fused", "Offset", "fused_innovations"]

_CHANCE = 4.0
"""How many times its variance the square of an offset may be by chance."""
_CERTAIN = 30.0
"""The same above which an offset may be of any size."""
_GROWTH = 4.0
"""By how much more than the square of the offset so far the square of an innovation may be expected to be."""
_LIMIT = 2.5
"""Innovations are bounded to this many standard deviations."""


class Fused(NamedTuple):
    """What was fused in a slot, as one measurement per server and region.

    value      e
    precision  1/V; 0: nothing was fused, or nothing was known before
    deviation  D
    """

    value: Floats
    precision: Floats
    deviation: Floats

    @staticmethod
    def of_sums(info_vec: Floats, info_mat: Floats, prior: tuple[Floats, Floats], deviation: Floats) -> Fused:
        """Return what was fused, from sums of information and the prior: of filters that learn, M/P is no gain."""
        fused = np.isfinite(prior[1]) & (info_mat > 0.0)
        information = np.where(fused, info_mat, 1.0)
        value = np.where(fused, info_vec / information - prior[0], 0.0)
        precision = np.where(fused, 1.0 / (np.where(fused, prior[1], 0.0) + 1.0 / information), 0.0)
        return Fused(value, precision, np.broadcast_to(deviation, fused.shape))


def fused_innovations(prior: tuple[Floats, Floats], posterior: tuple[Floats, Floats], deviation: Floats) -> Fused:
    """Return what was fused, from mean and variance of prior and posterior."""
    kept = kept_part(prior[1], posterior[1])
    fused = np.isfinite(prior[1]) & (kept < 1.0)
    gained = np.where(fused, 1.0 - kept, 1.0)
    value = np.where(fused, (posterior[0] - prior[0]) / gained, 0.0)
    precision = np.where(fused, gained / np.where(fused, prior[1], 1.0), 0.0)
    return Fused(value, precision, np.broadcast_to(deviation, kept.shape))


@dataclass
class Offset:
    """By how much the priors of N servers are off, and what is left of it.

    mean       b, of the prior of the last slot; in between, of the next one
    weight     Y; 0: nothing was fused
    part       phi of the last slot, the part of b that is left in the posterior
    deviation  D
    """

    mean: Floats
    weight: Floats
    part: Floats
    deviation: Floats

    @staticmethod
    def start(nothing: Floats) -> Offset:
        """Return the memory before the first slot; `nothing`: zeros."""
        return Offset(nothing, nothing, np.ones_like(nothing), nothing)

    def jump(self, possible: Floats | float = np.inf) -> Floats:
        """Return what the offset adds to the variance: its square, where it is more than chance explains.

        possible  how far off an estimate may be before that is certain: one draw of noise is many times as large as the
                  crowd where samples are weak
        """
        known = self.weight > 0.0
        square = np.square(self.mean)
        ratio = square / (1.0 / np.where(known, self.weight, 1.0) + self.deviation)
        believed = np.clip(ratio / _CHANCE - 1.0, 0.0, 1.0)
        square = np.where(ratio > _CERTAIN, square, np.minimum(square, np.square(possible)))
        return np.where(known, believed * np.square(self.part) * square, 0.0)

    def carry(self, transition: Floats, ratio: Floats | float = 1.0) -> Offset:
        """Return the offset of the prior of the next slot; `ratio`: of the scales, which `transition` contains."""
        return replace(
            self,
            mean=(transition * self.part + ratio - transition) * self.mean,
            weight=self.weight / np.square(ratio),
            part=np.ones_like(self.part),
        )

    def keep(self, part: Floats) -> Offset:
        """Return the offset of which this part is left in the posterior."""
        return replace(self, part=part)

    def learn(self, fused: Fused, moved: Floats, fading: float) -> Offset:
        """Return the offset after what was fused; `moved`: what drift adds to the variance, which is no offset."""
        measured = fused.precision > 0.0
        variance = 1.0 / np.where(measured, fused.precision, 1.0) + moved
        most = _LIMIT * np.sqrt(variance + _GROWTH * self.jump())
        fresh = np.where(measured, 1.0 / variance, 0.0)
        before = np.where(measured, fading, 1.0) * self.weight
        weight = before + fresh
        total = before * self.mean + fresh * np.clip(fused.value, -most, most)
        return replace(
            self,
            mean=np.where(measured, total / np.where(weight > 0.0, weight, 1.0), self.mean),
            weight=weight,
            deviation=np.where(measured, fused.deviation, self.deviation),
        )
