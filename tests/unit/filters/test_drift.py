"""Variances that learn how far a crowd moves from innovations: unchanged on a random walk, wide enough on a trend."""

import numpy as np
import pytest

from dpcrowd.filters.drift import Innovations, believed, carry_drift, drift_var, keep_drift, learn_drift, start_drift
from dpcrowd.filters.staying import kept_part

Q = 100.0
EVERY = 4


def followed(truth, noise_var, seed=1):
    """Filter samples in every fourth slot; return the memory, the share of covered truths, and that without drift."""
    rng = np.random.default_rng(seed)
    shape = truth.shape[1:]
    mean, var, drift = np.zeros(shape), np.full(shape, np.inf), start_drift(np.full(shape, np.inf))
    nothing, covered, plain = np.zeros(shape), [], []
    for slot, now in enumerate(truth):
        prior_var = var + Q
        known = np.isfinite(prior_var) & np.isfinite(drift.last_var)
        drift = carry_drift(drift, np.where(known, Q, 0.0), np.ones(()), 1.0)
        seen, var = None, prior_var
        if slot % EVERY == 0:
            innovation = now + rng.laplace(0.0, np.sqrt(noise_var / 2), shape) - mean
            variance = np.where(known, prior_var, 0.0) + noise_var
            seen = Innovations(known, innovation, variance, nothing, nothing, nothing)
            drift = learn_drift(drift, seen)
            var = 1.0 / (1.0 / prior_var + 1.0 / noise_var)
            mean = mean + innovation * var / noise_var
        drift = keep_drift(drift, var, kept_part(prior_var, var), seen)
        covered.append(np.abs(mean - now) <= 1.96 * np.sqrt(var + drift_var(drift)))
        plain.append(np.abs(mean - now) <= 1.96 * np.sqrt(var))
    late = len(truth) // 3
    return drift, np.mean(covered[late:]), np.mean(plain[late:])


@pytest.mark.parametrize("noise_var", [Q / 10, 20 * Q], ids=["precise", "weak"])
@pytest.mark.parametrize("regions", [1, 5])
def test_a_right_random_walk_keeps_its_intervals(noise_var, regions):
    """Noise alone must not widen intervals: they would say less than the filter knows."""
    truth = np.random.default_rng(2).normal(0.0, np.sqrt(Q), (120, 150, regions)).cumsum(axis=0)
    drift, covered, _ = followed(truth, noise_var)
    assert 0.93 < covered < 0.975
    assert believed(drift.size).mean() < 0.25
    assert believed(drift.slope).mean() < 0.1


@pytest.mark.parametrize("noise_var", [Q / 10, 20 * Q], ids=["precise", "weak"])
def test_a_trend_is_covered_after_some_samples(noise_var):
    """A crowd that moves in one direction leaves intervals that believe in a random walk."""
    truth = np.arange(120.0)[:, None, None] * np.array([20.0, -20.0, 20.0]) * np.ones((120, 40, 1))
    drift, covered, plain = followed(truth, noise_var)
    assert covered > 0.9
    assert plain < 0.75
    assert believed(drift.slope).min() > 0.2


def test_a_variance_that_is_too_small_is_seen_in_the_size():
    """Changes that are larger than Q, but independent, show no trend; their size has to be enough."""
    truth = np.random.default_rng(3).normal(0.0, np.sqrt(9 * Q), (150, 60, 4)).cumsum(axis=0)
    drift, covered, plain = followed(truth, Q / 10)
    assert covered > 0.9
    assert plain < 0.7
    assert believed(drift.size).mean() > 4.0


def test_one_region_that_moves_on_does_not_hide_behind_calm_ones():
    """With one number for all regions, those that move less than Q would pay for the one that moves on."""
    truth = np.zeros((120, 40, 6))
    truth[:, :, 0] = np.arange(120.0)[:, None] * np.sqrt(Q)
    drift, _, _ = followed(truth, Q / 10)
    assert believed(drift.slope)[:, 0].min() > 0.3
    assert believed(drift.slope)[:, 1:].max() < 0.2


def test_nothing_known_stays_a_number():
    """Regions without any information have infinite variances: what is added must not become NaN."""
    drift = start_drift(np.array([[np.inf, np.inf]]))
    drift = carry_drift(drift, np.zeros((1, 2)), np.ones(()), 0.05)
    nothing, where = np.zeros((1, 2)), np.zeros((1, 2), dtype=np.bool_)
    drift = learn_drift(drift, Innovations(where, nothing, nothing, nothing, nothing, nothing))
    drift = keep_drift(drift, np.array([[3.0, np.inf]]), np.array([[0.0, 1.0]]))
    assert drift_var(drift).tolist() == [[0.0, 0.0]]


def test_what_users_who_stay_have_left_in_the_estimate_fades_with_its_deviation():
    """Of a deviation, the part a is left in the next slot, and so of what staying users have added to it. Kept as it
    is, it would hide a trend: products of successive innovations are compared with it.
    """
    nothing, a, turnover = np.zeros((1, 1)), 0.5, 0.2
    drift = start_drift(np.full((1, 1), Q))
    seen = Innovations(
        np.ones((1, 1), dtype=bool), 0 * nothing + 10.0, nothing + Q, nothing + 30.0, nothing + 8.0, nothing
    )
    drift = keep_drift(learn_drift(drift, seen), nothing + Q, nothing + 0.25, seen)
    assert drift.settled == pytest.approx((1.0 - 2.0 * 0.25) * 8.0)
    later = carry_drift(carry_drift(drift, nothing, np.array(a), turnover), nothing, np.array(a), turnover)
    assert later.settled == pytest.approx(a * a * drift.settled)
    assert later.staying == pytest.approx((1.0 - turnover) ** 2 * (30.0 - 8.0))
