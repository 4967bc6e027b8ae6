"""Intervals of a value that is repeated: robust before the second sample, and after it as wide as samples show."""

from __future__ import annotations

import numpy as np
import pytest

from dpcrowd.arrays import Floats
from dpcrowd.filters.repeated import learn_from_sample, missed_var, pass_slot, start_repeated

Q, NOISE_VAR, WINDOW = 100.0, 50.0, 20


def covered(truth: Floats, seed: int = 1) -> Floats:
    """Sample in every 20th slot, repeat the value, and return by window the share of the slots that are covered."""
    rng = np.random.default_rng(seed)
    servers, regions = truth.shape[1:]
    memory, value, inside = start_repeated(servers, regions), np.full((servers, regions), np.nan), []
    for slot, now in enumerate(truth):
        age = slot % WINDOW
        memory = pass_slot(memory, np.full(regions, (age or WINDOW) * Q))
        if age == 0:
            sample = now + rng.laplace(0.0, np.sqrt(NOISE_VAR / 2), now.shape)
            memory = learn_from_sample(memory, sample - value, np.full(now.shape, NOISE_VAR))
            value = sample
        deviation = np.sqrt(memory.fresh_var + missed_var(memory, returns=True))
        inside.append((np.abs(value - now) <= 1.96 * deviation).mean())
    return np.array(inside).reshape(-1, WINDOW).mean(axis=1)


def walk(deviation: float, regions: int = 3) -> Floats:
    """Random walks of 200 slots."""
    return np.random.default_rng(2).normal(0.0, deviation, (200, 100, regions)).cumsum(axis=0)


def test_a_crowd_that_moves_in_one_direction_is_covered_from_the_first_window() -> None:
    """Jobs moved so: before the second sample nobody knows it, and 70% of the "95%" intervals contained the truth."""
    truth = np.arange(200.0)[:, None, None] * np.array([11.0, -8.0]) * np.ones((200, 30, 1))
    by_window = covered(truth)
    assert by_window[0] > 0.9
    assert by_window[1:].min() > 0.9


@pytest.mark.parametrize("regions", [1, 3])
def test_a_random_walk_does_not_keep_the_robust_start(regions: int) -> None:
    """Intervals for a trend, on a crowd that has none, would say less than is known."""
    by_window = covered(walk(np.sqrt(Q), regions))
    assert by_window[0] > 0.98
    assert 0.92 < by_window[5:].mean() < 0.985


def test_changes_that_are_larger_than_expected_widen_the_interval() -> None:
    """A Q that is far too small would leave them as narrow as ever."""
    by_window = covered(walk(5.0 * np.sqrt(Q)))
    assert by_window[0] < 0.8
    assert by_window[3:].mean() > 0.89


def test_a_crowd_that_returns_is_covered_in_between() -> None:
    """Fluctuations around a level leave nothing after a window, but as much as ever after a few slots."""
    truth = np.random.default_rng(3).normal(0.0, np.sqrt(Q / 2), (200, 100, 3))
    by_window = covered(truth)
    assert by_window[4:].mean() > 0.9


def test_nothing_known_stays_a_number() -> None:
    """The first sample has nothing to be compared with: it must teach nothing, and leave no NaN."""
    memory = pass_slot(start_repeated(1, 2), np.array([Q, 0.0]))
    memory = learn_from_sample(memory, np.full((1, 2), np.nan), np.ones((1, 2)))
    assert memory.weight.tolist() == [[0.0, 0.0]]
    assert missed_var(memory, returns=True).tolist() == [[0.0, 0.0]]
    memory = pass_slot(memory, np.array([Q, 0.0]))
    assert missed_var(memory, returns=False).tolist() == [[1.5 * Q, 0.0]]
