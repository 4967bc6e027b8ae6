"""One-hop fusion in compiled loops, for the simulator: what each server hears and what it makes of it, diagonal form.

In most slots few servers speak. Their messages are added to the sums of those who hear them, so the work grows with the
speakers and not with the links; speakers ascend, hence so do the additions of each sum. The arithmetic is that of
`Hearing.sums` and `dpcrowd.filters.fuse`, term by term and in the same order: the same bits. Those are the oracle in
the tests, and do the work where many speak or Numba is missing. The loops are plain Python that Numba compiles.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcrowd.arrays import Bools, Floats
from dpcrowd.network.gather import unsigned
from dpcrowd.network.hearing import Hearing
from dpcrowd.schemes.messages import InfoMessages

__all__ = ["absorb_few", "few_speak"]

Places = NDArray[np.unsignedinteger[Any]]

_FEW = 0.4  # above this share of speakers, reading what each server hears is faster than adding to what others hear


def few_speak(messages: InfoMessages, hearing: Hearing) -> bool:
    """Whether `absorb_few` can do the work, and pays."""
    if hearing.engine != "numba" or not hearing.mutual or not _numba_is_there():
        return False
    return bool(np.count_nonzero(messages.speaks) < _FEW * messages.speaks.size)


def absorb_few(prior: Floats, prior_var: Floats, messages: InfoMessages, hearing: Hearing) -> tuple[Floats, Floats]:
    """Posterior mean and variance of all servers, (N, d), from their priors and the messages of those who speak."""
    add_to_hearers, fuse_sums = _compiled()
    matrix, gain = hearing.matrix, np.asarray(hearing.gain)
    sums = np.zeros(4 * prior.size)
    add_to_hearers(
        unsigned(matrix.indptr),
        unsigned(matrix.indices),
        messages.speaks,
        messages.info_vec,
        messages.info_mat,
        messages.prior,
        messages.prior_known,
        sums,
    )
    beta = gain if gain.shape == prior.shape else np.broadcast_to(gain, prior.shape)
    mean, var = np.empty(prior.shape), np.empty(prior.shape)
    fuse_sums(*(array.reshape(-1) for array in (prior, prior_var, sums, beta, mean, var)))
    return mean, var


@cache
def _numba_is_there() -> bool:
    return find_spec("numba") is not None


@cache
def _compiled() -> tuple[Callable[..., Any], Callable[..., Any]]:
    from numba import njit

    # With NumPy's rules of division: 1/0 is infinite.
    return njit(add_to_hearers, cache=True), njit(fuse_sums, cache=True, error_model="numpy")


def add_to_hearers(
    indptr: Places,
    indices: Places,
    speaks: Bools,
    info_vec: Floats,
    info_mat: Floats,
    prior: Floats,
    prior_known: Bools,
    sums: Floats,
) -> None:
    """Add (info_vec, info_mat, prior, 1) of every speaker j to the sums of all i that hear j, four numbers a region.

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
    """`dpcrowd.filters.fuse`, entry by entry; without branches, so that it becomes vector instructions."""
    for n in range(prior.shape[0]):
        vec_sum, mat_sum, prior_sum, speakers = sums[4 * n], sums[4 * n + 1], sums[4 * n + 2], sums[4 * n + 3]
        precision = 1.0 / prior_var[n] + mat_sum
        var[n] = 1.0 / precision
        step = (vec_sum - mat_sum * prior[n]) * var[n]
        pull = beta[n] * (1.0 - 1.0 / (1.0 + prior_var[n])) * (prior_sum - speakers * prior[n])
        mean[n] = prior[n] + (step if precision > 0.0 else 0.0) + (pull if prior_var[n] < np.inf else 0.0)
