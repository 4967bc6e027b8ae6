"""How deviations of a series are distributed around a fitted model: usual ones, and how many slots are unusual.

What a slot adds to a deviation, in units of its standard deviation by the model,

    u(t) = (e(t) - a e(t-1) s(t)/s(t-1)) / sqrt(q(t))

is normal with the variance 1 if the model is right. Closed days and bursts leave most of it far smaller: the variance
of usual slots, by the median of |u|, is then a small part of the whole. Where few people are expected, a median of
whole numbers says little, and the part is that of a Poisson count at least.
Where next to nobody is expected, such a count varies less than the model says, whose variance is at least that of
rounding: these deviations are mostly small as well.
Slots with more than three of its standard deviations are unusual. `filters.tails` says what filters make of it.

Deviations that last, such as waves that pass through, may be mostly small although what each slot adds is normal. A
short series has few of them, and shows it by chance. But where `fit` has found that levels of usual slots predict
better than means, it has been shown: then e(t)/sqrt(V(t)), with the variance V of deviations, is judged as well, and
the smaller part counts.
"""

from __future__ import annotations

import numpy as np

from dpcrowd.arrays import Floats
from dpcrowd.filters.tails import HEAVY, NORMAL
from dpcrowd.models.model import LEAST_VAR

__all__ = ["tails_in_common", "tails_of"]

_FEWEST = 60  # slots; of fewer, normal ones look like it by chance in more than one region of a hundred
_BY_MEDIAN = 1.4826  # the standard deviation of a normal distribution by the median of its absolute values
_UNUSUAL = 3.0  # standard deviations of usual slots
_RARE = 1.0 / 3.0  # of the slots; what is more often is not unusual: counts in tens have a median of 0
_LEAST_USUAL = 0.01
_SMALL = 5.0  # people: most of a Poisson count of fewer are one of two or three numbers


def tails_of(
    deviation: Floats,
    expected: Floats,
    variance: Floats,
    transition: Floats,
    ratio: Floats,
    settled: Floats | None = None,
) -> tuple[Floats, Floats] | None:
    """Return the part of the variance that usual slots have, and the part of unusual slots, (d,) each.

    None: deviations are not mostly small in any region.

    deviation, expected, variance  (T, d) e, mu and q
    ratio                          (T - 1, d) or (T - 1, 1): s(t)/s(t-1)
    settled                        (T, d) V, where levels are those of usual slots
    """
    if len(deviation) < _FEWEST:
        return None
    normalised = (deviation[1:] - transition * ratio * deviation[:-1]) / np.sqrt(variance[1:])
    by_chance = (_of_small_counts(expected[1:]) * (1.0 - np.square(transition)) / variance[1:]).mean(axis=0)
    usual, unusual = _parts(normalised, by_chance)
    if settled is not None:
        of_chance = (_of_small_counts(expected) / settled).mean(axis=0)
        lasting, rare = _parts(deviation / np.sqrt(settled), of_chance)
        unusual = np.where(lasting < usual, rare, unusual)
        usual = np.minimum(lasting, usual)
    return (usual, unusual) if (usual < HEAVY).any() else None


def tails_in_common(course: Floats, transition: float) -> tuple[float, float]:
    """Return the same of what regions have in common, from its course (T,), in any unit."""
    change = course[1:] - transition * course[:-1]
    square = float(np.square(change).mean()) if change.size else 0.0
    if change.size < _FEWEST or square == 0.0:
        return NORMAL
    usual, unusual = _parts(change[:, None] / np.sqrt(square), np.zeros(1))
    return (float(usual[0]), float(unusual[0])) if usual[0] < HEAVY else NORMAL


def _of_small_counts(expected: Floats) -> Floats:
    """Return the variance of Poisson counts where these are small, so that a median of them is not to be trusted; that
    of rounding elsewhere.
    """
    return np.where(expected < _SMALL, np.maximum(expected, _LEAST_USUAL), LEAST_VAR)


def _parts(normalised: Floats, least: Floats) -> tuple[Floats, Floats]:
    """Return the parts of usual variance, at least `least`, and of unusual slots, (d,), of what slots add (T, d)."""
    usual = np.square(_BY_MEDIAN * np.median(np.abs(normalised), axis=0))
    usual = np.clip(np.maximum(usual, least), _LEAST_USUAL, 1.0)
    unusual = (np.abs(normalised) > _UNUSUAL * np.sqrt(usual)).sum(axis=0)
    part = (unusual + 1.0) / (len(normalised) + 2.0)
    return np.where(part < _RARE, usual, 1.0), part
