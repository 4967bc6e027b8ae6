"""A gate for samples that cannot be: far more people than the network has, or far fewer than none.

A neighbour that is broken, or lies, could pull every estimate anywhere. Its sample of a region says y/Y people, give or
take 1/sqrt(Y). Noise of many standard deviations is rare but honest (Laplace tails), and shares may be wrong by a
factor; so the gate is wide: it stops nonsense, not every lie.
"""

from __future__ import annotations

import numpy as np

from dpcrowd.schemes.messages import InfoMessages

__all__ = ["plausible"]

_TIMES_POPULATION = 10.0
_DEVIATIONS = 40.0  # of Laplace noise: one draw in 10^24


def plausible(message: InfoMessages, population: int) -> bool:
    """Whether every region of a sample could be a noisy count of a part of so many people.

    In the matrix form regions are told together, and none has a count of its own: it is not judged.
    """
    if message.info_mat.ndim != 2:
        return True
    told = message.info_mat > 0.0
    people = message.info_vec[told] / message.info_mat[told]
    noise = _DEVIATIONS / np.sqrt(message.info_mat[told])
    return bool((people >= -noise).all() and (people <= _TIMES_POPULATION * population + noise).all())
