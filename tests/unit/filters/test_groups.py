"""Records of groups: how a sum is divided among its regions, against the textbook update with a row of ones."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from dpcrowd.filters.groups import divide_sums, over_members
from dpcrowd.filters.kalman import update

Floats = NDArray[np.float64]
GROUPS = np.array([0, 1, 0, 0])
PRIOR = np.array([[4.0, 50.0, 1.0, 0.5]])
VAR = np.array([[9.0, 16.0, 2.0, 1.0]])


def fused(value: float, variance: float, groups: NDArray[np.int64], prior: Floats, prior_var: Floats) -> Floats:
    """Posterior means and variances by one dense update with H = 1 for the members of the group of region 0."""
    row = (groups == 0).astype(np.float64)
    covariance = np.diag(prior_var)
    gain = covariance @ row / (row @ covariance @ row + variance)
    after = covariance - np.outer(gain, row @ covariance)
    return np.stack([prior + gain * (value - row @ prior), np.diag(after)])


def test_a_sum_is_divided_as_the_dense_update_divides_it() -> None:
    """Any other division would put people where they are not likely, or claim a precision that no record has."""
    info = np.where(GROUPS == 0, 0.5, 0.25)[None]
    y = info * np.where(GROUPS == 0, 12.0, 60.0)
    divided = divide_sums(y, info, GROUPS, PRIOR, VAR, bounded=False)
    mean, var = update(PRIOR, VAR, *divided)
    expected, expected_var = fused(12.0, 2.0, GROUPS, PRIOR[0], VAR[0])
    members = GROUPS == 0
    assert mean[0][members] == pytest.approx(expected[members])
    assert var[0][members] == pytest.approx(expected_var[members])
    assert (divided[0][0, 1], divided[1][0, 1]) == (y[0, 1], info[0, 1]), "a region by itself keeps its information"


def test_members_of_which_nothing_is_known_share_what_the_sum_leaves() -> None:
    """Without the bound a group without a past would never have an estimate."""
    unknown = np.array([[np.inf, 16.0, np.inf, np.inf]])
    info, y = np.full((1, 4), 0.5), np.full((1, 4), 0.5 * 12.0)
    mean, var = update(np.zeros((1, 4)), unknown, *divide_sums(y, info, GROUPS, PRIOR * 0, unknown, bounded=True))
    members = GROUPS == 0
    assert mean[0][members] == pytest.approx(4.0)
    assert var[0][members] == pytest.approx(4.0**2 + 4.0 + 2.0 / 3)
    y, info = divide_sums(y, info, GROUPS, PRIOR * 0, unknown, bounded=False)
    assert not info[0][members].any(), "without a bound a sum of unknown regions says nothing about one of them"


def test_the_bound_keeps_the_sum_and_leaves_precise_members_alone() -> None:
    """A bound that moved the sum would bias totals; one that replaced good estimates would throw records away."""
    wide = np.array([[400.0, 16.0, 900.0, 0.01]])
    info, y = np.full((1, 4), 0.5), np.full((1, 4), 0.5 * 6.0)
    mean, var = update(PRIOR, wide, *divide_sums(y, info, GROUPS, PRIOR, wide, bounded=True))
    members = wide[0, [0, 2, 3]].sum()
    total = PRIOR[0, [0, 2, 3]].sum()
    crowd = total + members / (members + 2.0) * (6.0 - total)
    assert mean[0, [0, 2, 3]].sum() == pytest.approx(crowd)
    assert mean[0, 0] == pytest.approx(mean[0, 2])
    assert (var[0, [0, 2]] < 20.0).all()
    assert mean[0, 3] == pytest.approx(0.5, abs=1e-3)


def test_sums_over_members_are_added_in_order() -> None:
    """Another order would be other bits at another server."""
    values = np.array([[1e16, 1.0, 1.0, -1e16]])
    assert over_members(values, np.zeros((1, 4), dtype=np.int64))[0, 0] == ((1e16 + 1.0) + 1.0) - 1e16
