"""Measurements behind releases: what a filter has added to its prediction in each slot.

A released estimate is a filter's: it contains all records so far, so it is much smoother than the crowd, and its errors
last. Fitted as if they were counts, releases would show the filter and not the crowd. But with the variances that come
with them the filter can be undone: what slot t has added to the prediction from slot t-1 is a measurement of its own,

    P  = A^2 var(t-1) + Q                    the variance of the prediction
    1/R = 1/var(t) - 1/P                     the information of the slot's records
    z  = R (mean(t)/var(t) - prior/P)        what they say

whose error is independent of those of other slots. Q is what variances grow by in slots without records; where the
releases were made with a model, that model has to be known.
"""

from __future__ import annotations

import numpy as np

from dpcrowd.arrays import Floats
from dpcrowd.errors import BadInput
from dpcrowd.filters import ProcessModel, predict

__all__ = ["measurements", "walk_of"]

_LEAST_GAIN = 1e-3  # information of a slot, relative to the prediction's, below which it has told nothing
_USUAL_GROWTH = 0.9


def walk_of(variance: Floats) -> ProcessModel:
    """Return the random walk with which releases of these variances (T, d) were made: A = 1, Q from their growth."""
    with np.errstate(invalid="ignore"):
        growth = np.diff(variance, axis=0)
    growth = np.where(np.isfinite(growth) & (growth > 0.0), growth, np.nan)
    if np.isnan(growth).all(axis=0).any():
        raise BadInput(
            "the variances of the releases never grow in some region, so it cannot be seen what each slot has added; "
            "give "
            "releases of a scheme that filters, over slots without samples, too."
        )
    return ProcessModel.of(1.0, np.nanquantile(growth, _USUAL_GROWTH, axis=0))


def measurements(mean: Floats, variance: Floats, model: ProcessModel, first: int = 0) -> tuple[Floats, Floats]:
    """Return measurements (T, d) and their variances, infinite where a slot has told nothing.

    mean, variance  (T, d) of the releases; NaN or infinite where there was none
    model           with which they were made
    first           the number of the first slot
    """
    value, noise = np.zeros(mean.shape), np.full(mean.shape, np.inf)
    for slot in range(1, len(mean)):
        prior, prior_var = predict(mean[slot - 1], variance[slot - 1], model, first + slot)
        with np.errstate(divide="ignore", invalid="ignore"):
            information = 1.0 / variance[slot] - 1.0 / prior_var
            informed = np.isfinite(information) & (information * prior_var > _LEAST_GAIN)
            measured = (mean[slot] / variance[slot] - prior / prior_var) / information
        value[slot] = np.where(informed, measured, 0.0)
        noise[slot] = np.where(informed, 1.0 / np.where(informed, information, 1.0), np.inf)
    return value, noise
