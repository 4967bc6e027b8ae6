"""The discrete Laplace distribution and the interface through which raw counts become noisy ones.

Noise on counts is an integer X with P(X = x) = tanh(1/(2b)) exp(-|x|/b), where the scale b = sensitivity/epsilon: on
integers this gives pure epsilon-differential privacy, and no floating-point grid betrays the count. A `Noise` is
the only thing that turns a count into a number that may leave; which one it is says whether the result is private
(`SecureNoise`) or only a simulation (`SeededNoise`).
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpcrowd.privacy.units import NANO

__all__ = ["Noise", "discrete_laplace_var", "noise_scale", "noise_var"]

Floats = NDArray[np.float64]
Nanos = NDArray[np.int64]


class Noise(Protocol):
    """Adds discrete Laplace noise to counts."""

    private: bool
    """True only if the noise is fit for real data: exact sampling from the operating system's entropy."""

    def noisy(
        self,
        slot: int,
        counts: NDArray[np.int64],
        charge: Nanos,
        sensitivity: int | NDArray[np.int64],
        where: NDArray[np.bool_],
        read: int = 0,
    ) -> Floats:
        """Noisy counts (whole numbers as float64) where `where`, 0 elsewhere.

        counts       (N, d) integers
        charge       nano-epsilon paid for each value, broadcastable to (N, d); > 0 where `where`
        sensitivity  how much one user can change a value, broadcastable to (N, d)
        read         0, 1, ...: which read of this slot's counts it is, when there are several
        """
        ...


def noise_scale(charge: ArrayLike, sensitivity: ArrayLike = 1) -> Floats:
    """b = sensitivity/epsilon for nano-epsilon charges; infinite where nothing is paid."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.divide(np.multiply(sensitivity, float(NANO)), charge), dtype=np.float64)


def discrete_laplace_var(scale: ArrayLike) -> Floats:
    """Variance of the discrete Laplace with scale b: 2q/(1-q)^2 with q = exp(-1/b), i.e. 1/(2 sinh(1/(2b))^2)."""
    with np.errstate(divide="ignore", over="ignore"):
        half = np.sinh(0.5 / np.asarray(scale, dtype=np.float64))
        return np.asarray(0.5 / (half * half))


def noise_var(charge: ArrayLike, sensitivity: ArrayLike = 1) -> Floats:
    """Variance of the noise that a charge of nano-epsilon buys."""
    return discrete_laplace_var(noise_scale(charge, sensitivity))
