"""Offsets after a jump: intervals widen within a few samples whatever Q is, and stay as they are without a jump."""

from __future__ import annotations

import numpy as np
import pytest

from dpcrowd.arrays import Floats
from dpcrowd.filters.drift import carry_drift, drift_var, keep_drift, learn_offset, start_drift
from dpcrowd.filters.offset import Fused, fused_innovations
from dpcrowd.filters.staying import kept_part

NOISE_VAR = 100.0


def widths(truth: Floats, q: float, transition: float = 1.0) -> tuple[Floats, Floats]:
    """Filter a noisy sample of every slot; return by slot the share of covered truths, and the mean added variance.

    With a transition below 1 the filter knows a course, which is 0.
    """
    rng = np.random.default_rng(1)
    shape, a = truth.shape[1:], np.full(truth.shape[2], transition)
    mean, var, drift = np.zeros(shape), np.full(shape, q), start_drift(np.full(shape, q))
    covered, added = [], []
    for now in truth:
        prior, prior_var = transition * mean, transition**2 * var + q
        drift = carry_drift(drift, np.full(shape, q), a, 1.0)
        var = 1.0 / (1.0 / prior_var + 1.0 / NOISE_VAR)
        sample = now + rng.laplace(0.0, np.sqrt(NOISE_VAR / 2), shape)
        mean = prior + (sample - prior) * var / NOISE_VAR
        drift = learn_offset(drift, fused_innovations((prior, prior_var), (mean, var), np.zeros(shape)))
        drift = keep_drift(drift, var, kept_part(prior_var, var))
        covered.append((np.abs(mean - now) <= 1.96 * np.sqrt(var + drift_var(drift))).mean())
        added.append(drift_var(drift).mean())
    return np.array(covered), np.array(added)


@pytest.mark.parametrize("transition", [1.0, 0.5], ids=["random walk", "course"])
def test_a_region_that_fills_is_covered_after_a_few_samples(transition: float) -> None:
    """A filter with a Q of next to nothing moved by a tenth of the jump, and was as sure as ever."""
    truth = np.zeros((60, 200, 1))
    truth[30:] = 35.0
    covered, _ = widths(truth, 0.01, transition)
    assert covered[10:30].min() > 0.9
    assert covered[30] < 0.4
    assert covered[35:].min() > 0.75
    assert covered[36:].mean() > 0.88


def test_a_random_walk_has_hardly_wider_intervals() -> None:
    """Noise alone must not look like jumps: intervals would say less than the filter knows."""
    truth = np.random.default_rng(2).normal(0.0, 3.0, (150, 100, 2)).cumsum(axis=0)
    covered, added = widths(truth, 9.0)
    assert 0.93 < covered[20:].mean() < 0.975
    variance = 9.0 * (np.sqrt(1.0 + 4.0 * NOISE_VAR / 9.0) - 1.0) / 2.0  # of the posterior, in the long run
    assert added[20:].mean() < 0.15 * variance


def test_one_sample_is_no_jump() -> None:
    """Laplace noise has long tails, and the draw of one slot must not decide about an interval."""
    nothing = np.zeros((1, 1))
    drift = start_drift(np.ones((1, 1)))
    drift = learn_offset(drift, Fused(np.full((1, 1), 0.1), np.ones((1, 1)), nothing))
    before = drift_var(drift)
    drift = learn_offset(drift, Fused(np.full((1, 1), 1000.0), np.ones((1, 1)), nothing))
    assert before[0, 0] == 0.0
    assert drift_var(drift)[0, 0] < 4.0
    for _ in range(6):
        drift = learn_offset(drift, Fused(np.full((1, 1), 1000.0), np.ones((1, 1)), nothing))
    assert np.sqrt(drift_var(drift)[0, 0]) > 300.0


def test_weak_samples_that_are_off_by_chance_are_no_jump_of_many_times_the_crowd() -> None:
    """With noise of a hundred times a crowd, single intervals were a hundred times as wide as any error."""
    nothing, weak = np.zeros((1, 1)), np.full((1, 1), 1e-6)
    drift = start_drift(np.ones((1, 1)))
    for _ in range(6):
        drift = learn_offset(drift, Fused(np.full((1, 1), 2200.0), weak, nothing))
    assert np.sqrt(drift_var(drift)[0, 0]) > 300.0
    assert np.sqrt(drift_var(drift, None, 40.0)[0, 0]) <= 40.0
    for _ in range(30):
        drift = learn_offset(drift, Fused(np.full((1, 1), 9000.0), weak, nothing))
    assert np.sqrt(drift_var(drift, None, 40.0)[0, 0]) > 3000.0, "this is certain, whatever was thought possible"


def test_users_who_stay_are_no_jump() -> None:
    """The deviation of a server's users is in all its samples: their mean is off, and the estimate is not."""
    drift = start_drift(np.ones((1, 1)))
    for _ in range(40):
        drift = learn_offset(drift, Fused(np.full((1, 1), 5.0), np.ones((1, 1)), np.full((1, 1), 9.0)))
    assert drift_var(drift)[0, 0] == 0.0


def test_what_the_consensus_adds_is_part_of_the_variance() -> None:
    """Priors of servers that sampled long ago pull a precise estimate away, which its variance does not know."""
    drift = start_drift(np.ones((1, 1)))
    drift = keep_drift(drift, np.ones((1, 1)), np.full((1, 1), 0.1), None, np.full((1, 1), -6.0))
    assert drift_var(drift)[0, 0] == 36.0
    drift = keep_drift(carry_drift(drift, np.zeros((1, 1)), np.ones(()), 1.0), np.ones((1, 1)), np.full((1, 1), 0.5))
    assert drift_var(drift)[0, 0] == 9.0
    averaged = np.full((1, 1), 4.0)  # noise that it averages away is no error
    assert drift_var(drift, averaged)[0, 0] == 5.0
    assert drift_var(drift, 3.0 * averaged)[0, 0] == 0.0


def test_sums_of_information_say_the_same_as_posteriors() -> None:
    """Filters that learn have no gain M/P: their offsets come from what they have heard, to the same result."""
    prior, prior_var = np.array([[3.0, 8.0, 1.0]]), np.array([[4.0, 9.0, np.inf]])
    info_vec, info_mat = np.array([[2.0, 0.0, 1.0]]), np.array([[0.5, 0.0, 1.0]])
    with np.errstate(divide="ignore"):
        var = 1.0 / (1.0 / prior_var + info_mat)
    mean = prior + var * (info_vec - info_mat * prior)
    nothing = np.zeros((1, 3))
    direct = Fused.of_sums(info_vec, info_mat, (prior, prior_var), nothing)
    derived = fused_innovations((prior, prior_var), (mean, var), nothing)
    np.testing.assert_allclose(direct.value, derived.value)
    np.testing.assert_allclose(direct.precision, derived.precision)
    assert direct.precision[0, 1:].tolist() == [0.0, 0.0], "nothing was heard, or nothing was known"
