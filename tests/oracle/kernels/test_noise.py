"""Noise for a few counts, compiled and in array operations, against noise for all of them."""

from __future__ import annotations

import numpy as np
import pytest

from dpcrowd.errors import BadInput
from dpcrowd.kernels.engine import ENGINES, Engine
from dpcrowd.privacy import SeededNoise, noise_scale

pytest.importorskip("numba", reason="the extra 'fast' is not installed: there are no compiled loops to test")


@pytest.mark.parametrize("engine", ENGINES)
def test_noise_for_a_few_rows_is_the_noise_of_their_places(engine: Engine) -> None:
    """If a value got the noise of another place, schemes would no longer be compared on the same luck."""
    rng = np.random.default_rng(4)
    shape = (30, 4)
    counts, sensitivity = rng.integers(0, 1000, shape), rng.integers(1, 4, shape)
    where = rng.random(shape) < 0.2
    for charge in (np.array([[10**7]]), rng.integers(10**6, 10**8, (30, 1)), rng.integers(10**6, 10**8, shape)):
        noise = SeededNoise([np.random.SeedSequence(5)], *shape, engine=engine)
        first, second = noise._unit(2, 0)
        scale = noise_scale(charge, sensitivity)
        everywhere = counts + (np.floor(first * scale) - np.floor(second * scale))
        assert np.array_equal(noise.noisy(2, counts, charge, sensitivity, where), np.where(where, everywhere, 0.0))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_charge_is_asked_for_where_a_count_is_read_and_nowhere_else(engine: Engine) -> None:
    """A slot in which no server samples must not be refused, and a read that pays nothing must never pass."""
    noise = SeededNoise([np.random.SeedSequence(5)], 3, 2, engine=engine)
    counts, where = np.ones((3, 2), dtype=np.int64), np.zeros((3, 2), dtype=np.bool_)
    assert not noise.noisy(0, counts, np.array([[0]]), 1, where).any()
    where[1, 0] = True
    assert noise.noisy(0, counts, np.array([[0], [10**9], [0]]), 1, where)[where].all()
    for charge in (np.array([[0]]), np.array([[10**9], [0], [10**9]])):
        with pytest.raises(BadInput, match="charge of at least"):
            noise.noisy(0, counts, charge, 1, where)
