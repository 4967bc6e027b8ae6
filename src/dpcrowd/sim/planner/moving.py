"""People who move between regions: what the diagonal form cannot follow, and what that adds to its error.

The recursion takes the changes c(t) of a region for independent. With a full matrix A they are not: a region into which
people flow goes on growing. In the steady state, with D = A - I and S = sum_k A^k Q (A^k)^T,

    Cov(c(t + h), c(t)) = D A^(h-1) (Q + A S D^T),   h >= 1

A filter with variance P that expects changes of variance q has the gain g = q/(P + q), and its error is
e(t) = (1 - g)(e(t - 1) + c(t)) + noise. The covariances C(h) of the changes add

    (1 - g)^2 / (1 - (1 - g)^2) * 2 sum_h (1 - g)^h C(h)

to its variance. Delays of records are neglected in this correction.
"""

from __future__ import annotations

import numpy as np

from dpcrowd.arrays import Floats
from dpcrowd.filters import ProcessModel

__all__ = ["change_covariances", "with_moving"]

LAGS = 300
_TERMS = 500  # as many as `ProcessModel.diagonal_var` sums


def change_covariances(model: ProcessModel, lags: int = LAGS) -> Floats | None:
    """Return C(1), ..., C(lags) of each region's changes, (lags, d); None if A has no flows between regions."""
    if model.transition.ndim < 2:
        return None
    transition, variance = model.matrix_transition, model.matrix_var
    step = transition - np.eye(model.regions)
    state_cov, state = np.zeros_like(variance), np.eye(model.regions)
    for _ in range(_TERMS):
        state_cov += state @ variance @ state.T
        state = state @ transition
    source = variance + transition @ state_cov @ step.T
    covariances = np.empty((lags, model.regions))
    for lag in range(lags):
        covariances[lag] = np.diag(step @ source)
        source = transition @ source
    return covariances


def with_moving(deviation: Floats, process_var: Floats, covariances: Floats) -> Floats:
    """Return the standard deviations (d,) of the diagonal form's errors if its changes have these covariances."""
    variance = np.square(deviation)
    rest = variance / (variance + process_var)  # 1 - g
    powers = rest ** np.arange(1, len(covariances) + 1)[:, None]
    addition = np.square(rest) / (1.0 - np.square(rest)) * 2.0 * (powers * covariances).sum(axis=0)
    return np.asarray(np.sqrt(np.maximum(variance + addition, 0.0)))
