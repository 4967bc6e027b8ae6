"""Records of servers whose shares are known up to an error: a wrong share is a deviation that stays.

With a share S + g, where g is the error of the share, a server's count is c = S r + delta, where delta = g r + who
happens to be there. As in `persistence`, the filter remembers what its error e has in common with each deviation,
x_i = Cov(e, delta_i), and takes the deviations into account without estimating them. Errors of shares have a part f in
common (`share_learning`): nobody knows the part of servers that are not heard, and all others are then wrong together.
The rest is independent but for the sum of a partition's deviations, which is 0. With the variances v of the rest, and f
in units of people:

    Cov(delta) = diag(v) - u u^T + f f^T,    u = v / sqrt(sum v)

which for users alone, v = H r, is the covariance of `persistence`. The innovations nu = z - S prior of a slot have

    Cov(nu) = D + W M W^T,    D = noise + v,    W = (S, x, u, f),    M = ((P, -1), (-1, 0)), then -1 and 1

so the gain k = Cov(nu)^-1 (P S - x) follows from sums over the records, in order of the origins, and a system of four
equations per region (Woodbury). In units of the prior's deviation, S sqrt(P) and x/sqrt(P), with G = W^T D^-1 W and
A = M^-1 = ((0, -1), (-1, -1)), then -1 and 1:

    (A + G) b = (1, 0, 0, 0)         k = sqrt(P) D^-1 W b
    mean += k nu                     P <- P (1 - (1, -1, 0, 0) G b)
    x <- (1 - k S) x + Cov(delta) k
"""

from __future__ import annotations

import numpy as np

from dpcrowd.arrays import Floats
from dpcrowd.filters.persistence import PersistentRecords, consistent, ordered_sum

__all__ = ["fuse_uncertain", "retention"]

_LEAST_PART = 1e-9
_INVERSE = np.array([[0.0, -1.0, 0.0, 0.0], [-1.0, -1.0, 0.0, 0.0], [0.0, 0.0, -1.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
_WITHOUT_PRIOR = np.array([[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, -1.0, 0.0], [0.0, 0.0, 0.0, 1.0]])


def retention(shares: Floats, share_var: Floats, people: Floats, turnover: float) -> Floats:
    """Return the part of each deviation that is still there after a slot: wrong shares stay, and most users do."""
    users, wrong = shares * people, share_var * np.square(people)
    return np.asarray(((1.0 - turnover) * users + wrong) / (users + wrong))


def fuse_uncertain(
    prior: Floats, prior_var: Floats, cross: Floats, records: PersistentRecords, share_var: Floats, common: Floats
) -> tuple[Floats, Floats, Floats]:
    """Return posterior mean and variance (n, d), and x (m, n, d), from the priors of the slot and its records.

    records    `shares` are those that were learned, (m, n, d), and users are partitioned
    share_var  (m, n, d) the variances of their errors
    common     (m, n, d) what the errors have in common
    """
    people = records.people
    rest = np.maximum(share_var - np.square(common), 0.0)
    var = records.shares * people + rest * np.square(people)
    shared = common * people
    together = var / np.sqrt(ordered_sum(var))
    is_known = np.isfinite(prior_var)
    scale = np.sqrt(np.where(is_known, prior_var, 1.0))
    origins = records.origins
    informed = np.isfinite(records.noise_var).any(axis=0)
    possible = consistent(cross, var + np.square(shared), np.square(scale))
    cross = np.where(is_known, np.where(informed, possible, cross), 0.0)
    weight = 1.0 / (records.noise_var + var[origins])
    columns = (records.shares[origins] * scale, cross[origins] / scale, together[origins], shared[origins])
    gram = np.empty((*prior.shape, 4, 4))
    for i in range(4):
        for j in range(i + 1):
            gram[..., i, j] = gram[..., j, i] = ordered_sum(weight * columns[i] * columns[j])
    # Without a prior x is 0, and a prior variance of 1 is taken off again: k S = 1, and records alone count.
    system = gram + _INVERSE
    system[~is_known] = gram[~is_known] + _WITHOUT_PRIOR
    system[~informed] = np.eye(4)
    right = np.broadcast_to(np.array([[1.0], [0.0], [0.0], [0.0]]), (*prior.shape, 4, 1))
    solved = np.linalg.solve(system, right)[..., 0]
    taken = [sum(gram[..., i, j] * solved[..., j] for j in range(4)) for i in range(2)]
    factor = np.where(is_known, 1.0, 1.0 / np.where(informed & ~is_known, taken[0], 1.0))
    gain = weight * sum(column * solved[..., i] for i, column in enumerate(columns)) * scale * factor
    gain = np.where(informed, gain, 0.0)
    after_var = np.where(is_known, np.square(scale) * (1.0 - taken[0] + taken[1]), factor - 1.0)
    after_var = np.maximum(after_var, _LEAST_PART * np.square(scale))
    mean = prior + ordered_sum(gain * (records.noisy - records.shares[origins] * prior))
    remaining = np.where(is_known, 1.0 - taken[0], 0.0)
    after = np.where(informed, remaining, 1.0) * cross
    after -= together * ordered_sum(together[origins] * gain)
    after += shared * ordered_sum(shared[origins] * gain)
    after[origins] += var[origins] * gain
    return np.where(informed, mean, prior), np.where(informed, after_var, prior_var), after
