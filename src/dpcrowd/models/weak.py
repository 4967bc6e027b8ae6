"""What regions with weak measurements borrow from the others (empirical Bayes).

Released measurements of a small region are mostly noise: their mean may be negative, and their scatter says nothing of
the crowd. What all regions together show is known much better, so each region starts from it, and its own measurements
move it as far as they can:

    level       p(level | z) ~ p(level) N(z; level, var)                           z: the mean of its measurements
    deviations  p(a, c | z) ~ p(a, c) p(z | a, variance)          variance = level + c^2 level^2, or a part of the level

p is on a grid, and is the mean of what follows for the regions, with a few more that believe in no value more than in
another; some steps of expectation and maximisation find it. Levels of regions differ by orders of magnitude, so that
their grid is one of logarithms. A variance is split in two since a crowd of independent persons has that of a Poisson
count, and a crowd that comes and goes together one in proportion to the square of its level: what large regions show of
c says the right thing about small ones, where it hardly matters. Variances below a Poisson count's are parts of it.

The first part may be chance that is new in every slot, or last like the second: people who stay have the variance of a
Poisson count as well. Where it is chance while the second drifts slowly, one AR(1) through both would be either too
calm or too short. So both are on the grid, and what is chosen is the AR(1) with the same variance and the same
correlation of two slots, as it is found in counts.

If the filters had an earlier model, its levels, a and variances are where regions start from (`EarlierModel`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpcrowd.arrays import Floats
from dpcrowd.models.model import LEAST_VAR
from dpcrowd.models.season import SeasonKind

__all__ = ["CELLS", "START", "EarlierModel", "chance_var", "common_weights", "settled_var", "shrunk_levels"]

_LEAST = 0.01  # people: a level below it is that of an empty region
_RATIO = 1.1  # of two levels of the grid
_PRECISE = 5.0  # standard deviations above which a level is what its measurements say
_UNDECIDED = 4.0  # regions that believe in no value more than in another
_STEPS = 5
_FACTOR, _STEP = 1.0, 0.25  # how far levels and variances (as logarithms), and a, may be from those of an earlier model

_GRID_A = np.array([0.0, 0.15, 0.3, 0.45, 0.6, 0.75, 0.85, 0.92, 0.96, 0.985])
_PARTS = 2.0 ** np.arange(-12, 0)  # of a Poisson count's variance
_RELATIVE = np.concatenate([[0.0], 2.0 ** np.arange(-20, 3)])  # c^2

CELLS = np.array(
    [(a, part, 0.0, 0.0) for part in _PARTS for a in _GRID_A]
    + [(a, 1.0, c, 0.0) for c in _RELATIVE for a in _GRID_A]
    + [(a, 1.0, c, 1.0) for c in _RELATIVE[1:] for a in _GRID_A[1:]]
)
"""(cells, 4): a, part of the level, c^2, and whether the first part is new in every slot, of the grid of deviations."""


START = np.sqrt(np.maximum(CELLS[:, 2], _RELATIVE[1]))
"""(cells,) What is believed of the cells before: every standard deviation alike, so that a cell counts as much as it is
wide. Measurements cannot tell small variances from one another; with the same weight for each of their cells, a
variance would be too small wherever they say little."""


@dataclass(frozen=True, eq=False)
class EarlierModel:
    """The model that the filters had when they made releases: its season, and levels, a and variances of deviations.

    These are (d,), and NaN where nothing is to start from them.

    shape  (rows, d) its profile relative to the mean over the season, by the rows that the season has in the slots to
           be fitted; None: it does not say what to expect of these slots
    """

    season: SeasonKind
    level: Floats
    transition: Floats
    settled: Floats
    shape: Floats | None = None

    def log_prior(self, settled: Floats, transition: Floats) -> Floats:
        """Return how much it speaks for cells with these variances of deviations and a, (cells, d), as logarithms."""
        away = np.log(settled / np.maximum(self.settled, LEAST_VAR)) / _FACTOR
        prior = -0.5 * (np.square(away) + np.square((transition - self.transition) / _STEP))
        return np.where(np.isfinite(prior), prior, 0.0)


def settled_var(level: Floats) -> Floats:
    """Return the variance of deviations in every cell, per person of the levels (d,): (cells, d)."""
    return np.asarray(CELLS[:, 1:2] + CELLS[:, 2:3] * level)


def chance_var() -> Floats:
    """Return the part of it that is new in every slot, per person, (cells, 1)."""
    return np.asarray(CELLS[:, 1:2] * CELLS[:, 3:4])


def common_weights(likelihood: Floats, start: Floats | None = None) -> Floats:
    """Return the weights (cells, d) of the cells for every region, from logarithms of their likelihoods (cells, d).

    start  (cells,) what is believed before; None: in no cell more than in another
    """
    chance = np.exp(likelihood - likelihood.max(axis=0))
    flat = np.ones((len(chance), 1)) if start is None else start[:, None]
    flat = flat / flat.sum()
    common = flat
    for _ in range(_STEPS):
        weight = common * chance
        weight = weight / weight.sum(axis=0)
        common = (_UNDECIDED * flat + weight.sum(axis=1, keepdims=True)) / (_UNDECIDED + chance.shape[1])
    weight = common * chance
    return np.asarray(weight / weight.sum(axis=0))


def shrunk_levels(level: Floats, var: Floats, earlier: Floats | None = None) -> tuple[Floats, Floats]:
    """Return levels (d,) that cannot be negative, and their variances, from measured ones with these variances.

    var      infinite: nothing was measured
    earlier  (d,) levels of an earlier model, near which those of today probably are; NaN: unknown

    >>> levels, _ = shrunk_levels(np.array([400.0, 250.0, -3.0, 1.0]), np.array([4.0, 4.0, 36.0, 36.0]))
    >>> levels[:2].tolist(), bool((levels[2:] < 3.0).all())
    ([400.0, 250.0], True)
    """
    known = np.isfinite(var)
    deviation = np.sqrt(np.where(known, var, 0.0))
    highest = max(float(np.where(known, level + 3.0 * deviation, 0.0).max(initial=0.0)), 1.0)
    grid = _LEAST * _RATIO ** np.arange(np.ceil(np.log(highest / _LEAST) / np.log(_RATIO)) + 1.0)
    # A level that is known more precisely than the grid is fine counts for the places next to it.
    spread = np.maximum(np.where(known, var, 1.0), np.square(0.05 * np.where(known, level, 0.0)))
    likelihood = np.where(known, -0.5 * np.square(grid[:, None] - level) / spread, 0.0)
    if earlier is not None:
        away = np.log(grid[:, None] / np.maximum(earlier, _LEAST)) / _FACTOR
        likelihood = likelihood - np.where(np.isfinite(away), 0.5 * np.square(away), 0.0)
        known = known | np.isfinite(earlier)
    weight = common_weights(likelihood)
    mean, typical = (weight * grid[:, None]).sum(axis=0), np.exp((weight * np.log(grid)[:, None]).sum(axis=0))
    typical = np.where(known, mean, typical)  # a mean over all orders of magnitude would be that of the largest regions
    doubt = (weight * np.square(grid[:, None] - typical)).sum(axis=0)
    precise = np.isfinite(var) & (level > _PRECISE * deviation) & (level > _LEAST)
    return np.where(precise, level, typical), np.where(precise, var, doubt)
