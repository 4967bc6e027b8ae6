"""Star: server 0 is linked to every other one, and they to nobody else."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def star(servers: int, density: float, rng: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The two ends of each link, each link once; a star has its own density and needs no random numbers."""
    return np.zeros(servers - 1, dtype=np.int64), np.arange(1, servers)
