"""Adding discrete Laplace noise to the counts that are read, from unit exponentials that were drawn before.

In most slots few servers sample, so only the places that are read are looked at: by array operations, or, for the
simulator, by a loop that Numba compiles. Both take the same arguments and give the same bits. All arrays are in a row;
`counts`, `charge` and `sensitivity` may hold a single value for all places.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from dpcrowd.arrays import Bools, Floats, Ints
from dpcrowd.privacy.noise import noise_scale
from dpcrowd.privacy.units import NANO

__all__ = ["NoiseLoop", "add_noise", "compiled_noise"]

NoiseLoop = Callable[[Bools, Ints, Ints, Ints, Floats, Floats], bool]

_NANO = float(NANO)


def add_noise(where: Bools, counts: Ints, charge: Ints, sensitivity: Ints, unit: Floats, result: Floats) -> bool:
    """Fill `result` where `where` from two unit exponentials a place; False if a place that is read pays nothing."""
    rows = where.nonzero()[0]
    counts, charge, sensitivity = (given if given.size == 1 else given[rows] for given in (counts, charge, sensitivity))
    if rows.size and charge.min() < 1:
        return False
    scale = noise_scale(charge, sensitivity)
    result[rows] = counts + (np.floor(unit[0][rows] * scale) - np.floor(unit[1][rows] * scale))
    return True


def noise_loop(where: Bools, counts: Ints, charge: Ints, sensitivity: Ints, unit: Floats, result: Floats) -> bool:
    """The same, place by place; plain Python that Numba compiles."""
    for n in range(where.shape[0]):
        if where[n]:
            price = charge[n if charge.shape[0] > 1 else 0]
            if price < 1:
                return False
            scale = sensitivity[n if sensitivity.shape[0] > 1 else 0] * _NANO / price
            count = counts[n if counts.shape[0] > 1 else 0]
            result[n] = count + (np.floor(unit[0, n] * scale) - np.floor(unit[1, n] * scale))
    return True


@cache
def compiled_noise() -> NoiseLoop:
    """The loop compiled by Numba, which has to be there."""
    import numba

    compiled: NoiseLoop = numba.njit(cache=True)(noise_loop)
    return compiled
