"""The median view of estimates: where it is the estimate, where it is 0 and where there is none."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dpcrowd.filters.median import median_view
from examples_support import examples

_NUMBERS = st.floats(allow_nan=True, allow_infinity=True)


def test_estimates_far_from_nobody_are_left_alone() -> None:
    """Where noise is small beside the crowd, two numbers for the same thing would only confuse."""
    estimate = np.array([[30.0, 12.5, 1e6], [0.75, 9.0, 0.0]])
    variance = np.array([[100.0, 4.0, 1.0], [0.01, 9.0, 0.0]])
    assert median_view(estimate, variance).tolist() == estimate.tolist()


def test_nearly_empty_regions_are_empty() -> None:
    """A region with one person in five weeks is empty in most; noise below 0 is nobody."""
    assert median_view(np.array([0.2, 0.5, -4.0, -1.0]), np.array([0.2, 30.0, 9.0, 0.0])).tolist() == [0.0] * 4


def test_no_estimate_or_no_variance() -> None:
    """A region of which nothing is known must not look empty; how skewed a count is, its variance alone tells."""
    estimate = np.array([np.nan, 5.0, 5.0, np.inf, 5.0])
    variance = np.array([1.0, np.nan, np.inf, 1.0, -1.0])
    assert np.isnan(median_view(estimate, variance)).all()


@settings(max_examples=examples(60))
@given(arrays(np.float64, (2, 3, 4), elements=_NUMBERS))
def test_whatever_is_given(numbers: np.ndarray) -> None:
    """A live node answers with it: no overflow, nothing negative, and a number wherever both numbers are there."""
    estimate, variance = numbers
    view = median_view(estimate, variance)
    known = np.isfinite(estimate) & np.isfinite(variance) & (variance >= 0.0)
    assert (np.isfinite(view) == known).all()
    assert (view[known] >= 0.0).all()
    assert (view[known] <= np.maximum(estimate[known], 0.0) + 1.0 / 3.0).all()


def test_doubt_about_a_mean_is_not_taken_for_skewness() -> None:
    """The variance of an estimate from weak records contains doubt, and the view would be lower than any guess."""
    geometric, doubtful = median_view(np.array([6.0, 6.0]), np.array([42.0, 4200.0]))
    assert geometric == doubtful == 4.0
