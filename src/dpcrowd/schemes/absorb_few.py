"""One-hop fusion in compiled loops, for the simulator: what each server hears and what it makes of it, diagonal form.

In most slots few servers speak. Their messages are added to the sums of those who hear them, so the work grows with the
speakers and not with the links; speakers ascend, hence so do the additions of each sum. The arithmetic is that of
`Hearing.sums` and `dpcrowd.filters.fuse`, term by term and in the same order: the same bits. Those are the oracle in
the tests, and do the work where many speak or Numba is missing. The loops are plain Python that Numba compiles.
"""

from __future__ import annotations

import numpy as np

from dpcrowd.arrays import Floats
from dpcrowd.kernels.engine import compiled
from dpcrowd.kernels.fusion import add_to_hearers, fuse_sums
from dpcrowd.kernels.gather import unsigned
from dpcrowd.network.hearing import Hearing
from dpcrowd.schemes.messages import InfoMessages

__all__ = ["absorb_few", "few_speak"]

_FEW = 0.4  # above this share of speakers, reading what each server hears is faster than adding to what others hear


def few_speak(messages: InfoMessages, hearing: Hearing) -> bool:
    """Whether `absorb_few` can do the work, and pays."""
    if not hearing.mutual or compiled(add_to_hearers, hearing.engine) is None:
        return False
    return bool(np.count_nonzero(messages.speaks) < _FEW * messages.speaks.size)


def absorb_few(prior: Floats, prior_var: Floats, messages: InfoMessages, hearing: Hearing) -> tuple[Floats, Floats]:
    """Posterior mean and variance of all servers, (N, d), from their priors and the messages of those who speak."""
    add = compiled(add_to_hearers, hearing.engine) or add_to_hearers
    fuse = compiled(fuse_sums, hearing.engine) or fuse_sums
    matrix, gain = hearing.matrix, np.asarray(hearing.gain)
    sums = np.zeros(4 * prior.size)
    add(
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
    fuse(*(array.reshape(-1) for array in (prior, prior_var, sums, beta, mean, var)))
    return mean, var
