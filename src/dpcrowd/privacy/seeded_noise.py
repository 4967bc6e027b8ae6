"""Fast, seeded discrete Laplace noise for simulation: the same distribution, but replayable, so never private.

If E is exponential, floor(b E) is geometric with ratio exp(-1/b), and the difference of two such numbers is discrete
Laplace with scale b. Unit exponentials are drawn for *every* (run, slot, read, server, region), in blocks of slots,
from a generator that is keyed by (run, read, block). So a draw depends on its place alone: not on the scheme, on
which servers sample, or on how runs are batched. Two schemes that read the same count at the same epsilon get the same
noise, which is what makes their comparison paired.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpcrowd.arrays import Bools, Floats, Ints
from dpcrowd.errors import BadInput
from dpcrowd.kernels.engine import Engine, compiled
from dpcrowd.kernels.noise import add_noise
from dpcrowd.privacy.noise import noise_scale
from dpcrowd.privacy.units import NANO

__all__ = ["SeededNoise"]

_BLOCK_VALUES = 2**14
_BLOCK_SLOTS = 64
_NANO = float(NANO)


class SeededNoise:
    """Noise of a batch of runs of `servers` servers and `regions` regions, one seed sequence a run.

    only    restricts it to one server of a single run: the same numbers as that server gets in the whole network
    engine  "numba" adds noise in a compiled loop, with the same bits; see `dpcrowd.kernels.engine`
    loop    deprecated, and ignored: say `engine`

    >>> noise = SeededNoise([np.random.SeedSequence(0)], servers=2, regions=1)
    >>> counts, charge = np.array([[40], [70]]), np.array([[10**9]])
    >>> first = noise.noisy(0, counts, charge, sensitivity=1, where=np.array([[True], [False]]))
    >>> again = noise.noisy(0, counts, charge, sensitivity=1, where=np.array([[True], [False]]))
    >>> bool((first == again).all()), float(first[1, 0])
    (True, 0.0)
    """

    private = False

    def __init__(
        self,
        seeds: Sequence[np.random.SeedSequence],
        servers: int,
        regions: int,
        only: int | None = None,
        loop: object = None,
        engine: Engine = "numpy",
    ) -> None:
        if not seeds or servers < 1 or regions < 1:
            raise BadInput("seeded noise needs at least one run, one server and one region.")
        if only is not None and (len(seeds) != 1 or not 0 <= only < servers):
            raise BadInput(f"one server's noise needs one run and a server below {servers}; given server {only}.")
        if loop is not None:
            text = "SeededNoise(loop=...) is ignored, and goes in version 0.3: engine='numba' takes a compiled loop."
            warnings.warn(text, DeprecationWarning, stacklevel=2)
        self._seeds = tuple(seeds)
        self._servers = servers
        self._regions = regions
        self._only = only
        self._add = compiled(add_noise, engine) or _add_noise
        # Depends on the network's size alone, so that a batch of runs and a single run cut the same blocks.
        self._block = int(np.clip(_BLOCK_VALUES // (servers * regions), 1, _BLOCK_SLOTS))
        self._cache: dict[int, tuple[int, NDArray[np.float64]]] = {}

    def noisy(
        self,
        slot: int,
        counts: NDArray[np.int64],
        charge: NDArray[np.int64],
        sensitivity: int | NDArray[np.int64],
        where: NDArray[np.bool_],
        read: int = 0,
    ) -> NDArray[np.float64]:
        """See `Noise.noisy`."""
        result = np.zeros(where.shape)
        values, price, change = (_flat(given, where.shape) for given in (counts, charge, sensitivity))
        unit = self._unit(slot, read)[..., : where.shape[1]].reshape(2, -1)
        if not self._add(where.reshape(-1), values, price, change, unit, _NANO, result.reshape(-1)):
            raise BadInput("noise needs a charge of at least 1e-9 epsilon wherever a count is read; given less.")
        return result

    def prepare(self, slot: int) -> None:
        """Draw the numbers of a slot's first read now, if they are not there yet."""
        self._unit(slot, 0)

    def _unit(self, slot: int, read: int) -> NDArray[np.float64]:
        """Two unit exponentials for each value of a slot, shape (2, N, d)."""
        block, offset = divmod(slot, self._block)
        cached = self._cache.get(read)
        if cached is None or cached[0] != block:
            cached = (block, self._draw(block, read))
            self._cache[read] = cached
        return np.asarray(cached[1][offset])

    def _draw(self, block: int, read: int) -> NDArray[np.float64]:
        runs, servers, regions = len(self._seeds), self._servers, self._regions
        unit = np.empty((self._block, 2, runs, servers, regions))
        for run, seed in enumerate(self._seeds):
            key = np.random.SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, read, block))
            rng = np.random.Generator(np.random.SFC64(key))
            unit[:, :, run] = rng.standard_exponential((self._block, 2, servers, regions))
        flat = unit.reshape(self._block, 2, runs * servers, regions)
        return flat if self._only is None else flat[:, :, self._only : self._only + 1]


def _add_noise(
    where: Bools, counts: Ints, charge: Ints, sensitivity: Ints, unit: Floats, epsilon: float, result: Floats
) -> bool:
    """Add noise as `dpcrowd.kernels.noise.add_noise` does, in array operations."""
    rows = where.nonzero()[0]
    counts, charge, sensitivity = (part if part.size == 1 else part[rows] for part in (counts, charge, sensitivity))
    if rows.size and charge.min() < 1:
        return False
    scale = noise_scale(charge, sensitivity)
    result[rows] = counts + (np.floor(unit[0][rows] * scale) - np.floor(unit[1][rows] * scale))
    return True


def _flat(values: ArrayLike, shape: tuple[int, ...]) -> NDArray[Any]:
    """An array that broadcasts to `shape`, in a row; a single value stays one."""
    array = np.asarray(values)
    if array.size == 1:
        return array.reshape(1)
    return (array if array.shape == shape else np.broadcast_to(array, shape)).reshape(-1)
