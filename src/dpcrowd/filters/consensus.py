"""The Kalman-consensus information filter, diagonal form (Algorithm 1; Eqs. kgain and posterior).

    posterior = prior + posterior_var (y_i - Y_i prior) + C_i sum_{j in N_i, speaking} (prior_j - prior_i)
    C_i = beta P_i/(P_i + 1)

y_i and Y_i sum over J_i = N_i and i itself, restricted to the servers that speak in this slot. A speaker's own prior
may stand in the sum too: it adds exactly nothing. Servers without information take no part in the consensus term.

Beyond a bound on beta the filter can diverge. With n speaking neighbours the iteration is stable if C n < 1 - M Y/2.
Since M Y < 1 and C < beta, beta * max_degree <= 1/2 suffices; on a ring, beta = 1/3 already diverges. Where the process
itself grows (|A| > 1), what the consensus overshoots grows with it, and beta * max_degree <= 1/(2 |A|) is needed. The
matrix form takes M for P in its gain, and is then stable under the same bound for any A (`dpcrowd.filters.matrix`).
"""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np

from dpcrowd.arrays import Floats
from dpcrowd.errors import BadInput
from dpcrowd.filters.kalman import update

__all__ = ["check_gain", "consensus_gain", "consensus_pull", "default_gain", "fuse"]


def consensus_gain(prior_var: Floats, beta: Floats | float) -> Floats:
    """Return C = beta P/(P + 1), written so that it has a limit for P -> infinity."""
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
    """Return posterior mean and variance, (N, d).

    prior_sum, speakers  sum of the priors of those in J_i that speak and have information, and how many they are
    """
    posterior, posterior_var = update(prior, prior_var, info_vec_sum, info_mat_sum)
    return posterior + consensus_pull(prior, prior_var, prior_sum, speakers, beta), posterior_var


def consensus_pull(
    prior: Floats, prior_var: Floats, prior_sum: Floats, speakers: Floats, beta: Floats | float
) -> Floats:
    """Return the consensus term, (N, d): what the priors of speaking neighbours add to the posterior."""
    pull = consensus_gain(prior_var, beta) * (prior_sum - speakers * prior)
    if not np.isfinite(prior_var).all():
        pull = np.where(np.isfinite(prior_var), pull, 0.0)
    return np.asarray(pull)


def default_gain(max_degree: Any, growth: float = 1.0) -> Any:
    """Return beta = 1/(2 (1 + max_degree)), divided by the growth max(1, |A|); a number, or an array of them."""
    return 1.0 / (2.0 * (1.0 + max_degree)) / growth


def check_gain(beta: float, max_degree: int, growth: float = 1.0) -> float:
    """Return beta, or refuse it with the bound."""
    if not issubclass(type(beta), Real) or not 0.0 <= beta < float("inf"):
        raise BadInput(f"beta must be a finite number >= 0; given {beta}.")
    if beta * max_degree * growth > 0.5:
        grows = "" if growth == 1.0 else f"*{growth:g}"
        raise BadInput(
            f"beta = {beta:g} can diverge: a server here has up to {max_degree} neighbours, so beta must be at most "
            f"1/(2*{max_degree}{grows}) = {_rounded_down(0.5 / max_degree / growth)}; leave it out for the default "
            f"{default_gain(max_degree, growth):.6g}."
        )
    return beta


def _rounded_down(bound: float) -> str:
    """Return six digits that are not above the bound: whoever types what the message says must not be refused again."""
    from decimal import ROUND_DOWN, Context

    return str(Context(prec=6, rounding=ROUND_DOWN).create_decimal_from_float(bound))
