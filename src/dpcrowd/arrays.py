"""Array types, defined once. A name with "Per" says what the axes are; the plain names stand for any shape.

Axes always stand in one order, and those that an array does not have are left out: runs, slots, servers, regions.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["Bools", "Floats", "Ints", "PerRegion", "PerRun", "PerRunAndRegion", "PerRunAndSlot", "PerServer"]

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]

PerRun: TypeAlias = Floats
"""(runs,): one number per run of a simulation."""

PerRunAndSlot: TypeAlias = Floats
"""(runs, slots): one number per run and slot."""

PerRegion: TypeAlias = Floats
"""(regions,): one number per region."""

PerServer: TypeAlias = Floats
"""(..., servers): one number per server, of one run or of a batch of runs."""

PerRunAndRegion: TypeAlias = Floats
"""(runs, regions): one number per run and region."""
