"""What filters on the same crowd share: against filters that are run, and against the covariance of two of them."""

from __future__ import annotations

import numpy as np
import pytest

from dpcrowd.filters.shared_errors import average_var, follow_shared, start_shared

FILTERS, RUNS, SLOTS = 12, 4000, 60


@pytest.mark.parametrize(("a", "q", "noise"), [(1.0, 4.0, 100.0), (0.6, 9.0, 4.0), (0.9, 1.0, 1000.0)])
def test_the_variance_of_an_average_of_filters(a: float, q: float, noise: float) -> None:
    """If errors were taken for independent, the average would seem far too good; if for the same, it would not gain."""
    rng = np.random.default_rng(1)
    start = q / (1.0 - a * a) if a < 1.0 else 50.0
    truth = rng.normal(0.0, np.sqrt(start), (RUNS, 1))
    mean, var = np.zeros((RUNS, FILTERS)), start
    shared = start_shared(np.full((1, 1), var))
    for _ in range(SLOTS):
        truth = a * truth + rng.normal(0.0, np.sqrt(q), (RUNS, 1))
        prior, prior_var = a * mean, a * a * var + q
        gain = prior_var / (prior_var + noise)
        mean = prior + gain * (truth + rng.normal(0.0, np.sqrt(noise), (RUNS, FILTERS)) - prior)
        before, var = var, (1.0 - gain) * prior_var
        one = np.ones((1, 1))
        shared = follow_shared(shared, before * one, prior_var * one, var * one, a * one)
    errors = mean - truth
    covariance = np.cov(errors.T)
    off = covariance[~np.eye(FILTERS, dtype=bool)].mean()
    assert float(shared[0, 0]) == pytest.approx(off, rel=0.1)
    predicted = average_var(
        shared / var, np.sqrt(var) * np.ones((1, 1)), var * np.ones((1, 1)), np.full((1, 1), FILTERS)
    )
    assert float(predicted[0, 0]) == pytest.approx(float(np.square(errors.mean(axis=1)).mean()), rel=0.1)


def test_a_filter_that_starts_from_nothing_shares_nothing_with_others() -> None:
    """The first sample of each is its own; an unknown start must not become a number, either."""
    unknown = np.full((1, 2), np.inf)
    shared = start_shared(unknown)
    assert shared.tolist() == [[0.0, 0.0]]
    first = np.array([[9.0, np.inf]])
    shared = follow_shared(shared, unknown, unknown, first, np.ones((1, 2)))
    assert shared.tolist() == [[0.0, 0.0]]
    again = follow_shared(shared, first, first + 1.0, np.array([[5.0, np.inf]]), np.ones((1, 2)))
    assert again[0, 0] == pytest.approx(0.25)
    assert again[0, 1] == 0.0
