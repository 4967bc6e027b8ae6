"""Noise for real data: OpenDP's exact discrete Laplace sampler on 64-bit integers.

OpenDP takes its scale as a float and reports, by its own privacy map, the epsilon that this scale costs. A rounded
1/epsilon often costs a hair more than epsilon, so the scale is raised to the next float until the map is at most the
charge: what the ledger wrote is never below what OpenDP says was spent.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcrowd.errors import BadInput
from dpcrowd.privacy.units import NANO

__all__ = ["SecureNoise", "secure_scale"]


@lru_cache(maxsize=512)
def _measurement(scale: float) -> Any:
    # Submodules only: opendp.prelude would pull in scikit-learn.
    from opendp.domains import atom_domain, vector_domain
    from opendp.measurements import make_laplace
    from opendp.metrics import l1_distance
    from opendp.mod import enable_features

    enable_features("contrib")
    return make_laplace(vector_domain(atom_domain(T="i64")), l1_distance(T="i64"), scale=scale)


@lru_cache(maxsize=512)
def secure_scale(charge: int, sensitivity: int = 1) -> float:
    """The smallest float scale, from sensitivity/epsilon upwards, whose OpenDP map is at most the charge."""
    if charge < 1 or sensitivity < 1:
        raise BadInput(f"noise needs a charge and a sensitivity of at least 1; given {charge} and {sensitivity}.")
    epsilon = Fraction(charge, NANO)
    scale = float(sensitivity / epsilon)
    while Fraction(_measurement(scale).map(sensitivity)) > epsilon:
        scale = math.nextafter(scale, math.inf)
    return scale


class SecureNoise:
    """Exact discrete Laplace noise from the operating system's entropy. Cannot be seeded or replayed."""

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
        """See `Noise.noisy`; `slot` and `read` play no part, since every call draws afresh."""
        del slot, read
        result = np.zeros(where.shape, dtype=np.float64)
        chosen = np.flatnonzero(where)
        if chosen.size == 0:
            return result
        values = np.broadcast_to(counts, where.shape).ravel()[chosen]
        charges = np.broadcast_to(charge, where.shape).ravel()[chosen]
        sensitivities = np.broadcast_to(sensitivity, where.shape).ravel()[chosen]
        flat = result.ravel()
        for pair in sorted({*zip(charges.tolist(), sensitivities.tolist(), strict=True)}):
            same = (charges == pair[0]) & (sensitivities == pair[1])
            flat[chosen[same]] = _measurement(secure_scale(*pair))(values[same].tolist())
        return result
