"""How much of the budget one sample gets: uniform, per sample, RescueDP, BD and BA.

All rules take and return integer nano-epsilon and round down, so that no sum of allocations can exceed the total.
They look at public numbers and at past charges only.
"""

from __future__ import annotations

import numpy as np

from dpcrowd.arrays import Floats, Nanos
from dpcrowd.errors import BadInput

__all__ = ["absorption", "dissimilarity", "distribution", "per_sample", "rescue", "uniform"]


def uniform(total: int, length: int) -> int:
    """Return epsilon/w (or epsilon/T), the amount for every slot."""
    return _at_least_one(total // length, total, length)


def per_sample(total: int, samples: int) -> int:
    """Return epsilon/T_s, the amount for each of at most T_s samples (FAST, DPCrowd)."""
    return _at_least_one(total // samples, total, samples)


def rescue(remaining: Nanos, interval: Floats, phi: float, p_max: float, largest: int) -> Nanos:
    """Return RescueDP's amount: p = min(phi ln(I + 1), p_max) of what remains, at most `largest`."""
    part = np.clip(phi * np.log(interval + 1.0), 0.0, min(p_max, 1.0))  # never more than remains, however tuned
    return np.minimum((part * remaining).astype(np.int64), np.int64(largest))


def dissimilarity(total: int, window: int) -> int:
    """Return epsilon/(2w), what the dissimilarity test of BD and BA costs in each slot in which it runs."""
    return _at_least_one(total // (2 * window), total, 2 * window)


def distribution(total: int, published_in_window: Nanos) -> Nanos:
    """Return BD's amount: half of what the publications of the last w - 1 slots have left of epsilon/2."""
    return np.maximum(total // 2 - published_in_window, 0) // 2


def absorption(total: int, window: int, skipped: Nanos) -> Nanos:
    """Return BA's amount: the part epsilon/(2w) of this slot and of `skipped` slots before it (at most w - 1)."""
    return (total // (2 * window)) * (1 + np.minimum(skipped, window - 1))


def _at_least_one(amount: int, total: int, parts: int) -> int:
    if amount < 1:
        raise BadInput(
            f"a budget of {total}e-9 epsilon cannot be split into {parts} parts of at least 1e-9; "
            "give a larger epsilon or fewer slots."
        )
    return amount
