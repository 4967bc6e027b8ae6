"""ARE, ACE and coverage against loops that follow their formulas word by word."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

from dpcrowd.schemes.base import Z95
from dpcrowd.sim.metrics import SIZES, absolute_sums, consensus_error, covered, nan_mean, relative_error, size_of

SLOTS, RUNS, SERVERS, REGIONS = 3, 2, 4, 5


@pytest.fixture
def world() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Estimates with holes, variances with holes of their own, and a truth that is often below 1."""
    rng = np.random.default_rng(1)
    estimates = rng.normal(3.0, 4.0, (SLOTS, RUNS, SERVERS, REGIONS))
    variances = rng.uniform(0.1, 30.0, estimates.shape)
    truth = rng.integers(0, 6, (SLOTS, RUNS, REGIONS)).astype(np.float64)
    estimates[0, 0, 1] = np.nan  # a server without an estimate
    estimates[1, 1, :, 2] = np.nan  # a region without any
    variances[2, 0, 0, 0] = np.inf
    variances[2, 0, 1, 1] = np.nan
    return estimates, variances, truth


def _mean(values: list[float]) -> float:
    there = [value for value in values if not math.isnan(value)]
    return math.fsum(there) / len(there) if there else math.nan


def test_are_is_the_mean_of_relative_errors_with_a_floor_of_one(world: tuple[np.ndarray, ...]) -> None:
    """A wrong floor (delta) or a missing estimate taken for 0 would change every figure that is reported."""
    estimates, _, truth = world
    for t in range(SLOTS):
        for b in range(RUNS):
            errors = [
                abs(estimates[t, b, i, k] - truth[t, b, k]) / max(truth[t, b, k], 1.0)
                for i in range(SERVERS)
                for k in range(REGIONS)
            ]
            assert relative_error(estimates, truth)[t, b] == pytest.approx(_mean(errors), rel=1e-12)


def test_an_empty_region_counts_the_error_in_people() -> None:
    """With r = 0 a division by the truth would be infinite; delta = 1 makes it the number of people."""
    estimates = np.array([[[[3.0], [1.0]]]])
    assert relative_error(estimates, np.array([[[0.0]]]))[0, 0] == 2.0
    assert relative_error(estimates, np.array([[[0.5]]]))[0, 0] == 1.5


def test_ace_is_the_mean_distance_from_the_servers_average(world: tuple[np.ndarray, ...]) -> None:
    """The average has to be the run's own, of each region, and without the servers that have no estimate."""
    estimates, _, _ = world
    found = consensus_error(estimates)
    for t in range(SLOTS):
        for b in range(RUNS):
            errors = []
            for k in range(REGIONS):
                average = _mean([estimates[t, b, i, k] for i in range(SERVERS)])
                errors += [abs(estimates[t, b, i, k] - average) for i in range(SERVERS)]
            assert found[t, b] == pytest.approx(_mean(errors), rel=1e-12)


def test_ace_is_zero_where_all_agree_and_undefined_where_nobody_knows() -> None:
    """Agreement must not show as an error, nor may nothing at all show as agreement."""
    assert consensus_error(np.full((1, 1, 4, 2), 7.25))[0, 0] == 0.0
    assert np.isnan(consensus_error(np.full((1, 1, 4, 2), np.nan))[0, 0])


def test_coverage_counts_intervals_that_hold_the_truth(world: tuple[np.ndarray, ...]) -> None:
    """Infinite or missing variances are no intervals: counting them as hits would flatter a scheme at its start."""
    estimates, variances, truth = world
    found = covered(estimates, variances, truth)
    for t in range(SLOTS):
        for b in range(RUNS):
            hits = []
            for i in range(SERVERS):
                for k in range(REGIONS):
                    half = 1.959963984540054 * math.sqrt(variances[t, b, i, k])
                    if math.isfinite(half) and math.isfinite(estimates[t, b, i, k]):
                        low, high = estimates[t, b, i, k] - half, estimates[t, b, i, k] + half
                        hits.append(float(low <= truth[t, b, k] <= high))
            assert found[t, b] == pytest.approx(_mean(hits), rel=1e-12)
    assert 0 < found.min() < 1, "the case should have hits and misses"


def test_a_scheme_without_intervals_has_no_coverage() -> None:
    """Coverage 0 or 1 instead of undefined would be read as a statement about its intervals."""
    estimates = np.ones((2, 1, 3, 1))
    assert np.isnan(covered(estimates, np.full_like(estimates, np.nan), np.ones((2, 1, 1)))).all()


def test_absolute_errors_are_added_up_over_the_servers_that_have_an_estimate(world: tuple[np.ndarray, ...]) -> None:
    """Total error and MAE are made of these sums; a missing estimate is not an error of 0."""
    estimates, _, truth = world
    sums, servers = absolute_sums(estimates, truth)
    for t in range(SLOTS):
        for b in range(RUNS):
            for k in range(REGIONS):
                errors = [abs(estimates[t, b, i, k] - truth[t, b, k]) for i in range(SERVERS)]
                there = [error for error in errors if not math.isnan(error)]
                assert sums[t, b, k] == pytest.approx(math.fsum(there), rel=1e-12)
                assert servers[t, b, k] == len(there)
    assert servers[1, 1, 2] == 0


def test_an_estimate_that_diverged_gives_an_infinite_sum_without_a_warning() -> None:
    """Two servers near the largest float: the sum is infinite, and the result says that the run diverged."""
    estimates = np.full((1, 1, 2, 1), 1.7e308)
    assert np.isinf(absolute_sums(estimates, np.zeros((1, 1, 1)))[0]).all()


def test_every_count_belongs_to_one_class_of_sizes() -> None:
    """A count on the edge that fell out, or into two classes, would make the shares sum to something else than 1."""
    counts = np.array([0, 5, 6, 50, 51, 500, 501, 10**7], dtype=np.float64)
    assert size_of(counts).tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    for (_, most), (least, _) in pairwise(SIZES):
        assert most is not None
        assert least == most + 1


def test_the_quantile_is_the_normal_one() -> None:
    """A typo in a digit of z would shift every interval a little and be seen by nobody."""
    from scipy.stats import norm

    assert pytest.approx(norm.ppf(0.975), rel=1e-12) == Z95


@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1)])
def test_nan_mean_is_numpys(axes: tuple[int, ...]) -> None:
    """The fast path (nothing is missing) and the slow one have to agree with numpy.nanmean."""
    values = np.random.default_rng(2).normal(size=(4, 5))
    np.testing.assert_allclose(nan_mean(values, axes), values.mean(axis=axes), rtol=1e-13)
    values[0, 0] = values[2, 3] = np.nan
    np.testing.assert_allclose(nan_mean(values, axes), np.nanmean(values, axis=axes), rtol=1e-13)


def test_nan_mean_of_nothing_is_nan_without_a_warning() -> None:
    """A warning on the terminal for the first slots of every simulation would be noise."""
    values = np.array([[np.nan, 1.0], [np.nan, 3.0]])
    np.testing.assert_array_equal(nan_mean(values, (0,)), [np.nan, 2.0])
