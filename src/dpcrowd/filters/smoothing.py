"""Past slots, estimated with what came later: the fixed-interval smoother of Rauch, Tung and Striebel.

A filter knows of slot t what was said up to t. When later records are there, going back from the last slot improves
all before it, at no cost in privacy, since only released records are used:

    G    = P A^T / prior_var(t+1)
    mean = m + G (smoothed(t+1) - A m)
    var  = (I - G A) P (I - G A)^T + G (smoothed_var(t+1) + Q) G^T

where (m, P) is the filter's posterior of slot t and prior_var = A P A^T + Q what it expected of the next slot. In the
second form every term is positive, so no rounding can make a variance negative. Where the filter has doubted its prior
(`doubt`, a factor), the process has moved farther than Q says: Q is what the doubted prior_var leaves for it.

Where nothing was known yet (an infinite variance), later slots tell alone: mean = smoothed(t+1)/A, and
var = (smoothed_var(t+1) + Q)/A^2; nothing, if A forgets. Arrays have the slots first, then servers, then regions.
"""

from __future__ import annotations

import numpy as np

from dpcrowd.arrays import Bools, Floats
from dpcrowd.filters.kalman import predict
from dpcrowd.filters.matrix import predict_matrix
from dpcrowd.filters.model import ProcessModel

__all__ = ["smooth", "smooth_matrix"]


_WORST_CONDITION = 1e12  # of an A that can be undone


def smooth(means: Floats, variances: Floats, doubt: Floats, model: ProcessModel) -> tuple[Floats, Floats]:
    """Smoothed means and variances, (T, N, d) each, from a filter's posteriors in diagonal form.

    variances  infinite where nothing is known; so are the smoothed ones where nothing came later either
    doubt      (T, N) by what the prior's variance of each slot was multiplied
    """
    smoothed, smoothed_var = means.copy(), variances.copy()
    a = np.broadcast_to(model.diagonal_transition, means.shape[2:])
    for slot in range(len(means) - 2, -1, -1):
        mean, var, after, after_var = means[slot], variances[slot], smoothed[slot + 1], smoothed_var[slot + 1]
        prior, prior_var = predict(mean, var, model)
        prior_var = prior_var * doubt[slot + 1][:, None]
        known, later = np.isfinite(var), np.isfinite(after_var)
        with np.errstate(invalid="ignore", divide="ignore"):
            gain = a * var / prior_var
            process_var = prior_var - a * a * var
            # Of a process without noise of its own the next slot says all: 0/0.
            gain = np.where(prior_var > 0.0, gain, 0.0)
            forth = mean + gain * (after - prior)
            forth_var = np.square(1.0 - gain * a) * var + gain * gain * (after_var + process_var)
            back, back_var = after / a, (after_var + model.diagonal_var) / (a * a)
        late = ~known & later & (a != 0.0)
        smoothed[slot] = np.where(known, forth, np.where(late, back, mean))
        smoothed_var[slot] = np.where(known, forth_var, np.where(late, back_var, np.inf))
    return smoothed, smoothed_var


def smooth_matrix(
    means: Floats, covariances: Floats, known: Bools, doubt: Floats, model: ProcessModel
) -> tuple[Floats, Floats, Bools]:
    """Smoothed means (T, N, d) and covariances (T, N, d, d), and where they are known, (T, N)."""
    smoothed, smoothed_cov, smoothed_known = means.copy(), covariances.copy(), known.copy()
    a, q = model.matrix_transition, model.matrix_var
    can_go_back = np.linalg.cond(a) < _WORST_CONDITION
    eye = np.eye(model.regions)
    for slot in range(len(means) - 2, -1, -1):
        after, after_cov = smoothed[slot + 1], smoothed_cov[slot + 1]
        rows = np.flatnonzero(known[slot])
        if rows.size:
            mean, cov = means[slot][rows], covariances[slot][rows]
            prior, prior_cov = predict_matrix(mean, cov, model)
            prior_cov = prior_cov * doubt[slot + 1][rows][:, None, None]
            gain = np.linalg.solve(prior_cov, a @ cov).swapaxes(-1, -2)  # both are symmetric
            process_cov = prior_cov - a @ cov @ a.T
            left = eye - gain @ a
            smoothed[slot][rows] = mean + (gain @ (after[rows] - prior)[..., None])[..., 0]
            total = left @ cov @ left.swapaxes(-1, -2) + gain @ (after_cov[rows] + process_cov) @ gain.swapaxes(-1, -2)
            smoothed_cov[slot][rows] = 0.5 * (total + total.swapaxes(-1, -2))
        rows = np.flatnonzero(~known[slot] & smoothed_known[slot + 1])
        if rows.size and can_go_back:
            undo = np.linalg.inv(a)
            smoothed[slot][rows] = (undo @ after[rows][..., None])[..., 0]
            smoothed_cov[slot][rows] = undo @ (after_cov[rows] + q) @ undo.T
            smoothed_known[slot][rows] = True
    return smoothed, smoothed_cov, smoothed_known
