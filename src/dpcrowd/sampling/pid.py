"""Adaptive sampling by PID control: FAST's rule and RescueDP's.

    Delta = C_p E_n + C_i mean(last T_i of E) + C_d (E_n - E_{n-1})/(t_n - t_{n-1})
    FAST      E = |posterior - prior|/max(posterior, delta)     I <- max(1, I + theta (1 - exp((Delta - xi)/xi)))
    RescueDP  E = |release_n - release_{n-1}|                   I <- max(1, I + theta (1 - (Delta/lambda_r)^2))

with lambda_r = 1/epsilon_remaining. Errors come from released values only. Intervals stay real numbers; the next
sample is at t + round-half-up(I). Every (server, region) has a controller of its own. Controllers are addressed by flat
indices `rows` into the (N, d) arrays, because in most slots few of them have something to do; their memory is
updated in place.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpcrowd.arrays import Floats, Ints
from dpcrowd.kernels.engine import Engine, compiled
from dpcrowd.kernels.pid import LARGEST_EXPONENT, LARGEST_RATIO, step_controllers

__all__ = [
    "PidState",
    "fast_interval",
    "fast_step",
    "observe",
    "relative_error",
    "rescue_interval",
    "rescue_step",
    "schedule",
    "start",
]

Gains = tuple[float, float, float]

_NO_BUDGETS = np.empty(0)


@dataclass(frozen=True)
class PidState:
    """The controllers' memory.

    interval    (N, d) I, real, >= 1
    next_slot   (N, d) the slot of the next sample
    errors      (N, d, T_i) ring of the last errors
    measured    (N, d) how many errors have been measured
    last_slot   (N, d) when the last one was
    """

    interval: Floats
    next_slot: Ints
    errors: Floats
    measured: Ints
    last_slot: Ints


def start(servers: int, regions: int, integral_window: int) -> PidState:
    """Controllers that sample in the first slot."""
    shape = (servers, regions)
    return PidState(
        interval=np.ones(shape),
        next_slot=np.zeros(shape, dtype=np.int64),
        errors=np.zeros((*shape, integral_window)),
        measured=np.zeros(shape, dtype=np.int64),
        last_slot=np.zeros(shape, dtype=np.int64),
    )


def relative_error(prior: Floats, posterior: Floats, floor: float) -> Floats:
    """FAST's feedback error."""
    return np.abs(posterior - prior) / np.maximum(posterior, floor)


def observe(state: PidState, slot: int, rows: Ints, error: Floats, gains: Gains) -> Floats:
    """Take the newest error of the controllers `rows` and return their Delta."""
    proportional, integral, derivative = gains
    window = state.errors.shape[-1]
    measured, last_slot = state.measured.reshape(-1), state.last_slot.reshape(-1)
    errors = state.errors.reshape(-1, window)
    count = measured[rows]
    before = errors[rows, (count - 1) % window]  # read first: with T_i = 1 the new error takes its place
    errors[rows, count % window] = error
    mean = errors[rows].sum(axis=1) / np.minimum(count + 1, window)
    delta = proportional * error + integral * mean
    if derivative:
        elapsed = np.maximum(slot - last_slot[rows], 1)
        delta = delta + np.where(count > 0, derivative * (error - before) / elapsed, 0.0)
    measured[rows] = count + 1
    last_slot[rows] = slot
    return np.asarray(delta)


def schedule(state: PidState, slot: int, rows: Ints, interval: Floats) -> None:
    """Set new intervals of the controllers `rows` and the slots of their next samples."""
    state.interval.reshape(-1)[rows] = interval
    state.next_slot.reshape(-1)[rows] = slot + np.floor(interval + 0.5).astype(np.int64)


def fast_interval(interval: Floats, delta: Floats, theta: float, xi: float) -> Floats:
    """FAST's new interval."""
    exponent = np.minimum((delta - xi) / xi, LARGEST_EXPONENT)
    return np.maximum(1.0, interval + theta * (1.0 - np.exp(exponent)))


def rescue_interval(interval: Floats, delta: Floats, theta: float, epsilon_remaining: Floats) -> Floats:
    """RescueDP's new interval; lambda_r = 1/epsilon_remaining."""
    ratio = np.minimum(delta * epsilon_remaining, LARGEST_RATIO)
    return np.maximum(1.0, interval + theta * (1.0 - ratio * ratio))


def fast_step(
    state: PidState,
    slot: int,
    rows: Ints,
    error: Floats,
    gains: Gains,
    theta: float,
    xi: float,
    engine: Engine = "numpy",
) -> None:
    """Step the controllers `rows` by FAST's rule: take their newest errors and set when they sample next."""
    kernel = compiled(step_controllers, engine)
    if kernel is not None:
        kernel(*_flat(state), slot, rows, error, gains, theta, xi, _NO_BUDGETS)
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
    engine: Engine = "numpy",
) -> None:
    """Step the controllers `rows` by RescueDP's rule: take their newest errors and set when they sample next."""
    kernel = compiled(step_controllers, engine)
    if kernel is not None:
        kernel(*_flat(state), slot, rows, error, gains, theta, 1.0, epsilon_remaining)
        return
    delta = observe(state, slot, rows, error, gains)
    schedule(state, slot, rows, rescue_interval(state.interval.reshape(-1)[rows], delta, theta, epsilon_remaining))


def _flat(state: PidState) -> tuple[Floats, Ints, Floats, Ints, Ints]:
    return (
        state.interval.reshape(-1),
        state.next_slot.reshape(-1),
        state.errors.reshape(-1, state.errors.shape[-1]),
        state.measured.reshape(-1),
        state.last_slot.reshape(-1),
    )
