"""When a finite budget runs out: the slot from which on a server has nothing left for another sample.

A scheme with a finite guarantee has epsilon for the complete stream. One that chooses its slots adaptively may have
spent it long before the end; from then on it only predicts, which no average error shows. A sliding window gives its
budget back, so it is never exhausted.

A schedule that spends the last of its budget on its last sample, less than an interval before the end, is not
exhausted: a server counts as exhausted if it goes without a sample, until the end, for longer than ever before, and
for longer than the same number of samples, spread evenly over the horizon, would be apart.

A horizon may also end before the data do, with budget left: after it a server takes no samples either.
"""

from __future__ import annotations

import numpy as np

from dpcrowd.arrays import Floats, Ints
from dpcrowd.privacy import Guarantee

__all__ = ["exhausted_slots", "horizon_end"]


def horizon_end(guarantee: Guarantee | None, slots: int) -> int | None:
    """Return the first slot after a finite horizon that is shorter than the data; None where there is none.

    slots  of the data

    >>> horizon_end(Guarantee.finite(100, 1.0), 500), horizon_end(Guarantee.finite(500, 1.0), 500)
    (100, None)
    """
    if guarantee is None or guarantee.kind != "finite" or guarantee.length >= slots:
        return None
    return guarantee.length


def exhausted_slots(charges: Ints, total: int, horizon: int) -> Floats:
    """Return for each server the slot after its last sample if `total` does not pay for another one, else NaN.

    charges  (slots, N, columns) nano-epsilon; with a ledger per region a server is exhausted when every region is
    total    nano-epsilon of the horizon, whose length is in slots
    """
    shape = charges.shape[1:]
    expense, price = np.zeros(shape, dtype=np.int64), np.full(shape, np.iinfo(np.int64).max)
    idle_slots, longest_gap, samples = (np.zeros(shape, dtype=np.int64) for _ in range(3))
    for charge in charges:  # slot by slot: the charges of all servers are a large array already
        sampled = charge > 0
        idle_slots += 1
        np.maximum(longest_gap, idle_slots, out=longest_gap, where=sampled)
        np.minimum(price, charge, out=price, where=sampled)
        expense += charge
        samples += sampled
        idle_slots[sampled] = 0
    usual_gap = np.maximum(longest_gap, horizon / np.maximum(samples, 1))
    exhausted = (samples > 0) & (total - expense < price) & (idle_slots >= usual_gap)
    slots = np.where(exhausted, len(charges) - idle_slots, np.nan)
    return np.asarray(slots.max(axis=1))  # NaN if one of the columns is not exhausted
