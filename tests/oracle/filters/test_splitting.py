"""`filters.splitting` against the update with full covariances, and what dividing a sum adds to intervals."""

import numpy as np

from dpcrowd.filters import observation_info, update, update_matrix
from dpcrowd.filters.matrix import group_info
from dpcrowd.filters.splitting import DividedSums, follow_split, group_sizes, measured_by_sums


def test_members_of_a_group_are_updated_as_by_one_measurement_of_the_sum():
    """Dividing the sum evenly made regions of different size alike: 2.7 times the error of the model alone."""
    prior, prior_var = np.array([[10.0, 200.0, 4.0, 30.0]]), np.array([[3.0, 40.0, 2.0, 9.0]])
    pivot, share = np.array([[0, 0, 0, 3]]), np.array([[0.4]])
    sums, variance = np.array([[70.0, 70.0, 70.0, 15.0]]), np.array([[6.0, 6.0, 6.0, 2.5]])
    noisy, total = measured_by_sums(sums, variance, prior, prior_var, share, pivot)
    info_vec, info_mat = observation_info(noisy, share, total, np.ones((1, 4), dtype=bool))
    mean, var = update(prior, prior_var, info_vec, info_mat)
    members = (pivot[:, None, :] == np.arange(4)[None, :, None]).astype(float)
    at_pivot = np.array([[6.0, np.inf, np.inf, 2.5]])
    full_vec, full_mat = group_info(np.where(np.isfinite(at_pivot), sums, 0.0), share, at_pivot, members)
    known = np.ones(1, dtype=bool)
    full_mean, full_cov = update_matrix(prior, np.diag(prior_var[0])[None], known, full_vec, full_mat)[:2]
    assert np.allclose(mean, full_mean)
    assert np.allclose(var[0], np.diag(full_cov[0]))


def test_dividing_a_sum_widens_intervals_until_a_region_is_read_alone():
    """Regions that share one draw had intervals as if each had been read alone: coverage was 60% instead of 95%."""
    due = np.ones((1, 3), dtype=bool)
    sizes = group_sizes(np.array([[0, 0, 2]]), due)
    assert sizes.tolist() == [[2, 2, 1]]
    unknown, var, mean = np.full((1, 3), np.inf), np.full((1, 3), 4.0), np.full((1, 3), 50.0)
    divided = follow_split(DividedSums.none(1, 3), unknown, (mean, var), sizes, np.ones(()))
    assert np.allclose(divided.deviation, [[50 * np.sqrt(0.5), 50 * np.sqrt(0.5), 0.0]])
    alone = follow_split(divided, 2.0 * var, (mean, var), np.ones((1, 3), dtype=int), np.ones(()))
    assert np.allclose(alone.deviation, 0.5 * divided.deviation)
    silent = follow_split(divided, var, (mean, var), sizes, np.ones(()))
    assert np.array_equal(silent.deviation, divided.deviation), "nothing was heard"
