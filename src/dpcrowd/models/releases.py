"""Measurements behind releases: what a filter has added to its prediction in each slot.

A released estimate is a filter's: it contains all records so far, so it is much smoother than the crowd, and its errors
last. Fitted as if they were counts, releases would show the filter and not the crowd. But with the variances that come
with them the filter can be undone: what slot t has added to the prediction from slot t-1 is a measurement of its own,

    P  = A^2 var(t-1) + Q                    the variance of the prediction
    1/R = 1/var(t) - 1/P                     the information of the slot's records
    z  = R (mean(t)/var(t) - prior/P)        what they say

whose error is independent of those of other slots. So A and Q, or the model of the filter, have to be known. A table
shows Q only where slots without records occur: there, and nowhere else, variances grow by the same step wherever they
start. With a record, a larger variance grows by less. Where servers take turns, every slot has a record of some server:
the largest growth is then a fraction of Q, and measurements that are computed with it are far too lively.
"""

from __future__ import annotations

import numpy as np

from dpcrowd.arrays import Bools, Floats
from dpcrowd.errors import BadInput
from dpcrowd.filters import ProcessModel, predict

__all__ = ["check_growth", "measurements", "walk_of"]

_LEAST_GAIN = 1e-3  # information of a slot, relative to the prediction's, below which it has told nothing
_SAME_STEP = 1e-3  # relative difference of two growths that are the same step
_FEWEST_STEPS = 4  # slots that have to show the step
_LEAST_SPREAD = 0.05  # of the variances from which they start; with these limits, Q is wrong by 1% at most
_ROUNDING = 0.05  # relative difference from Q that the rounding of a table, or of a configuration, may make
_FEW = 0.05  # part of the slots that may contradict Q: a network may have been revised
_REMEDY = (
    "give --made-with network.toml, the file of the network that made the releases, or --process-var NUMBER[,NUMBER...]"
)


def walk_of(variance: Floats) -> ProcessModel:
    """Return the random walk with which releases of these variances (T, d) were made, or refuse to guess it."""
    step = _visible_step(variance)
    hidden = int(np.isnan(step).sum())
    if hidden:
        raise BadInput(
            f"the releases do not show the process variance Q with which they were made: in {hidden} of {step.size} "
            f"regions the variances do not grow by the same step in at least {_FEWEST_STEPS} slots, as they do in "
            f"slots without records; {_REMEDY}."
        )
    return ProcessModel.of(1.0, step)


def check_growth(variance: Floats, model: ProcessModel, regions: tuple[str, ...]) -> None:
    """Refuse a model that releases of these variances (T, d) cannot have been made with.

    Records make a prediction more precise, so no variance is larger than that of the prediction; and where a table
    shows the Q of a random walk, that is the one.
    """
    none = np.zeros(len(regions))
    predicted = np.array([predict(none, variance[t - 1], model, t)[1] for t in range(1, len(variance))])
    with np.errstate(invalid="ignore"):
        known = np.isfinite(variance[1:]) & np.isfinite(predicted)
        excess = np.where(known, variance[1:] - predicted, 0.0)
    contradictions = (excess > _ROUNDING * model.diagonal_var).sum(axis=0) > _FEW * known.sum(axis=0)
    if contradictions.any():
        raise BadInput(
            f"the variance of region '{regions[int(np.argmax(contradictions))]}' grows by more than the given process "
            "variance allows. If it is not the Q with which the releases were made, "
            f"{_REMEDY}. If it is, the releases are not those of a filter alone, but of groups of regions "
            "(dpcrowd-plus) or averages of servers, and no model can be fitted on them; give releases of relay."
        )
    step = _visible_step(variance)
    if model.course is not None or not np.all(model.diagonal_transition == 1.0):
        return
    wrong = np.abs(step - model.diagonal_var) > _ROUNDING * step
    if wrong.any():
        place = int(np.argmax(wrong))
        raise BadInput(
            f"the releases were not made with the process variance {model.diagonal_var[place]:g} of region "
            f"'{regions[place]}': in slots without records, its variance grows by {step[place]:g}; {_REMEDY}."
        )


def _visible_step(variance: Floats) -> Floats:
    """Return the step (d,) by which variances grow in slots without records; NaN where the releases do not show it."""
    with np.errstate(invalid="ignore"):
        growth = np.diff(variance, axis=0)
    growth = np.where(np.isfinite(growth) & (growth > 0.0), growth, 0.0)
    largest = growth.max(axis=0)
    shown: Bools = (growth > 0.0) & (growth >= (1.0 - _SAME_STEP) * largest)
    reached = np.where(np.isfinite(variance[1:]), variance[1:], 0.0)
    highest = np.where(shown, reached, 0.0).max(axis=0)
    lowest = np.where(shown, reached, np.inf).min(axis=0)
    visible = (shown.sum(axis=0) >= _FEWEST_STEPS) & (highest - lowest >= _LEAST_SPREAD * highest)
    return np.where(visible, largest, np.nan)


def measurements(mean: Floats, variance: Floats, model: ProcessModel, first: int = 0) -> tuple[Floats, Floats]:
    """Return measurements (T, d) and their variances, infinite where a slot has told nothing.

    mean, variance  (T, d) of the releases; NaN or infinite where there was none: what its records said is then in the
                    measurement of the next release
    model           with which they were made
    first           the number of the first slot
    """
    value, noise = np.zeros(mean.shape), np.full(mean.shape, np.inf)
    last, last_var = mean[0], variance[0]
    for slot in range(1, len(mean)):
        prior, prior_var = predict(last, last_var, model, first + slot)
        with np.errstate(divide="ignore", invalid="ignore"):
            information = 1.0 / variance[slot] - 1.0 / prior_var
            informed = np.isfinite(information) & (information * prior_var > _LEAST_GAIN)
            measured = (mean[slot] / variance[slot] - prior / prior_var) / information
        value[slot] = np.where(informed, measured, 0.0)
        noise[slot] = np.where(informed, 1.0 / np.where(informed, information, 1.0), np.inf)
        released = np.isfinite(variance[slot])
        last, last_var = np.where(released, mean[slot], prior), np.where(released, variance[slot], prior_var)
    return value, noise
