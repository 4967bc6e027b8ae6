"""Market: people at the stalls and in the square of a small town, hour by hour for a week. It is made up."""

from __future__ import annotations

import numpy as np

import dpcrowd


def load() -> dpcrowd.FixedData:
    """168 slots of one hour, two regions."""
    hour = np.arange(7 * 24)
    day = np.clip(np.sin((hour % 24 - 6) / 24 * 2 * np.pi), 0, None)
    busy = np.where(hour // 24 == 5, 3.0, 1.0)  # market day
    counts = np.stack([40 + 600 * day * busy, 120 + 900 * day], axis=1)
    return dpcrowd.counts_from_array(np.rint(counts), regions=("stalls", "square"))
