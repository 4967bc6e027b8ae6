"""The non-negative view of estimates, against its definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

from dpcrowd.filters.nonnegative import nonnegative_view
from examples_support import examples


@settings(max_examples=examples(60))
@given(st.integers(0, 10**6), st.integers(1, 8))
def test_the_total_stays_and_nothing_is_negative(seed: int, regions: int) -> None:
    """A view that lost or invented people would make a map say something else than the release."""
    rng = np.random.default_rng(seed)
    estimate, variance = rng.normal(1.0, 5.0, regions), rng.uniform(0.1, 20.0, regions)
    view = nonnegative_view(estimate, variance)
    total = max(estimate.sum(), 0.0)
    assert (view >= 0.0).all()
    assert view.sum() == pytest.approx(total, abs=1e-9)
    if total == 0.0:
        return

    def excess(tau: float) -> float:
        return float(np.maximum(estimate - tau * variance, 0.0).sum() - total)

    tau = 0.0 if excess(0.0) <= 1e-12 else brentq(excess, 0.0, float((np.abs(estimate) / variance).max()) + 1.0)
    assert view == pytest.approx(np.maximum(estimate - tau * variance, 0.0), abs=1e-6)


def test_estimates_that_are_not_negative_are_left_alone() -> None:
    """Where there is nothing to correct, two numbers for the same thing would only confuse."""
    estimate = np.array([[3.0, 0.0, 7.5], [1.0, 2.0, 4.0]])
    assert nonnegative_view(estimate, np.ones((2, 3))).tolist() == estimate.tolist()


def test_regions_without_an_estimate_and_schemes_without_variances() -> None:
    """A region without an estimate must not become an empty one, nor take part in the total."""
    view = nonnegative_view(np.array([np.nan, 5.0, -1.0]), np.array([np.inf, 1.0, 1.0]))
    assert np.isnan(view[0])
    assert view[1:].tolist() == [4.0, 0.0]
    assert nonnegative_view(np.array([5.0, -1.0]), np.full(2, np.nan)).tolist() == [4.0, 0.0]
    assert nonnegative_view(np.array([-5.0, 1.0]), np.ones(2)).tolist() == [0.0, 0.0]


def test_an_exact_region_is_not_changed() -> None:
    """A count that is known exactly must not pay for the noise of others."""
    assert nonnegative_view(np.array([5.0, 4.0, -1.0]), np.array([0.0, 2.0, 2.0])).tolist() == [5.0, 3.0, 0.0]
