"""The metrics of a simulation (Eqs. are and ace): pure functions on arrays.

    ARE          mean over servers, slots and regions of |estimate - r|/max(r, 1)
    ACE          mean of |estimate - average estimate of the run's servers|
    MSE          mean of (estimate - r)^2, to compare with a filter's own variance
    coverage     share of 95% intervals that contain the truth
    total error  sum of |estimate - r| / sum of r: a region counts as much as it has people
    MAE          mean of |estimate - r|, in people

A relative error of a region with 0 to 5 people says little, and there may be many of them: total error and MAE do not
depend on such regions, and `SIZES` divides the cells (a region in a slot) by how many people there are.

Entries without an estimate (NaN) are left out of the means. Shapes: estimates (B, runs, m, d), truth (B, runs, d).
"""

from __future__ import annotations

import numpy as np

from dpcrowd.arrays import Estimates, Floats, Ints
from dpcrowd.schemes.base import half_width

__all__ = [
    "SIZES",
    "absolute_sums",
    "consensus_error",
    "covered",
    "nan_mean",
    "relative_error",
    "size_of",
    "squared_error",
]

FLOOR = 1.0  # delta of Eq. (are)

SIZES: tuple[tuple[int, int | None], ...] = ((0, 5), (6, 50), (51, 500), (501, None))
"""Classes of cells by their truth: the smallest and the largest count of each; None: no upper limit."""


def nan_mean(values: Floats, axes: tuple[int, ...]) -> Floats:
    """Return the mean over axes without NaN entries; NaN where all are NaN."""
    means: Floats = values.mean(axis=axes)
    if np.isnan(means).any():
        there = ~np.isnan(values)
        with np.errstate(invalid="ignore"):
            means = np.where(there, values, 0.0).sum(axis=axes) / there.sum(axis=axes)
    return means


def relative_error(estimates: Estimates, truth: Floats) -> Floats:
    """Return the ARE of each slot and run, (B, runs)."""
    weight = 1.0 / np.maximum(truth, FLOOR)
    return nan_mean(np.abs(estimates - truth[:, :, None, :]) * weight[:, :, None, :], (2, 3))


def absolute_sums(estimates: Estimates, truth: Floats) -> tuple[Floats, Floats]:
    """Return the sums over servers of |estimate - r|, and the numbers of servers that have an estimate.

    Both have the shape of the truth, (B, runs, d).
    """
    errors = estimates - truth[:, :, None, :]
    np.abs(errors, out=errors)
    with np.errstate(over="ignore"):
        sums: Floats = errors.sum(axis=2)
    servers = np.full(truth.shape, float(estimates.shape[2]))
    if np.isnan(sums).any():
        there = ~np.isnan(errors)
        with np.errstate(over="ignore"):
            sums = np.where(there, errors, 0.0).sum(axis=2)
        servers = there.sum(axis=2).astype(np.float64)
    return sums, servers


def size_of(truth: Floats) -> Ints:
    """Return the number of the class in `SIZES` that each count belongs to."""
    return np.searchsorted([largest for _, largest in SIZES if largest is not None], truth, side="left")


def squared_error(estimates: Estimates, truth: Floats) -> Floats:
    """Return the mean squared error of each slot and run, (B, runs)."""
    with np.errstate(over="ignore"):
        return nan_mean(np.square(estimates - truth[:, :, None, :]), (2, 3))


def consensus_error(estimates: Estimates) -> Floats:
    """Return the ACE of each slot and run, (B, runs)."""
    average = nan_mean(estimates, (2,))
    return nan_mean(np.abs(estimates - average[:, :, None, :]), (2, 3))


def covered(estimates: Estimates, variances: Estimates, truth: Floats) -> Floats:
    """Return the share of 95% intervals that contain the truth, of each slot and run, (B, runs); NaN without any."""
    half = half_width(variances)
    error = np.abs(estimates - truth[:, :, None, :])
    inside = np.where(np.isfinite(half) & np.isfinite(error), error <= half, np.nan)
    return nan_mean(inside.astype(np.float64), (2, 3))
