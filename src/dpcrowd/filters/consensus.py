"""The Kalman-consensus information filter, diagonal form (Algorithm 1; Eqs. kgain and posterior).

    posterior = prior + posterior_var (y_i - Y_i prior) + C_i sum_{j in N_i, speaking} (prior_j - prior_i)
    C_i = beta P_i/(P_i + 1)

y_i and Y_i sum over J_i = N_i and i itself, restricted to the servers that speak in this slot. A speaker's own prior
may stand in the sum too: it adds exactly nothing. Servers without information take no part in the consensus term.
"""

from __future__ import annotations

import numpy as np

from dpcrowd.arrays import Floats
from dpcrowd.filters.kalman import update

__all__ = ["consensus_gain", "fuse"]


def consensus_gain(prior_var: Floats, beta: Floats | float) -> Floats:
    """C = beta P/(P + 1), written so that it has a limit for P -> infinity."""
    return np.asarray(beta * (1.0 - 1.0 / (1.0 + prior_var)))


def fuse(
    prior: Floats,
    prior_var: Floats,
    info_vec_sum: Floats,
    info_mat_sum: Floats,
    prior_sum: Floats,
    speakers: Floats,
    beta: Floats | float,
) -> tuple[Floats, Floats]:
    """Posterior mean and variance, (N, d).

    prior_sum, speakers  sum of the priors of those in J_i that speak and have information, and how many they are
    """
    posterior, posterior_var = update(prior, prior_var, info_vec_sum, info_mat_sum)
    pull = consensus_gain(prior_var, beta) * (prior_sum - speakers * prior)
    if not np.isfinite(prior_var).all():
        pull = np.where(np.isfinite(prior_var), pull, 0.0)
    return posterior + pull, posterior_var
