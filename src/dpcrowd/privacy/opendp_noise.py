"""Noise for real data by OpenDP, for operators who prefer a library that others have reviewed.

The distribution is that of `SecureNoise`. OpenDP takes its scale as a float and reports, by its own privacy map, the
epsilon that this scale costs. A rounded 1/epsilon often costs a hair more than epsilon, so the scale is raised to the
next float until the map is at most the charge: the ledger never records less than OpenDP says was spent.

A hazard: OpenDP's generator is seeded once per process and then asks the system for nothing but the process id. A
process image that is resumed twice (a snapshot of a virtual machine, a checkpoint) keeps its id, so both copies add
the same noise; if their counts differ, the difference of what they release is exact.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcrowd.errors import MissingExtra
from dpcrowd.privacy.noise import add_by_price, check_price
from dpcrowd.privacy.units import NANO

__all__ = ["OpenDPNoise", "secure_scale"]


def _load() -> Any:
    """Return OpenDP's constructor of Laplace measurements on vectors of 64-bit integers."""
    # Submodules only: opendp.prelude would pull in scikit-learn.
    try:
        from opendp.domains import atom_domain, vector_domain
        from opendp.measurements import make_laplace
        from opendp.metrics import l1_distance
        from opendp.mod import enable_features
    except ImportError:
        raise MissingExtra("opendp", "opendp", "noise by OpenDP") from None
    enable_features("contrib")
    domain, metric = vector_domain(atom_domain(T="i64")), l1_distance(T="i64")
    return lambda scale: make_laplace(domain, metric, scale=scale)


@lru_cache(maxsize=512)
def _measurement(scale: float) -> Any:
    return _load()(scale)


@lru_cache(maxsize=512)
def secure_scale(charge: int, sensitivity: int = 1) -> float:
    """Return the smallest float scale, from sensitivity/epsilon upwards, whose OpenDP map is at most the charge."""
    check_price(charge, sensitivity)
    epsilon = Fraction(charge, NANO)
    scale = float(sensitivity / epsilon)
    while Fraction(_measurement(scale).map(sensitivity)) > epsilon:
        scale = math.nextafter(scale, math.inf)
    return scale


class OpenDPNoise:
    """Exact discrete Laplace noise by OpenDP. Repeats itself if a process image is resumed twice."""

    private = True

    def __init__(self) -> None:
        _load()  # a missing library should be reported now, not with the first sample

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

        def add(values: list[int], charge: int, sensitivity: int) -> list[int]:
            noisy: list[int] = _measurement(secure_scale(charge, sensitivity))(values)
            return noisy

        return add_by_price(counts, charge, sensitivity, where, add)
