"""Noise for real data: exact discrete Laplace samples from the operating system's entropy.

Every call of `noisy` asks the system for fresh entropy and keeps none of it: there is no generator in the process
that could be seeded, copied or resumed. A process image that is started twice (a snapshot of a virtual machine, a
checkpoint) therefore adds different noise to its counts each time; equal noise would cancel in the difference.

The scale is the fraction sensitivity/epsilon itself, in lowest terms, and `dpcrowd.privacy.discrete_laplace` samples
from it without rounding: for counts that differ by at most the sensitivity, the probabilities of any noisy value
differ by a factor of at most exp(epsilon), where epsilon is exactly the charge in the ledger. The postprocessing is the
same for all counts: the sum is clipped to 64 bits and converted to the nearest float64.
"""

from __future__ import annotations

import os
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpcrowd.privacy.discrete_laplace import discrete_laplace, uniform
from dpcrowd.privacy.noise import add_by_price
from dpcrowd.privacy.units import NANO

__all__ = ["SecureNoise"]

_LOWEST, _HIGHEST = -(2**63), 2**63 - 1


class SecureNoise:
    """Exact discrete Laplace noise from the operating system's entropy. Cannot be seeded or replayed."""

    __slots__ = ()  # no state: nothing is kept from one call to the next
    private = True

    def noisy(
        self,
        slot: int,
        counts: NDArray[np.int64],
        charge: NDArray[np.int64],
        sensitivity: int | NDArray[np.int64],
        where: NDArray[np.bool_],
        read: int = 0,
    ) -> NDArray[np.float64]:
        """Return noisy counts, see `Noise.noisy`; `slot` and `read` are ignored, since every call draws fresh noise."""
        del slot, read
        below = uniform(os.urandom)  # for this call only; unused bytes are discarded with it

        def add(values: list[int], charge: int, sensitivity: int) -> list[int]:
            t, s = Fraction(sensitivity * NANO, charge).as_integer_ratio()
            return [min(max(value + discrete_laplace(below, t, s), _LOWEST), _HIGHEST) for value in values]

        return add_by_price(counts, charge, sensitivity, where, add)
