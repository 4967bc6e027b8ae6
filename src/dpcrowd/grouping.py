"""Dynamic grouping of regions (RescueDP): small regions that move alike share one noise draw.

Only released values are looked at. Regions whose value is at least tau1 stand alone. The others are sorted by value;
the smallest free one becomes a pivot and takes, in ascending order, each free region with |difference| < tau3, a
Pearson correlation of the last kappa releases above tau2, and a sum that stays below tau1. Two regions that both
stood still count as moving alike (correlation 1); one that stood still while the other moved as not (0).

The loop over regions is `dpcrowd.kernels.grouping`.
"""

from __future__ import annotations

import numpy as np

from dpcrowd.arrays import Bools, Floats, Ints
from dpcrowd.kernels.engine import Engine, compiled
from dpcrowd.kernels.grouping import group_by_pivots

__all__ = ["group_regions"]


def group_regions(
    history: Floats,
    filled: Ints,
    allowed: Bools,
    tau1: float,
    tau2: float,
    tau3: float,
    engine: Engine = "numpy",
) -> Ints:
    """Return the pivot of each region's group, (N, d): its own index where it stands alone, -1 where not `allowed`.

    history  (N, kappa, d) last releases
    filled   (N,) how many of them there are; with fewer than kappa there is no grouping yet
    """
    regions = np.arange(allowed.shape[1])
    pivot = np.where(allowed, regions, -1).astype(np.int64)
    ready = np.flatnonzero((filled >= history.shape[1]) & allowed.any(axis=1))
    if ready.size:
        chosen = np.ascontiguousarray(history[ready])
        values = chosen.mean(axis=1)
        order = np.argsort(values, axis=1, kind="stable").astype(np.int64)
        part = np.empty((ready.size, allowed.shape[1]), dtype=np.int64)
        group = compiled(group_by_pivots, engine) or group_by_pivots
        group(chosen, values, order, np.ascontiguousarray(allowed[ready]), tau1, tau2, tau3, part)
        pivot[ready] = part
    return pivot
