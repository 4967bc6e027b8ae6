"""Add discrete Laplace noise to the counts that are read, from unit exponentials that were drawn before.

The oracle is `dpcrowd.privacy.seeded_noise`. In most slots few servers sample, so the loop skips all other counts.
"""

from __future__ import annotations

import numpy as np

from dpcrowd.arrays import Bools, Floats, Ints

__all__ = ["add_noise"]


def add_noise(
    where: Bools, counts: Ints, charge: Ints, sensitivity: Ints, unit: Floats, epsilon: float, result: Floats
) -> bool:
    """Set result[n] = counts[n] + floor(b unit[0, n]) - floor(b unit[1, n]) where `where`; b = sensitivity/epsilon.

    All arrays are flat; `counts`, `charge` and `sensitivity` may hold a single value for all n.

    charge   in nano-epsilon
    epsilon  the nano-epsilon of epsilon = 1
    Return False, and stop, at a count that is read without a charge.
    """
    for n in range(where.shape[0]):
        if where[n]:
            price = charge[n if charge.shape[0] > 1 else 0]
            if price < 1:
                return False
            scale = sensitivity[n if sensitivity.shape[0] > 1 else 0] * epsilon / price
            count = counts[n if counts.shape[0] > 1 else 0]
            result[n] = count + (np.floor(unit[0, n] * scale) - np.floor(unit[1, n] * scale))
    return True
