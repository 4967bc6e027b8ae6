"""Array types, defined once, with their shapes.

`Floats`, `Ints` and `Bools` stand for any shape; the other names say what the axes are. Regions are the last axis,
servers the one before them; runs and slots stand in front.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Bools",
    "Estimates",
    "Floats",
    "Floats32",
    "Ints",
    "Ints32",
    "Nanos",
    "PerRegion",
    "PerRun",
    "PerRunAndSlot",
    "RegionMatrix",
    "ServerCounts",
    "Shares",
    "Truth",
]

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]
Floats32: TypeAlias = NDArray[np.float32]
Ints32: TypeAlias = NDArray[np.int32]

Nanos: TypeAlias = Ints
"""Any shape: privacy budget in units of 1e-9 ε."""

Truth: TypeAlias = Ints
"""(slots, regions): the counts of the whole population."""

ServerCounts: TypeAlias = Ints
"""(slots, servers, regions): the counts that each server sees."""

Shares: TypeAlias = Floats
"""(servers,), (slots, servers) where they change, or (1, servers, regions) where they differ by region: the fraction of
the population that each server sees."""

Estimates: TypeAlias = Floats
"""(..., servers, regions): the estimates of all servers, or their variances."""

PerRegion: TypeAlias = Floats
"""(regions,): one number per region."""

RegionMatrix: TypeAlias = Floats
"""(regions, regions): from the region of the column to that of the row."""

PerRun: TypeAlias = Floats
"""(runs,): one number per run of a simulation."""

PerRunAndSlot: TypeAlias = Floats
"""(runs, slots): one number per run and slot."""
