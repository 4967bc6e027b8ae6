"""The discrete Laplace distribution and the interface through which raw counts become noisy ones.

Noise on counts is an integer X with P(X = x) = tanh(1/(2b)) exp(-|x|/b), where the scale b = sensitivity/epsilon: on
integers this gives pure epsilon-differential privacy, and no floating-point grid reveals the count. Only a `Noise`
turns a count into a number that may leave the server; its type says whether the result is private (`SecureNoise`,
`OpenDPNoise`) or only a simulation (`SeededNoise`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpcrowd.arrays import Floats, Nanos
from dpcrowd.errors import BadInput
from dpcrowd.privacy.units import NANO

__all__ = [
    "Noise",
    "add_by_price",
    "check_noise",
    "check_price",
    "discrete_laplace_var",
    "noise_scale",
    "noise_var",
]


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
        """Return noisy counts (whole numbers as float64) where `where` is true, 0 elsewhere.

        counts       (N, d) integers
        charge       nano-epsilon paid for each value, broadcastable to (N, d); > 0 where `where` is true
        sensitivity  how much one user can change a value, broadcastable to (N, d)
        read         0, 1, ...: the number of this read, if the counts of a slot are read several times
        """
        ...


def check_noise(noise: Noise, owner: str, *, allow_simulated_noise: bool) -> None:
    """Refuse noise that is not private, unless the caller declares a simulation."""
    if allow_simulated_noise or getattr(noise, "private", False) is True:
        return
    raise BadInput(
        f"{owner} was given {type(noise).__name__}, which is not private: anyone who repeats its draws can subtract "
        "them. Give it SecureNoise(); in a test or a simulation, where no real counts are read, set "
        "allow_simulated_noise=True."
    )


def check_price(charge: int, sensitivity: int) -> None:
    """Refuse a scale of infinity or 0, which would release a useless or a raw count."""
    if charge < 1 or sensitivity < 1:
        raise BadInput(f"noise needs a charge and a sensitivity of at least 1; given {charge} and {sensitivity}.")


def add_by_price(
    counts: NDArray[np.int64],
    charge: Nanos,
    sensitivity: int | NDArray[np.int64],
    where: NDArray[np.bool_],
    add: Callable[[list[int], int, int], list[int]],
) -> Floats:
    """Implement `Noise.noisy` by `add(values, charge, sensitivity)`, which adds noise to all values of one price."""
    result = np.zeros(where.shape, dtype=np.float64)
    cells = np.flatnonzero(where)
    if cells.size == 0:
        return result
    values, charges, sensitivities = (
        np.broadcast_to(part, where.shape).ravel()[cells] for part in (counts, charge, sensitivity)
    )
    for name, array in (("counts", values), ("charge", charges), ("sensitivity", sensitivities)):
        if array.dtype.kind not in "iu":
            raise BadInput(f"noise needs whole numbers as {name}; given an array of {array.dtype}.")
    places: dict[tuple[int, int], list[int]] = {}
    for place, price in enumerate(zip(charges.tolist(), sensitivities.tolist(), strict=True)):
        places.setdefault(price, []).append(place)
    for price in places:
        check_price(*price)  # all of them before the first draw
    noisy: list[int] = values.tolist()
    for price, same in places.items():
        for place, value in zip(same, add([noisy[place] for place in same], *price), strict=True):
            noisy[place] = value
    result.ravel()[cells] = noisy
    return result


def noise_scale(charge: ArrayLike, sensitivity: ArrayLike = 1) -> Floats:
    """Return b = sensitivity/epsilon for nano-epsilon charges; infinite where nothing is paid."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.divide(np.multiply(sensitivity, float(NANO)), charge), dtype=np.float64)


def discrete_laplace_var(scale: ArrayLike) -> Floats:
    """Return the variance of the discrete Laplace with scale b: 2q/(1-q)^2, q = exp(-1/b), or 1/(2 sinh(1/(2b))^2)."""
    with np.errstate(divide="ignore", over="ignore"):
        half = np.sinh(0.5 / np.asarray(scale, dtype=np.float64))
        return np.asarray(0.5 / (half * half))


def noise_var(charge: ArrayLike, sensitivity: ArrayLike = 1) -> Floats:
    """Return the variance of the noise that a charge of nano-epsilon buys.

    >>> float(noise_var(10**9).round(4)), float(noise_var(10**9, sensitivity=2).round(4))
    (1.8413, 7.8354)
    """
    return discrete_laplace_var(noise_scale(charge, sensitivity))
