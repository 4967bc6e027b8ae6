"""Random generators that belong to a run, never to a worker or a batch.

The generator of (seed, run, purpose) is the same whether runs are simulated together, one by one, or on another
machine, and whichever schemes are compared: that is what makes comparisons paired and results reproducible.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

__all__ = ["Purpose", "generator", "sequence"]


class Purpose(IntEnum):
    """What a stream of random numbers is for; each purpose has a stream of its own."""

    TRUTH = 0
    SHARES = 1
    OBSERVATION = 2
    GRAPH = 3
    NOISE = 4
    COMPOSITION = 5


def sequence(seed: int, run: int, purpose: Purpose) -> np.random.SeedSequence:
    """Return the seed sequence of one purpose of one run."""
    return np.random.SeedSequence(entropy=seed, spawn_key=(run, int(purpose)))


def generator(seed: int, run: int, purpose: Purpose) -> np.random.Generator:
    """Return a generator for one purpose of one run."""
    return np.random.Generator(np.random.PCG64(sequence(seed, run, purpose)))
