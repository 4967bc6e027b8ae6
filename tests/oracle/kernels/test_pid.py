"""The controllers' compiled loop against the array operations that it stands for."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from dpcrowd.kernels.engine import ENGINES, Engine
from dpcrowd.sampling import pid

pytest.importorskip("numba", reason="the extra 'fast' is not installed: there are no compiled loops to test")


def same(one: pid.PidState, other: pid.PidState) -> bool:
    pairs = ((getattr(one, f.name), getattr(other, f.name)) for f in fields(pid.PidState))
    return all(np.allclose(a, b, rtol=1e-12, atol=0.0) for a, b in pairs)


@pytest.mark.parametrize("rule", ["fast", "rescue"])
@pytest.mark.parametrize("window", [1, 5])
@pytest.mark.parametrize("gains", [(0.9, 0.1, 0.0), (0.7, 0.1, 0.2)])
def test_the_controllers_loop_steps_like_the_array_operations(
    rule: str, window: int, gains: tuple[float, float, float]
) -> None:
    """A controller that forgets an error, or reads the wrong one, would sample at other times than the node does."""
    rng = np.random.default_rng(3)
    looped, plain = pid.start(20, 3, window), pid.start(20, 3, window)
    for slot in range(1, 60, 2):
        rows = np.flatnonzero(rng.random(60) < 0.4)
        error = rng.exponential(0.05, rows.size)
        if rule == "fast":
            pid.fast_step(looped, slot, rows, error, gains, 2.5, 0.05, "numba")
            pid.fast_step(plain, slot, rows, error, gains, 2.5, 0.05)
        else:
            left = rng.uniform(0.0, 30.0, rows.size)
            pid.rescue_step(looped, slot, rows, error, gains, 3.0, left, "numba")
            pid.rescue_step(plain, slot, rows, error, gains, 3.0, left)
        assert same(looped, plain)
    assert looped.measured.max() > window
    assert looped.interval.max() > 5.0


def test_steps_of_nobody_change_nothing() -> None:
    """With RescueDP's rule an empty list of budgets must not be taken for FAST's."""
    rows, nothing = np.empty(0, dtype=np.int64), np.empty(0)
    state = pid.start(4, 1, 5)
    for engine in ENGINES:
        pid.fast_step(state, 3, rows, nothing, (0.9, 0.1, 0.0), 2.5, 0.05, engine)
        pid.rescue_step(state, 3, rows, nothing, (0.9, 0.1, 0.0), 1.0, nothing, engine)
    assert same(state, pid.start(4, 1, 5))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_huge_error_ends_at_interval_one_and_a_theta_of_zero_changes_nothing(engine: Engine) -> None:
    """Without the caps, 0 * inf would make the interval NaN, and the controller would never sample again."""
    rows, error, left = np.array([0]), np.array([1e200]), np.array([1.0])
    for theta, expected in ((0.0, 3.0), (2.5, 1.0)):
        fast, rescue = pid.start(1, 1, 5), pid.start(1, 1, 5)
        for state in (fast, rescue):
            state.interval[:] = 3.0
        pid.fast_step(fast, 7, rows, error, (0.9, 0.1, 0.0), theta, 0.05, engine)
        pid.rescue_step(rescue, 7, rows, error, (0.9, 0.1, 0.0), theta, left, engine)
        for state in (fast, rescue):
            assert state.interval.tolist() == [[expected]]
            assert state.next_slot.tolist() == [[7 + int(expected)]]
