"""The median view against the distributions of SciPy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from dpcrowd.filters.median import median_view


def skewed(seed: int, least: float, most: float) -> tuple[np.ndarray, np.ndarray]:
    """Means between two numbers, and variances of which none is so small that the count is far from 0."""
    rng = np.random.default_rng(seed)
    mean = np.exp(rng.uniform(np.log(least), np.log(most), 20_000))
    return mean, np.square(mean / 3.0) * np.exp(rng.uniform(0.01, 9.0, mean.size))


def at_most_geometric(mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """What is more than the variance of a geometric count is doubt about the mean."""
    return np.minimum(variance, mean + np.square(mean))


@pytest.mark.parametrize("seed", range(3))
def test_medians_of_small_counts(seed: int) -> None:
    """A view that stopped one count early or late would be wrong by a person where a person is all there is."""
    mean, given = skewed(seed, 0.01, 100.0)
    variance = at_most_geometric(mean, given)
    wide = variance > mean * (1.0 + 1e-9)
    size = np.square(mean) / np.where(wide, variance - mean, 1.0)
    expected = np.where(
        wide, stats.nbinom.ppf(0.5, size, mean / np.maximum(variance, mean)), stats.poisson.ppf(0.5, mean)
    )
    assert 0.02 < (~wide).mean() < 0.98, "both distributions are tried"
    assert len(np.unique(expected)) > 50
    assert median_view(mean, given).tolist() == expected.tolist()


def test_counts_that_vary_hardly_more_than_poisson_counts() -> None:
    """Where both formulas meet, a division by nearly 0 would turn a small count into nobody."""
    mean = np.linspace(0.51, 8.7, 500)
    assert median_view(mean, mean * (1.0 + 1e-15)).tolist() == stats.poisson.ppf(0.5, mean).tolist()
    assert median_view(mean, mean * (1.0 + 1e-12)).tolist() == stats.poisson.ppf(0.5, mean).tolist()


def test_medians_of_large_counts() -> None:
    """Above 100 people the formula of a skewed number has to go on where the sums end, within 3% of the mean."""
    mean, given = skewed(4, 100.1, 1e6)
    variance = at_most_geometric(mean, given)
    shape = np.square(mean) / variance
    expected = stats.gamma.ppf(0.5, shape, scale=mean / shape)
    view = median_view(mean, given)
    assert (np.abs(view - expected) <= 0.03 * mean).all()
    clear = shape > 1.0
    assert view[clear] == pytest.approx(expected[clear], rel=0.015)


@pytest.mark.parametrize("shape", [0.5, 1.0, 3.0, 8.0])
def test_no_step_where_the_formula_changes(shape: float) -> None:
    """One person more must not change what is shown by many."""
    mean = np.array([100.0, 100.0 + 1e-9])
    small, large = median_view(mean, np.square(mean) / shape)
    assert large == pytest.approx(small, abs=2.0)


def test_the_median_has_the_smaller_absolute_error() -> None:
    """It is what the view is for: nobody would look at a second number that is not closer."""
    rng = np.random.default_rng(5)
    mean = rng.uniform(0.05, 1.0, 20_000)
    counts = rng.negative_binomial(0.5, 0.5 / (0.5 + mean))
    view = median_view(mean, mean + np.square(mean) / 0.5)
    assert np.abs(view - counts).sum() < 0.85 * np.abs(mean - counts).sum()
