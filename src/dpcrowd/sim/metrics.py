"""What is measured (Eqs. are and ace, and design of the evaluation): pure functions on arrays.

    ARE        mean over servers, slots and regions of |estimate - r|/max(r, 1)
    ACE        mean of |estimate - average estimate of the run's servers|
    MSE        mean of (estimate - r)^2, beside which a filter's own variance can be held
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
    """Mean over axes without NaN entries; NaN where all are."""
    means: Floats = values.mean(axis=axes)
    if np.isnan(means).any():
        there = ~np.isnan(values)
        with np.errstate(invalid="ignore"):
            means = np.where(there, values, 0.0).sum(axis=axes) / there.sum(axis=axes)
    return means


def relative_error(estimates: Estimates, truth: Floats) -> Floats:
    """ARE of each slot and run, (B, runs)."""
    weight = 1.0 / np.maximum(truth, FLOOR)
    return nan_mean(np.abs(estimates - truth[:, :, None, :]) * weight[:, :, None, :], (2, 3))


def squared_error(estimates: Estimates, truth: Floats) -> Floats:
    """Mean squared error of each slot and run, (B, runs)."""
    with np.errstate(over="ignore"):
        return nan_mean(np.square(estimates - truth[:, :, None, :]), (2, 3))


def consensus_error(estimates: Estimates) -> Floats:
    """ACE of each slot and run, (B, runs)."""
    average = nan_mean(estimates, (2,))
    return nan_mean(np.abs(estimates - average[:, :, None, :]), (2, 3))


def covered(estimates: Estimates, variances: Estimates, truth: Floats) -> Floats:
    """Share of 95% intervals of each slot and run that contain the truth, (B, runs); NaN where there are none."""
    half = half_width(variances)
    error = np.abs(estimates - truth[:, :, None, :])
    inside = np.where(np.isfinite(half) & np.isfinite(error), error <= half, np.nan)
    return nan_mean(inside.astype(np.float64), (2, 3))
