"""Records of servers whose shares are known up to an error: a wrong share is a deviation that stays.

With a share S + g, where g is the error of the share, a server's count is c = S r + delta, where delta = g r + who
happens to be there. As in `persistence`, the filter remembers what its error e has in common with each deviation,
x_i = Cov(e, delta_i), and takes the deviations into account without estimating them. Deviations of a partition sum to
0, so with their variances v

    Cov(delta) = diag(v) - u u^T,    u = v / sqrt(sum v)

which for users alone, v = H r, is the covariance of `persistence`. The innovations nu = z - S prior of a slot have

    Cov(nu) = D + W M W^T,           D = noise + v,     W = (S, x, u),     M = ((P, -1, 0), (-1, 0, 0), (0, 0, -1))

so the gain k = Cov(nu)^-1 (P S - x) follows from sums over the records, in order of the origins, and a system of three
equations per region (Woodbury). In units of the prior's deviation, S sqrt(P) and x/sqrt(P), with G = W^T D^-1 W:

    (A + G) b = (1, 0, 0),           A = ((0, -1, 0), (-1, -1, 0), (0, 0, -1)),    k = sqrt(P) D^-1 W b
    mean += k nu                     P <- P (1 - (1, -1, 0) G b)
    x <- (1 - k S) x + Cov(delta) k
"""

from __future__ import annotations

import numpy as np

from dpcrowd.arrays import Floats
from dpcrowd.filters.persistence import PersistentRecords, consistent, ordered_sum

__all__ = ["deviation_var", "fuse_uncertain", "retention"]

_LEAST_PART = 1e-9


def deviation_var(shares: Floats, share_var: Floats, people: Floats) -> Floats:
    """Return v of every server, of the same shape as the shares, from the variances of the shares' errors."""
    return np.asarray(shares * people + share_var * np.square(people))


def retention(shares: Floats, share_var: Floats, people: Floats, turnover: float) -> Floats:
    """Return the part of each deviation that is still there after a slot: wrong shares stay, and most users do."""
    users, wrong = shares * people, share_var * np.square(people)
    return np.asarray(((1.0 - turnover) * users + wrong) / (users + wrong))


def fuse_uncertain(
    prior: Floats, prior_var: Floats, cross: Floats, records: PersistentRecords, share_var: Floats
) -> tuple[Floats, Floats, Floats]:
    """Return posterior mean and variance (n, d), and x (m, n, d), from the priors of the slot and its records.

    records    `shares` are those that were learned, (m, n, d), and users are partitioned
    share_var  (m, n, d) the variances of their errors
    """
    var = deviation_var(records.shares, share_var, records.people)
    together = var / np.sqrt(ordered_sum(var))
    is_known = np.isfinite(prior_var)
    scale = np.sqrt(np.where(is_known, prior_var, 1.0))
    origins = records.origins
    informed = np.isfinite(records.noise_var).any(axis=0)
    cross = np.where(is_known, np.where(informed, consistent(cross, var, np.square(scale)), cross), 0.0)
    weight = 1.0 / (records.noise_var + var[origins])
    columns = (records.shares[origins] * scale, cross[origins] / scale, together[origins])
    gram = np.empty((*prior.shape, 3, 3))
    for i in range(3):
        for j in range(i + 1):
            gram[..., i, j] = gram[..., j, i] = ordered_sum(weight * columns[i] * columns[j])
    system = gram.copy()
    system[..., 0, 1] -= 1.0
    system[..., 1, 0] -= 1.0
    system[..., 1, 1] -= 1.0
    system[..., 2, 2] -= 1.0
    # Without a prior the gain is that of the records alone, whose deviations are the only common part: x is 0.
    alone = gram[..., 0, 0] + np.square(gram[..., 0, 2]) / (1.0 - gram[..., 2, 2])
    alone = np.where(informed, alone, 1.0)
    solved = np.linalg.solve(system, np.broadcast_to(np.array([1.0, 0.0, 0.0])[:, None], (*prior.shape, 3, 1)))[..., 0]
    first = np.stack([1.0 / alone, np.zeros_like(alone), gram[..., 0, 2] / (1.0 - gram[..., 2, 2]) / alone], axis=-1)
    solved = np.where(is_known[..., None], solved, first)
    gain = weight * sum(column * solved[..., i] for i, column in enumerate(columns)) * scale
    gain = np.where(informed, gain, 0.0)
    taken = np.einsum("...ij,...j->...i", gram, solved)
    after_var = np.where(is_known, np.square(scale) * (1.0 - taken[..., 0] + taken[..., 1]), 1.0 / alone)
    after_var = np.maximum(after_var, _LEAST_PART * np.square(scale))
    mean = prior + ordered_sum(gain * (records.noisy - records.shares[origins] * prior))
    mean = np.where(informed, mean, prior)
    left = np.where(is_known, 1.0 - taken[..., 0], 0.0)
    after = np.where(informed, left, 1.0) * cross - together * ordered_sum(together[origins] * gain)
    after[origins] += var[origins] * gain
    return mean, np.where(informed, after_var, prior_var), after
