"""Step PID controllers: take their newest errors, set new intervals and the slots of their next samples.

The oracle, with the formulas, is `dpcrowd.sampling.pid`. In most slots few controllers have something to do, and thirty
array operations on a few numbers cost more than the arithmetic in them.
"""

from __future__ import annotations

import numpy as np

from dpcrowd.arrays import Floats, Ints

__all__ = ["LARGEST_EXPONENT", "LARGEST_RATIO", "step_controllers"]

# exp(30) is far beyond any step that max(1, .) would not cut off, and far from overflow.
LARGEST_EXPONENT = 30.0
LARGEST_RATIO = 1e6


def step_controllers(
    interval: Floats,
    next_slot: Ints,
    errors: Floats,
    measured: Ints,
    last_slot: Ints,
    slot: int,
    rows: Ints,
    error: Floats,
    gains: tuple[float, float, float],
    theta: float,
    xi: float,
    remaining: Floats,
) -> None:
    """Step the controllers `rows` by FAST's rule, or by RescueDP's.

    interval ... last_slot   the memory of all controllers, as in `PidState`, flat; updated in place
    error      the newest error of each row
    remaining  RescueDP's epsilon_remaining of each row; empty: FAST's rule
    """
    proportional, integral, derivative = gains
    window = errors.shape[1]
    for n in range(rows.shape[0]):
        row = rows[n]
        count = measured[row]
        before = errors[row, (count - 1) % window]
        errors[row, count % window] = error[n]
        total = 0.0
        for k in range(window):
            total += errors[row, k]
        delta = proportional * error[n] + integral * (total / min(count + 1, window))
        if derivative != 0.0 and count > 0:
            delta += derivative * (error[n] - before) / max(slot - last_slot[row], 1)
        if remaining.shape[0] > 0:
            ratio = min(delta * remaining[n], LARGEST_RATIO)
            change = 1.0 - ratio * ratio
        else:
            change = 1.0 - np.exp(min((delta - xi) / xi, LARGEST_EXPONENT))
        interval[row] = max(1.0, interval[row] + theta * change)
        next_slot[row] = slot + int(np.floor(interval[row] + 0.5))
        measured[row] = count + 1
        last_slot[row] = slot
