"""Deviations that are mostly small and sometimes large: closed days, bursts, storms.

The variance of such deviations is that of the few large ones. A filter that takes them for normal follows the noise of
weak records in every slot, as if each were one of those: its squared error is the smallest of all linear filters, but
its absolute error can be larger than that of the model alone. What is known of a deviation e is that of the filter,

    e ~ N(c, v)  after records, N(0, V) before any          so records say z = c/(v Y) with information Y = 1/v - 1/V

and with R = 1/Y and a mixture in the place of N(0, V), of small and of large deviations with the same variance,

    e ~ (1 - p) N(0, k V) + p N(0, W)                       V = (1 - p) k V + p W

each of the two has its own posterior, N(z S/(S + R), S R/(S + R)) with S = k V or W, and a probability in proportion to
(1 - p) f(z; k V + R) or p f(z; W + R). f is the density of Student's t with 6 degrees of freedom, since noise has long
tails. The median of both together has the smallest absolute error. Where records are weak it is close to 0, what the
model alone says; where they show a large deviation it follows, further than the normal filter does.

k and p are `usual` and `unusual` of a model (`dpcrowd.models.tails`). The filter itself stays as it is: this is one
belief of a bank (`learning`), in the place of the calmer one, which follows from the model's filter in every slot. Its
evidence is the density of the mixture, so records show whether deviations are still like that.

Where it matters what a slot may bring at worst, before its records (`share_surprise`), the belief is all its normal
distributions. A normal deviation keeps a of itself in every slot. One that is large keeps next to all of itself or next
to nothing, which gives the same autocorrelation: with the probability a it stays, and else another one comes in its
place. So the crowd may be back to normal at once, or a burst may begin,

    a:      N(c, k v), N(c, W/V v)          c, v: of the filter, before the records
    1 - a:  N(0, k V), N(0, W)              each with the probabilities 1 - p and p

and the large ones have the variance of bursts that are known from the past (`Tails.burst_var`) as well.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dpcrowd.arrays import Bools, Floats
from dpcrowd.errors import BadInput
from dpcrowd.filters.student import log_density

__all__ = ["HEAVY", "NORMAL", "MostlySmall", "Tails", "burst_var"]

HEAVY = 0.5
"""Deviations are mostly small where usual ones have less than this part of the variance."""
NORMAL = 1.0, 0.05
"""The parts of usual deviations and of unusual slots where all deviations are usual."""
_MOST_TRUSTED = 0.9
_LEAST_NUMBER = 1e-6
"""The least part of usual deviations, and of unusual slots."""
_LEAST_UNUSUAL = 1e-3  # below it, a mean and a level of different slots would claim bursts without bounds
_STEPS = 20  # of halving, after which the median is known to a millionth of the distance


@dataclass(frozen=True, eq=False)
class Tails:
    """How deviations of regions are distributed.

    usual      (d,) k: the variance of usual deviations, as a part of the variance; 1: there are no others
    unusual    (d,) p: the part of the slots in which they are not usual
    burst_var  (d,) the variance that bursts have beyond that of the filter, in which they count less; None: none

    It is known from the mean count and the level, which differ by p times the size of a burst (`burst_var`). No filter
    uses it: only who decides whether a record that is far off is a fault, or the error of a share.
    """

    usual: Floats
    unusual: Floats
    burst_var: Floats | None = field(default=None, metadata={"saved": False})

    def __post_init__(self) -> None:
        if self.usual.shape != self.unusual.shape or self.usual.ndim != 1:
            raise BadInput("usual and unusual deviations have one number for each region.")
        usual, unusual = self.usual, self.unusual
        possible = (usual >= _LEAST_NUMBER) & (usual <= 1.0) & (unusual >= _LEAST_NUMBER) & (unusual < 1.0)
        if not possible.all():
            raise BadInput("the part of usual deviations is from 1e-6 to 1, and that of unusual slots below 1.")

    @property
    def heavy(self) -> Bools:
        """In which regions deviations are mostly small, (d,)."""
        return np.asarray(self.usual < HEAVY)

    @property
    def trusted(self) -> Floats:
        """How much of the trust in other beliefs goes to this one, (d,); some stays, for evidence to raise."""
        return np.asarray(np.clip(np.log2(HEAVY / self.usual), 0.0, _MOST_TRUSTED))

    def with_more_regions(self, number: int) -> Tails:
        """Return the tails with `number` more regions, each like the first one, but without bursts."""
        usual, unusual = (np.concatenate([part, np.repeat(part[:1], number)]) for part in (self.usual, self.unusual))
        more = None if self.burst_var is None else np.concatenate([self.burst_var, np.zeros(number)])
        return Tails(usual, unusual, more)


def burst_var(level: Floats, mean: Floats, unusual: Floats) -> Floats:
    """Return the variance (d,) of bursts of one size in the part p of all slots, by which mean and level differ.

    >>> burst_var(np.array([80.0]), np.array([130.0]), np.array([0.01])).tolist()  # bursts of 5,000 people
    [250000.0]
    """
    return np.asarray(np.square(mean - level) / np.maximum(unusual, _LEAST_UNUSUAL))


@dataclass(frozen=True, eq=False)
class MostlySmall:
    """What is expected of the deviations of one slot: of mu (d,), with the variance V (d,) before any record.

    stays  (d,) the probability that a deviation is what it was in the slot of the last posterior, for `components`
    """

    expected: Floats
    settled: Floats
    tails: Tails
    stays: Floats | float = 0.0

    def put(self, mean: Floats, var: Floats, place: int, model: int) -> None:
        """Set a belief of a bank (beliefs, N, d), in place, from the model's filter, in regions where it differs."""
        which = self.tails.heavy
        mean[place][:, which] = self.median(mean[model][:, which], var[model][:, which])
        var[place][:, which] = var[model][:, which]

    def median(self, mean: Floats, var: Floats) -> Floats:
        """Return the medians (N, h) of counts, from means and variances of the model's filter in heavy regions.

        >>> tails = Tails(np.array([0.01]), np.array([0.1]))
        >>> slot = MostlySmall(np.array([100.0]), np.array([1000.0]), tails)
        >>> weak, clear = slot.median(np.array([[110.0], [170.0]]), np.array([[900.0], [100.0]])).ravel().tolist()
        >>> round(weak), round(clear)
        (100, 177)
        """
        from scipy.special import ndtr  # most servers never need it

        which = self.tails.heavy
        expected, settled, unusual = self.expected[which], self.settled[which], self.tails.unusual[which]
        small, large = (part * settled for part in self.parts)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            noise = 1.0 / np.maximum(1.0 / var - 1.0 / settled, 0.0)
            informed = np.isfinite(noise) & (noise > 0.0)
            noise = np.where(informed, noise, 1.0)
            value = np.where(informed, (mean - expected) / var * noise, 0.0)
        odds = np.log(unusual / (1.0 - unusual)) + _density(value, large + noise) - _density(value, small + noise)
        chance = 1.0 / (1.0 + np.exp(-np.clip(odds, -50.0, 50.0)))
        means = [value * part / (part + noise) for part in (small, large)]
        deviations = [np.sqrt(part * noise / (part + noise)) for part in (small, large)]
        low, high = np.minimum(*means), np.maximum(*means)
        for _ in range(_STEPS):
            middle = 0.5 * (low + high)
            below = [ndtr((middle - one) / deviation) for one, deviation in zip(means, deviations, strict=True)]
            less = (1.0 - chance) * below[0] + chance * below[1] < 0.5
            low, high = np.where(less, middle, low), np.where(less, high, middle)
        exact = np.isfinite(var) & ~informed & (var < settled)  # nothing is left to be in doubt about
        return np.where(exact, mean, expected + 0.5 * (low + high))

    def components(self, mean: Floats, var: Floats) -> tuple[Floats, Floats, Floats]:
        """Return means, variances and weights (4, N, d) of the normal distributions of a slot before its records.

        mean, var  (N, d) of the belief; in other regions than the heavy ones it is the only one

        >>> tails = Tails(np.array([0.01]), np.array([0.2]))
        >>> slot = MostlySmall(np.array([100.0]), np.array([1e6]), tails, np.array([0.6]))
        >>> means, variances, weights = (part.ravel().tolist() for part in slot.components(*np.full((2, 1, 1), 2500.0)))
        >>> means, [round(weight, 2) for weight in weights]  # a burst that stays, or is over
        ([2500.0, 2500.0, 100.0, 100.0], [0.48, 0.12, 0.32, 0.08])
        """
        which = self.tails.heavy
        means, variances, weights = np.stack([mean] * 4), np.stack([var] * 4), np.zeros((4, *mean.shape))
        weights[0] = 1.0
        stays, unusual = np.broadcast_to(self.stays, which.shape)[which], self.tails.unusual[which]
        for number, size in enumerate(self.parts * 2):
            likely = unusual if number % 2 else 1.0 - unusual
            weights[number][:, which] = likely * (stays if number < 2 else 1.0 - stays)
            variances[number][:, which] *= size
            if number >= 2:
                means[number][:, which], variances[number][:, which] = self.expected[which], size * self.settled[which]
            if number % 2 and self.tails.burst_var is not None:
                variances[number][:, which] += self.tails.burst_var[which]
        return means, variances, weights

    def evidence(self, off: Floats, var: Floats, noise: Floats) -> Floats:
        """Return the logarithm of the density (N, h) of records that are off by so much from what is expected.

        var    (N, h) of the model's filter before the records
        noise  (N, h) the variance of the records
        """
        unusual, (small, large) = self.tails.unusual[self.tails.heavy], self.parts
        rare = np.log(unusual) + _density(off, large * var + noise)
        return np.asarray(np.logaddexp(np.log1p(-unusual) + _density(off, small * var + noise), rare))

    @property
    def parts(self) -> tuple[Floats, Floats]:
        """Return the variances of small and of large deviations, as parts of the variance, (h,) each."""
        usual, unusual = self.tails.usual[self.tails.heavy], self.tails.unusual[self.tails.heavy]
        return usual, (1.0 - (1.0 - unusual) * usual) / unusual


def _density(value: Floats, variance: Floats) -> Floats:
    """Return the logarithm of the density of deviations with a variance, up to a constant."""
    return log_density(variance, np.square(value) / variance)
