"""The Kalman filter in information form, diagonal: predict and update (Eq. stdKF, Algorithm 1 without neighbours).

    prior     = A posterior                 prior_var     = A^2 posterior_var + Q
    posterior = prior + posterior_var (y - Y prior)        posterior_var = 1/(1/prior_var + Y)

with y = sum of H z/R and Y = sum of H^2/R over the observations fused. An infinite variance means "no information":
such an entry has no estimate (its mean is held at 0 and means nothing) until the first observation arrives.
With an expected course mu, prior = mu(t) + A (posterior - mu(t-1)), and A and Q are those of the slot (`course`).
Arrays have servers first and regions last, (N, d).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpcrowd.arrays import Floats
from dpcrowd.filters.model import ProcessModel

__all__ = ["observation_info", "predict", "update"]


def predict(
    posterior: Floats, posterior_var: Floats, model: ProcessModel, slot: int | None = None
) -> tuple[Floats, Floats]:
    """Return prior mean and variance of the next slot; `slot`, its number, is needed if the model has a course."""
    a = model.carried(slot)
    if model.course is not None:
        assert slot is not None
        course = model.course
        mean = course.mean(slot) + a * (posterior - course.mean(slot - 1))
        return mean, (a * a) * posterior_var + course.noise_var(slot)
    if a.ndim == 0 and a == 1.0:  # the paper's setting; two multiplications less
        return posterior, posterior_var + model.diagonal_var
    with np.errstate(invalid="ignore"):
        spread = (a * a) * posterior_var
    # 0 * inf, where A forgets a region that was never known: still nobody has seen it.
    return a * posterior, np.where(np.isfinite(posterior_var), spread, np.inf) + model.diagonal_var


def observation_info(noisy: Floats, share: Floats, obs_var: Floats, where: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """Return info_vec = H z/R and info_mat = H^2/R (Eq. weight), zero where nothing was sampled."""
    weight = np.where(where, share / obs_var, 0.0)
    return weight * noisy, weight * share


def update(prior: Floats, prior_var: Floats, info_vec: Floats, info_mat: Floats) -> tuple[Floats, Floats]:
    """Return posterior mean and variance after fusing summed information (Eq. kgain, first line)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        precision = 1.0 / prior_var + info_mat
        posterior_var = 1.0 / precision
        step = (info_vec - info_mat * prior) * posterior_var
    if not np.isfinite(posterior_var).all():
        # 0 * inf: no information before and none now, so the mean stays where it was.
        step = np.where(precision > 0.0, step, 0.0)
    return prior + step, posterior_var
