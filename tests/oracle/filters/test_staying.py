"""`filters.staying` against the joint covariance of an estimate's error and its server's deviation."""

from dataclasses import replace

import numpy as np

from dpcrowd.filters.staying import follow_staying, start_staying


def test_variance_of_a_filter_alone_is_exact():
    """A wrong recursion would release intervals that do not have the width of the error, and nobody would notice."""
    rng = np.random.default_rng(3)
    a, turnover, q, share = 0.9, 0.07, 4.0, 0.3
    noise, deviation = 5.0, 11.0
    prior_var, memory = np.array([[50.0]]), start_staying(1, 1)
    joint = np.diag([50.0, deviation])  # of (estimate - truth, deviation), before the first sample
    for _ in range(60):
        gain = 0.0
        posterior_var = prior_var
        if rng.random() < 0.6:
            posterior_var = 1.0 / (1.0 / prior_var + share**2 / (noise + deviation))
            gain = float(posterior_var[0, 0]) * share / (noise + deviation)
        update = np.array([[1.0 - gain * share, gain], [0.0, 1.0]])
        joint = update @ joint @ update.T + np.diag([gain**2 * noise, 0.0])
        part = np.array([[deviation / (noise + deviation)]])
        memory = follow_staying(memory, prior_var, posterior_var, part, np.array(a), turnover)
        assert np.isclose(float(posterior_var[0, 0] + memory.extra[0, 0]), joint[0, 0])
        move = np.diag([a, 1.0 - turnover])
        joint = move @ joint @ move.T + np.diag([q, deviation * (1.0 - (1.0 - turnover) ** 2)])
        prior_var = a * a * posterior_var + q


def test_without_information_nothing_is_added():
    """Regions of which nothing is known have an infinite variance: it must not become NaN."""
    memory = start_staying(1, 2)
    prior_var, posterior_var = np.array([[np.inf, np.inf]]), np.array([[np.inf, 3.0]])
    memory = follow_staying(memory, prior_var, posterior_var, np.full((1, 2), 0.5), np.ones(()), 0.05)
    assert memory.extra.tolist() == [[0.0, 0.0]]
    assert memory.cross.tolist() == [[0.0, 1.5]]


def test_slots_in_which_nothing_is_fused_add_nothing():
    """1/(1/P) differs from P by rounding: whoever takes that for a sample believes in deviations that nobody had."""
    one = np.ones((1, 1))
    memory = replace(start_staying(1, 1), cross=2.0 * one)
    for variance in np.arange(3.0, 60.0, 0.7):
        memory = follow_staying(memory, variance * one, variance * (1.0 - 1e-16 * one) - 1e-14, one, np.ones(()), 0.05)
    assert memory.cross[0, 0] < 2.0
