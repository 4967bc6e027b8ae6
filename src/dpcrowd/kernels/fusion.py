"""Fuse one-hop messages in the diagonal form where few servers speak: gather what each server hears, then fuse it.

The work grows with the speakers and not with the links. Speakers ascend, hence so do the additions of each sum: the
arithmetic is that of the oracle, `Hearing.sums` and `dpcrowd.filters.fuse`, term by term and in the same order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcrowd.arrays import Bools, Floats

__all__ = ["add_to_hearers", "fuse_sums"]

Indices = NDArray[np.unsignedinteger[Any]]


def add_to_hearers(
    indptr: Indices,
    indices: Indices,
    speaks: Bools,
    info_vec: Floats,
    info_mat: Floats,
    prior: Floats,
    prior_known: Bools,
    sums: Floats,
) -> None:
    """Add (info_vec, info_mat, prior, 1) of every speaker j to the sums of all i that hear j, four numbers per region.

    Row j of the neighbour lists says whom j hears, and so, the network being mutual, who hears j.
    """
    servers, regions = prior.shape
    for j in range(servers):
        if not speaks[j]:
            continue
        for e in range(indptr[j], indptr[j + 1]):
            place = 4 * regions * np.int64(indices[e])
            for k in range(regions):
                sums[place] += info_vec[j, k]
                sums[place + 1] += info_mat[j, k]
                if prior_known[j, k]:
                    sums[place + 2] += prior[j, k]
                    sums[place + 3] += 1.0
                place += 4


def fuse_sums(prior: Floats, prior_var: Floats, sums: Floats, beta: Floats, mean: Floats, var: Floats) -> None:
    """Set posterior mean and variance from the prior and the sums, entry by entry; all arrays are flat.

    There are no branches, so that the loop becomes vector instructions.
    """
    for n in range(prior.shape[0]):
        vec_sum, mat_sum, prior_sum, speakers = sums[4 * n], sums[4 * n + 1], sums[4 * n + 2], sums[4 * n + 3]
        precision = 1.0 / prior_var[n] + mat_sum
        var[n] = 1.0 / precision
        step = (vec_sum - mat_sum * prior[n]) * var[n]
        pull = beta[n] * (1.0 - 1.0 / (1.0 + prior_var[n])) * (prior_sum - speakers * prior[n])
        mean[n] = prior[n] + (step if precision > 0.0 else 0.0) + (pull if prior_var[n] < np.inf else 0.0)
