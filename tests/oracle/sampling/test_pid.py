"""The PID controllers against one slow controller a cell, written from the formulas with Python numbers.

Delta = C_p E_n + C_i mean(last T_i of E) + C_d (E_n - E_{n-1})/(t_n - t_{n-1})
FAST      I <- max(1, I + theta (1 - exp((Delta - xi)/xi)))
RescueDP  I <- max(1, I + theta (1 - (Delta/lambda_r)^2)),  lambda_r = 1/epsilon_remaining
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import pytest

from dpcrowd.sampling import pid

SERVERS, REGIONS, SLOTS = 4, 3, 80
GAINS = [(0.9, 0.1, 0.0), (0.5, 0.3, 0.7), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)]


@dataclass
class Controller:
    """Remembers every error with its slot, and forgets nothing."""

    gains: tuple[float, float, float]
    window: int
    interval: float = 1.0
    next_slot: int = 0
    seen: list[tuple[int, float]] = field(default_factory=list)

    def delta(self, slot: int, error: float) -> float:
        self.seen.append((slot, error))
        recent = [e for _, e in self.seen[-self.window :]]
        change = 0.0
        if len(self.seen) > 1:
            before, last = self.seen[-2]
            change = (error - last) / (slot - before)
        return self.gains[0] * error + self.gains[1] * sum(recent) / len(recent) + self.gains[2] * change

    def fast(self, slot: int, delta: float, theta: float, xi: float) -> None:
        try:
            growth = math.exp((delta - xi) / xi)
        except OverflowError:
            growth = math.inf
        self._set(slot, self.interval + theta * (1 - growth))

    def rescue(self, slot: int, delta: float, theta: float, remaining: float) -> None:
        ratio = 0.0 if remaining == 0 else delta / (1 / remaining)
        self._set(slot, self.interval + theta * (1 - ratio**2))

    def _set(self, slot: int, interval: float) -> None:
        self.interval = max(1.0, interval)
        whole = math.floor(self.interval)
        self.next_slot = slot + (whole + 1 if self.interval - whole >= 0.5 else whole)


def errors_of(rng: np.random.Generator, size: int, scale: float) -> np.ndarray:
    """Mostly ordinary errors, some tiny, some so large that an unclipped exponential overflows."""
    return (
        scale * 10.0 ** rng.choice([-3.0, -0.5, 0.0, 0.3, 5.0], size, p=[0.2, 0.3, 0.3, 0.18, 0.02]) * rng.random(size)
    )


def compare(state: pid.PidState, slow: list[Controller]) -> None:
    np.testing.assert_allclose(state.interval.ravel(), [each.interval for each in slow], rtol=1e-9)
    assert state.next_slot.ravel().tolist() == [each.next_slot for each in slow]
    assert state.measured.ravel().tolist() == [len(each.seen) for each in slow]


@pytest.mark.parametrize("gains", GAINS)
@pytest.mark.parametrize("window", [1, 2, 5, 200])
@pytest.mark.parametrize("rule", ["fast", "rescue"])
def test_every_cell_is_a_controller_of_its_own(rule: str, window: int, gains: tuple[float, float, float]) -> None:
    """Random cells measure in random slots; the others must not change in any field."""
    rng = np.random.default_rng(window)
    theta, xi = 2.5, 0.2
    state = pid.start(SERVERS, REGIONS, window)
    slow = [Controller(gains, window) for _ in range(SERVERS * REGIONS)]
    compare(state, slow)
    widest, narrowed = 1.0, False
    for slot in range(SLOTS):
        rows = np.flatnonzero(rng.random(SERVERS * REGIONS) < 0.4)
        if not rows.size:
            continue
        others = np.setdiff1d(np.arange(SERVERS * REGIONS), rows)
        fields = (state.interval, state.next_slot, state.errors.reshape(-1, window), state.measured, state.last_slot)
        before = [each.reshape(SERVERS * REGIONS, -1)[others].copy() for each in fields]
        error = errors_of(rng, rows.size, 0.1 if rule == "fast" else 3.0)
        remaining = rng.choice([0.0, 0.1, 0.4, 1.0], rows.size)
        delta = pid.observe(state, slot, rows, error, gains)
        expected = [slow[row].delta(slot, float(e)) for row, e in zip(rows, error, strict=True)]
        np.testing.assert_allclose(delta, expected, rtol=1e-9, atol=1e-12)
        now = state.interval.reshape(-1)[rows]
        if rule == "fast":
            wider = pid.fast_interval(now, delta, theta, xi)
        else:
            wider = pid.rescue_interval(now, delta, theta, remaining)
        pid.schedule(state, slot, rows, wider)
        widest, narrowed = max(widest, float(wider.max())), narrowed or bool((wider < now).any())
        for row, one, left in zip(rows, expected, remaining, strict=True):
            if rule == "fast":
                slow[row].fast(slot, one, theta, xi)
            else:
                slow[row].rescue(slot, one, theta, float(left))
        for each, was in zip(fields, before, strict=True):
            assert (each.reshape(SERVERS * REGIONS, -1)[others] == was).all()
        # Both sides go on from the same interval, so that rounding does not add up.
        for index, each in enumerate(slow):
            assert state.interval.reshape(-1)[index] == pytest.approx(each.interval, rel=1e-9)
            each.interval = float(state.interval.reshape(-1)[index])
        compare(state, slow)
    assert widest > 3  # both directions were walked
    assert narrowed
