"""A level that moves beside the model's deviations: the belief of a bank against a filter with both as its state."""

from __future__ import annotations

import numpy as np
import pytest

from dpcrowd.filters import Course, ProcessModel
from dpcrowd.filters.learning import beliefs_of, predict_bank, start_bank, update_bank
from dpcrowd.filters.moving_level import LASTING_PART

LEVELS = np.array([300.0, 40.0])
CHANCE = np.array([300.0, 90.0])  # variances of e


def both_states(samples: np.ndarray, noise: np.ndarray, *, fades: float) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of l + e after every slot, by a Kalman filter with the state (l, e) of one region."""
    means, variances = [], []
    move = np.diag([LASTING_PART, fades])
    for region, settled in enumerate(CHANCE):
        state, cov = np.zeros(2), np.eye(2) * settled
        added = settled * np.diag([1.0 - LASTING_PART**2, 1.0 - fades**2])
        seen = []
        for slot, sample in enumerate(samples[:, region]):
            state, cov = move @ state, move @ cov @ move.T + added
            if np.isfinite(noise[slot]):
                ones = np.ones(2)
                gain = cov @ ones / (ones @ cov @ ones + noise[slot])
                state = state + gain * (sample - LEVELS[region] - state.sum())
                cov = cov - np.outer(gain, ones @ cov)
            seen.append((LEVELS[region] + state.sum(), cov.sum()))
        means.append([mean for mean, _ in seen])
        variances.append([var for _, var in seen])
    return np.array(means).T, np.array(variances).T


def by_bank(samples: np.ndarray, noise: np.ndarray, *, fades: float) -> tuple[np.ndarray, np.ndarray]:
    """The same by the last belief of a bank."""
    transition = np.full(2, fades)
    model = ProcessModel.around(Course(LEVELS[None], (CHANCE * (1.0 - fades**2))[None]), transition)
    beliefs, bank = beliefs_of(model), start_bank(model, 1, -1)
    means, variances = [], []
    for slot, sample in enumerate(samples):
        info = np.full((1, 2), 1.0 / noise[slot])
        bank = update_bank(predict_bank(bank, model, beliefs, slot), info * sample, info, beliefs)
        means.append(bank.mean[-1, 0])
        variances.append(bank.var[-1, 0])
    return np.array(means), np.array(variances)


def drawn(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Samples (60, 2) of a crowd that drifts, and the variances of their noise; infinite: there is none."""
    rng = np.random.default_rng(seed)
    drift = np.cumsum(rng.normal(0.0, 3.0, (60, 2)), axis=0)
    noise = np.where(rng.random(60) < 0.3, np.inf, rng.choice([4.0, 400.0, 40_000.0], 60))
    return LEVELS + drift + rng.normal(0.0, np.sqrt(CHANCE), (60, 2)), noise


@pytest.mark.parametrize("seed", range(4))
def test_it_is_exact_where_deviations_do_not_last(seed: int) -> None:
    """The state of two filters is read off one estimate: a wrong part would let the level run away, or fade."""
    samples, noise = drawn(seed)
    expected, found = both_states(samples, noise, fades=0.0), by_bank(samples, noise, fades=0.0)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-6)
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-6)


@pytest.mark.parametrize("fades", [0.3, 0.6, 0.9])
def test_it_is_close_where_they_do(fades: float) -> None:
    """In between, a part is approximate; estimates and widths have to stay those of the filter with both states."""
    samples, noise = drawn(9)
    expected, found = both_states(samples, noise, fades=fades), by_bank(samples, noise, fades=fades)
    off = np.abs(found[0] - expected[0]) / np.sqrt(expected[1])
    assert off.mean() < 0.25
    ratio = found[1] / expected[1]
    assert ratio.min() > 0.6
    assert ratio.max() < 1.7
