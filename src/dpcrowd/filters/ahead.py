"""Prediction over many slots at once, by repeated doubling: for a server that was away.

    A_2k = A_k^2        Q_2k = A_k Q_k A_k^T + Q_k

In exact arithmetic the same as that many single predictions; rounding differs in the last digits.

With an expected course, mean = mu(t) + A^k (m - mu(t-k)), and the variances of the slots in between are summed up.

Filters that learn and have no course go slot by slot. After a long time they agree on what the model makes of their
estimate, and begin to learn anew.
"""

from __future__ import annotations

import numpy as np

from dpcrowd.arrays import Floats
from dpcrowd.filters.bank_estimate import combined
from dpcrowd.filters.learning import Bank, Beliefs, Priors, predict_bank, reset_bank
from dpcrowd.filters.model import ProcessModel

__all__ = ["moved_in_time", "predict_ahead", "predict_ahead_matrix", "predict_bank_ahead"]

_MOST_SLOTS = 1000
"""After this many slots, filters that learn begin anew."""


def predict_ahead(
    mean: Floats, var: Floats, model: ProcessModel, steps: int, slot: int | None = None
) -> tuple[Floats, Floats]:
    """Return mean and variance `steps` slots later, diagonal; arrays (..., d). `slot` as of `kalman.predict`."""
    if model.course is not None:
        assert slot is not None
        course, carried = model.course, model.carried(slot, steps)
        moved = course.mean(slot) + carried * (mean - course.mean(slot - steps))
        return np.asarray(moved), carried * carried * var + course.added_var(slot, steps, model.transition)
    a = np.broadcast_to(model.diagonal_transition, (model.regions,))[:, None, None]
    transition, process_var = _doubled(a, model.diagonal_var[:, None, None], steps)
    factor, spread = transition[:, 0, 0], process_var[:, 0, 0]
    finite = np.isfinite(var)
    return factor * mean, np.where(finite, factor * factor * np.where(finite, var, 0.0) + spread, np.inf)


def predict_ahead_matrix(
    mean: Floats, cov: Floats, model: ProcessModel, steps: int, slot: int | None = None
) -> tuple[Floats, Floats]:
    """Return mean (..., d) and covariance (..., d, d) `steps` slots later."""
    if model.course is not None:
        assert slot is not None
        course, carried = model.course, np.broadcast_to(model.carried(slot, steps), (model.regions,))
        moved = course.mean(slot) + carried * (mean - course.mean(slot - steps))
        added = course.added_var(slot, steps, model.transition)
        return np.asarray(moved), np.outer(carried, carried) * cov + np.diag(added)
    transition, process_var = _doubled(model.matrix_transition, model.matrix_var, steps)
    return (transition @ mean[..., None])[..., 0], transition @ cov @ transition.T + process_var


def predict_bank_ahead(bank: Bank, model: ProcessModel, beliefs: Beliefs, steps: int) -> Priors:
    """Return the priors `steps` slots later of filters that learn, without an expected course."""
    for _ in range(min(steps, _MOST_SLOTS) - 1):
        before = predict_bank(bank, model, beliefs, 0)
        bank = Bank(before.mean, before.var, before.weight)
    if steps > _MOST_SLOTS:
        bank = reset_bank(*predict_ahead(*combined(bank, beliefs), model, steps - _MOST_SLOTS), beliefs)
    return predict_bank(bank, model, beliefs, 0)


def moved_in_time(mean: Floats, var: Floats, model: ProcessModel, before: int, slot: int) -> tuple[Floats, Floats]:
    """Return what an estimate of slot `before` says of another slot: the same deviation from the course.

    var  (..., d) variances, or (..., d, d) covariances
    """
    course = model.course
    if course is None:
        return mean, var
    if course.scale is None:
        return np.asarray(course.mean(slot) + (mean - course.mean(before))), var
    ratio = np.asarray(course.ratio(before, slot))
    moved = np.asarray(course.mean(slot) + ratio * (mean - course.mean(before)))
    return moved, np.asarray((np.outer(ratio, ratio) if var.ndim > mean.ndim else np.square(ratio)) * var)


def _doubled(a: Floats, q: Floats, steps: int) -> tuple[Floats, Floats]:
    """Return A^steps, and the sum of A^k Q (A^k)^T over k < steps."""
    power, total = np.broadcast_to(np.eye(a.shape[-1]), a.shape), np.zeros_like(q)
    while steps:
        if steps & 1:
            total = a @ total @ a.swapaxes(-1, -2) + q
            power = a @ power
        q = a @ q @ a.swapaxes(-1, -2) + q
        a = a @ a
        steps >>= 1
    return power, total
