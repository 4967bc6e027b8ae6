"""The metrics of a simulation (Eqs. are and ace): pure functions on arrays.

    ARE        mean over servers, slots and regions of |estimate - r|/max(r, 1)
    ACE        mean of |estimate - average estimate of the run's servers|
    MSE        mean of (estimate - r)^2, to compare with a filter's own variance
    coverage   share of 95% intervals that contain the truth

Entries without an estimate (NaN) are left out of the means. Shapes: estimates (B, runs, m, d), truth (B, runs, d).
"""

from __future__ import annotations

import numpy as np

from dpcrowd.arrays import Estimates, Floats
from dpcrowd.schemes.base import half_width

__all__ = ["consensus_error", "covered", "nan_mean", "relative_error", "squared_error"]

FLOOR = 1.0  # delta of Eq. (are)


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
