"""A step of the PID controllers: take the newest errors, set new intervals and the slots of the next samples.

In most slots few controllers have something to do, and thirty array operations on a few numbers cost more than the
arithmetic in them. So the simulator takes one loop that Numba compiles. It has the formulas of `dpcrowd.sampling.pid`
in the same order; the array operations there are its oracle in the tests, and do the work where no loop is given.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from dpcrowd.arrays import Floats, Ints
from dpcrowd.sampling.pid import (
    LARGEST_EXPONENT,
    LARGEST_RATIO,
    PidState,
    fast_interval,
    observe,
    rescue_interval,
    schedule,
)

__all__ = ["PidLoop", "compiled_pid", "fast_step", "rescue_step"]

Gains = tuple[float, float, float]
PidLoop = Callable[..., None]

_NOTHING = np.empty(0)


def fast_step(
    state: PidState,
    slot: int,
    rows: Ints,
    error: Floats,
    gains: Gains,
    theta: float,
    xi: float,
    loop: PidLoop | None = None,
) -> None:
    """FAST's rule for the controllers `rows`."""
    if loop is not None:
        loop(*_flat(state), slot, rows, error, gains, theta, xi, _NOTHING)
        return
    delta = observe(state, slot, rows, error, gains)
    schedule(state, slot, rows, fast_interval(state.interval.reshape(-1)[rows], delta, theta, xi))


def rescue_step(
    state: PidState,
    slot: int,
    rows: Ints,
    error: Floats,
    gains: Gains,
    theta: float,
    epsilon_remaining: Floats,
    loop: PidLoop | None = None,
) -> None:
    """RescueDP's rule for the controllers `rows`."""
    if loop is not None:
        loop(*_flat(state), slot, rows, error, gains, theta, 1.0, epsilon_remaining)
        return
    delta = observe(state, slot, rows, error, gains)
    schedule(state, slot, rows, rescue_interval(state.interval.reshape(-1)[rows], delta, theta, epsilon_remaining))


@cache
def compiled_pid() -> PidLoop:
    """The loop compiled by Numba, which has to be there."""
    import numba

    compiled: PidLoop = numba.njit(cache=True)(advance)
    return compiled


def _flat(state: PidState) -> tuple[Floats, Ints, Floats, Ints, Ints]:
    return (
        state.interval.reshape(-1),
        state.next_slot.reshape(-1),
        state.errors.reshape(-1, state.errors.shape[-1]),
        state.measured.reshape(-1),
        state.last_slot.reshape(-1),
    )


def advance(
    interval: Floats,
    next_slot: Ints,
    errors: Floats,
    measured: Ints,
    last_slot: Ints,
    slot: int,
    rows: Ints,
    error: Floats,
    gains: Gains,
    theta: float,
    xi: float,
    remaining: Floats,
) -> None:
    """Both rules; `remaining` is RescueDP's epsilon_remaining, one number a row, or empty for FAST's rule."""
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
