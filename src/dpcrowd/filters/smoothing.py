"""Past slots, estimated with what came later: the fixed-interval smoother of Rauch, Tung and Striebel.

A filter estimates slot t from the records up to t. Once later records are there, a pass back from the last slot
improves all slots before it, at no cost in privacy, since only released records are used:

    G    = P A^T / prior_var(t+1)
    mean = m + G (smoothed(t+1) - A m)
    var  = (I - G A) P (I - G A)^T + G (smoothed_var(t+1) + Q) G^T

where (m, P) is the filter's posterior of slot t, and prior_var = A P A^T + Q the variance of its prediction for slot
t + 1. In this form of var every term is positive, so no rounding can make a variance negative. Where the filter has
multiplied the variance of its prior by a factor (`doubt`), the process has moved farther than Q says: there Q is the
multiplied prior_var less A P A^T.

Where nothing was known yet (an infinite variance), the later slots alone decide: mean = smoothed(t+1)/A, and
var = (smoothed_var(t+1) + Q)/A^2; if A = 0, the slot stays unknown. Arrays have the slots first, then servers, then
regions.
"""

from __future__ import annotations

import numpy as np

from dpcrowd.arrays import Bools, Floats
from dpcrowd.filters.kalman import predict
from dpcrowd.filters.matrix import matrix_step, predict_matrix
from dpcrowd.filters.model import ProcessModel

__all__ = ["smooth", "smooth_matrix", "smooth_steps"]


_WORST_CONDITION = 1e12  # of an A that can be inverted


def smooth(
    means: Floats, variances: Floats, doubt: Floats, model: ProcessModel, first: int = 0
) -> tuple[Floats, Floats]:
    """Return smoothed means and variances, (T, N, d) each, from a filter's posteriors in diagonal form.

    variances  infinite where nothing is known; so are the smoothed ones where nothing came later either
    doubt      (T, N) factors by which the variance of each slot's prior was multiplied
    first      the number of the first slot, which a course needs
    """
    smoothed, smoothed_var = means.copy(), variances.copy()
    for slot in range(len(means) - 2, -1, -1):
        a = np.broadcast_to(model.carried(first + slot + 1), means.shape[2:])
        mean, var, after, after_var = means[slot], variances[slot], smoothed[slot + 1], smoothed_var[slot + 1]
        prior, prior_var = predict(mean, var, model, first + slot + 1)
        prior_var = prior_var * doubt[slot + 1][:, None]
        known, later = np.isfinite(var), np.isfinite(after_var)
        with np.errstate(invalid="ignore", divide="ignore"):
            gain = a * var / prior_var
            process_var = prior_var - a * a * var
            # 0/0 in a process without noise of its own, of which the filter knows everything.
            gain = np.where(prior_var > 0.0, gain, 0.0)
            forth = mean + gain * (after - prior)
            forth_var = np.square(1.0 - gain * a) * var + gain * gain * (after_var + process_var)
            back, back_var = after / a, (after_var + model.diagonal_var) / (a * a)
        late = ~known & later & (a != 0.0)
        smoothed[slot] = np.where(known, forth, np.where(late, back, mean))
        smoothed_var[slot] = np.where(known, forth_var, np.where(late, back_var, np.inf))
    return smoothed, smoothed_var


def smooth_steps(means: Floats, variances: Floats, doubt: Floats, steps: Floats) -> tuple[Floats, Floats]:
    """Return smoothed means and variances, (T, N, d) each, of filters that learn: their predictions are given.

    steps  (T, 3, N, d) of each slot: mean and variance of the prediction for the next slot, and its covariance with
           the posterior

    With several filters side by side no single A and Q leads from a posterior to the next prior, but the best linear
    pass back needs these three numbers only: G = cov/prior_var.
    """
    smoothed, smoothed_var = means.copy(), variances.copy()
    for slot in range(len(means) - 2, -1, -1):
        prior, prior_var, cov = steps[slot]
        mean, var, after, after_var = means[slot], variances[slot], smoothed[slot + 1], smoothed_var[slot + 1]
        with np.errstate(invalid="ignore", divide="ignore"):
            gain = cov / (prior_var * doubt[slot + 1][:, None])
            known = np.isfinite(var) & np.isfinite(after_var) & np.isfinite(gain)
            smoothed[slot] = np.where(known, mean + gain * (after - prior), mean)
            smoothed_var[slot] = np.where(known, np.maximum(var - gain * cov, 0.0) + gain * gain * after_var, var)
    return smoothed, smoothed_var


def smooth_matrix(
    means: Floats, covariances: Floats, known: Bools, doubt: Floats, model: ProcessModel, first: int = 0
) -> tuple[Floats, Floats, Bools]:
    """Return smoothed means (T, N, d) and covariances (T, N, d, d), and where they are known, (T, N)."""
    smoothed, smoothed_cov, smoothed_known = means.copy(), covariances.copy(), known.copy()
    q = model.matrix_var
    invertible = np.linalg.cond(model.matrix_transition) < _WORST_CONDITION
    eye = np.eye(model.regions)
    for slot in range(len(means) - 2, -1, -1):
        a = matrix_step(model, first + slot + 1)
        after, after_cov = smoothed[slot + 1], smoothed_cov[slot + 1]
        rows = np.flatnonzero(known[slot])
        if rows.size:
            mean, cov = means[slot][rows], covariances[slot][rows]
            prior, prior_cov = predict_matrix(mean, cov, model, first + slot + 1)
            prior_cov = prior_cov * doubt[slot + 1][rows][:, None, None]
            gain = np.linalg.solve(prior_cov, a @ cov).swapaxes(-1, -2)  # both are symmetric
            process_cov = prior_cov - a @ cov @ a.T
            rest = eye - gain @ a
            smoothed[slot][rows] = mean + (gain @ (after[rows] - prior)[..., None])[..., 0]
            total = rest @ cov @ rest.swapaxes(-1, -2) + gain @ (after_cov[rows] + process_cov) @ gain.swapaxes(-1, -2)
            smoothed_cov[slot][rows] = 0.5 * (total + total.swapaxes(-1, -2))
        rows = np.flatnonzero(~known[slot] & smoothed_known[slot + 1])
        if rows.size and invertible:
            inverse = np.linalg.inv(a)
            smoothed[slot][rows] = (inverse @ after[rows][..., None])[..., 0]
            smoothed_cov[slot][rows] = inverse @ (after_cov[rows] + q) @ inverse.T
            smoothed_known[slot][rows] = True
    return smoothed, smoothed_cov, smoothed_known
