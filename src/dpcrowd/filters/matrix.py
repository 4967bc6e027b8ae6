"""The filters of `kalman` and `consensus` with full covariances: a group of regions is one scalar measurement.

    prior = A posterior        prior_cov = A posterior_cov A^T + Q
    posterior_cov = (prior_cov^-1 + Y)^-1
    posterior = prior + posterior_cov (y - Y prior) + C (sum_j prior_j - n prior),   C = beta M/(|P|_F + 1)

The paper prints C = beta P/(|P| + 1). With a full A and a strongly correlated Q that can diverge under any bound by the
number of neighbours: where a sample has just settled a direction (M << P), the consensus must not stir it up again.
With M in place of P, and servers that know equally much, an error e becomes M (P^-1 e + gamma sum_j (e_j - e)), whose
size in the norm of M^-1 is at most that of e in the norm of P^-1 if gamma |P| n <= 1; and A cannot enlarge it, since
A M A^T <= the next P: stable for any A.

No inverse is formed. With the Cholesky factor P = L L^T and S = I + L^T Y L = K K^T,
posterior_cov = (K^-1 L^T)^T (K^-1 L^T), which is symmetric and positive definite by construction. A process without
noise of its own (Q singular, A not of full rank) would still let a prior become singular; a ridge far below any meaning
keeps it positive definite.
Servers that know nothing yet carry `known = False`; their mean and covariance are placeholders (0 and I).
"""

from __future__ import annotations

import numpy as np

from dpcrowd.arrays import Bools, Floats
from dpcrowd.filters.model import ProcessModel

__all__ = ["fuse_matrix", "group_info", "matrix_step", "predict_matrix", "update_matrix"]


# Relative to each region's own variance, so that regions may differ by any scale: well above what rounding takes away.
_RIDGE = 1e-12
_LEAST_VAR = 1e-30


def matrix_step(model: ProcessModel, slot: int | None = None) -> Floats:
    """Return A of the step to a slot, (d, d); `slot` as of `kalman.predict`."""
    if model.course is None or model.course.scale is None:
        return model.matrix_transition
    return np.diag(np.broadcast_to(model.carried(slot), (model.regions,)))


def predict_matrix(
    posterior: Floats, posterior_cov: Floats, model: ProcessModel, slot: int | None = None
) -> tuple[Floats, Floats]:
    """Return prior mean (N, d) and covariance (N, d, d) of the next slot; `slot` as of `kalman.predict`."""
    a, course = matrix_step(model, slot), model.course
    process_var = model.matrix_var if course is None or slot is None else np.diag(course.noise_var(slot))
    cov = a @ posterior_cov @ a.T + process_var
    cov = 0.5 * (cov + cov.swapaxes(-1, -2))
    variances = np.einsum("...kk->...k", cov)  # a view
    variances += _RIDGE * variances + _LEAST_VAR
    if course is not None:  # whose A is diagonal
        assert slot is not None
        return course.mean(slot) + model.carried(slot) * (posterior - course.mean(slot - 1)), cov
    # One product per server: posterior @ a.T takes another path for one row than for many, with other last bits.
    return (a @ posterior[..., None])[..., 0], cov


def group_info(group_noisy: Floats, share: Floats, group_var: Floats, members: Floats) -> tuple[Floats, Floats]:
    """Return the information of scalar measurements z_g = H sum_{k in g} r_k + noise, or sum_{k in g} H_k r_k + noise.

    group_noisy, group_var  (N, d): value and variance of the group whose pivot is region g; variance inf: no group
    members                 (N, d, d): members[n, g, k] = 1 if region k is in the group with pivot g
    info_vec is (N, d) = H sum_g 1_g z_g/R_g and info_mat (N, d, d) is H^2 sum_g 1_g 1_g^T/R_g.
    """
    if share.shape[-1] > 1:  # shares differ by region
        members, share = members * share[:, None, :], np.ones((len(share), 1))
    weight = share / group_var
    scaled = members * weight[..., None]
    info_vec = np.einsum("ngk,ng->nk", scaled, group_noisy)
    info_mat = np.einsum("ngk,ngl->nkl", scaled, members, optimize=True) * share[..., None]
    return info_vec, info_mat


def update_matrix(
    prior: Floats, prior_cov: Floats, known: Bools, info_vec: Floats, info_mat: Floats
) -> tuple[Floats, Floats, Bools]:
    """Return posterior mean, covariance and whether a server has an estimate at all.

    A server without a prior takes y and Y alone, once Y determines every region; until then it has no estimate.
    """
    if known.all():
        return *_update_known(prior, prior_cov, info_vec, info_mat), known
    posterior, posterior_cov, after = prior.copy(), prior_cov.copy(), known.copy()
    rows = np.flatnonzero(known)
    if rows.size:
        posterior[rows], posterior_cov[rows] = _update_known(
            prior[rows], prior_cov[rows], info_vec[rows], info_mat[rows]
        )
    for row in np.flatnonzero(~known):
        if _determines_all(info_mat[row]):
            lower = np.linalg.cholesky(info_mat[row])
            root = np.linalg.solve(lower, np.eye(len(lower)))
            posterior_cov[row] = root.T @ root
            posterior[row] = posterior_cov[row] @ info_vec[row]
            after[row] = True
    return posterior, posterior_cov, after


def _determines_all(info: Floats) -> bool:
    scale = np.sqrt(np.diag(info))
    if not (scale > 0).all():
        return False
    return bool(np.linalg.eigvalsh(info / np.outer(scale, scale)).min() > 1e-9)


def _update_known(prior: Floats, prior_cov: Floats, info_vec: Floats, info_mat: Floats) -> tuple[Floats, Floats]:
    lower = np.linalg.cholesky(prior_cov)
    upper = lower.swapaxes(-1, -2)
    inner = upper @ info_mat @ lower
    inner = 0.5 * (inner + inner.swapaxes(-1, -2)) + np.eye(prior.shape[-1])
    root = np.linalg.solve(np.linalg.cholesky(inner), upper)
    posterior_cov = root.swapaxes(-1, -2) @ root
    innovation = info_vec - np.einsum("nkl,nl->nk", info_mat, prior)
    return prior + np.einsum("nkl,nl->nk", posterior_cov, innovation), posterior_cov


def fuse_matrix(
    prior: Floats,
    prior_cov: Floats,
    known: Bools,
    info_vec_sum: Floats,
    info_mat_sum: Floats,
    prior_sum: Floats,
    speakers: Floats,
    beta: Floats | float,
) -> tuple[Floats, Floats, Bools]:
    """Return posterior mean, covariance and `known`; sums as in `consensus.fuse`, `speakers` is (N, 1)."""
    posterior, posterior_cov, after = update_matrix(prior, prior_cov, known, info_vec_sum, info_mat_sum)
    size = np.linalg.norm(prior_cov, axis=(-2, -1))[:, None]
    pull = np.einsum("nkl,nl->nk", posterior_cov, prior_sum - speakers * prior) * (beta / (size + 1.0))
    return posterior + np.where(known[:, None], pull, 0.0), posterior_cov, after
