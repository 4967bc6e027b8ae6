"""Normalised innovations are those of the textbook, and the window forgets what it should."""

from __future__ import annotations

import numpy as np
import pytest

from dpcrowd.filters.calibration import CalibrationWindow, dependence_of, normalised_innovations


def test_both_forms_are_the_same_as_with_counts() -> None:
    """The information form must say what (z - H m) / sqrt(H^2 P + R) says, or the bound of 1.96 means nothing."""
    rng = np.random.default_rng(3)
    noisy, share, variance = rng.normal(50, 9, (4, 3)), rng.uniform(0.1, 0.9, (4, 1)), rng.uniform(1, 20, (4, 3))
    prior, prior_var = rng.normal(100, 5, 3), rng.uniform(1, 40, 3)
    expected = (noisy - share * prior) / np.sqrt(share**2 * prior_var + variance)
    info_vec, info = share * noisy / variance, share**2 / variance
    np.testing.assert_allclose(normalised_innovations(info_vec, info, prior, prior_var), expected)
    full = np.zeros((4, 3, 3))
    full[:, range(3), range(3)] = info
    np.testing.assert_allclose(normalised_innovations(info_vec, full, prior, np.diag(prior_var)), expected)


def test_a_measured_sum_of_regions_has_its_variance() -> None:
    """With groups the matrix is not diagonal; the covariance of the prior between the regions then matters."""
    cov = np.array([[4.0, -3.0], [-3.0, 4.0]])
    members, variance = np.ones(2), 2.0
    info_vec, info_mat = members * 15.0 / variance, np.outer(members, members) / variance
    values = normalised_innovations(info_vec[None], info_mat[None], np.array([6.0, 7.0]), cov)
    np.testing.assert_allclose(values, (15.0 - 13.0) / np.sqrt(2.0 + variance))


def test_regions_without_measurement_or_prior_have_no_value() -> None:
    """A 0 instead would count as an innovation inside the interval, and hide others that are not."""
    info = np.array([[0.0, 1.0, 1.0]])
    values = normalised_innovations(info * 3, info, np.zeros(3), np.array([1.0, np.inf, 1.0]))
    assert np.isnan(values).tolist() == [[True, True, False]]


def test_an_absurd_message_leaves_the_mean_finite() -> None:
    """JSON has no infinity, and one neighbour's overflow must not blind the operator."""
    normal = np.random.default_rng(6).normal(size=(199, 1))
    window = CalibrationWindow(1)
    huge = np.array([[1e308]])
    value = normalised_innovations(huge, np.array([[1.0]]), np.zeros(1), np.ones(1))
    window.add(0, np.concatenate([normal / normal.std(), value]))
    assert 1.4 < window.summary().total_mean_square < 1.6, "it was 119,078,999 with a coverage of 0.94"


def test_the_bound_on_chance_holds_where_slots_are_right_or_wrong_as_a_whole() -> None:
    """Servers would call right intervals too narrow if values of one slot passed for independent ones."""
    rng = np.random.default_rng(5)
    chances = []
    for _ in range(2000):
        window = CalibrationWindow(1)
        for slot in range(20):
            count = 1 + 7 * (slot % 2)
            window.add(slot, np.full((count, 1), 5.0 if rng.random() < 0.1 else 0.0))
        chances.append(window.summary().chance_of_coverage(0.9))
    for level in (0.3, 0.1, 0.03):
        assert np.mean(np.array(chances) <= level) <= level
    assert min(chances) < 0.1, "it is not just 1"
    assert CalibrationWindow(1).summary().chance_of_coverage(0.9) == 1.0


def test_each_of_many_regions_needs_more_evidence() -> None:
    """With the chance of one region for each of 200, one of them would be named in most networks."""
    few, many = CalibrationWindow(1), CalibrationWindow(200)
    for slot in range(3):
        few.add(slot, np.array([[5.0]]))
        many.add(slot, np.where(np.arange(200) == 7, 5.0, 0.1)[None])
    assert few.summary().narrow_regions(0.9, 0.008) == [0], "0.1 ** 3 is below 0.008"
    assert many.summary().narrow_regions(0.9, 0.008) == [], "and above 0.008 / 200"
    for slot in range(3, 5):
        many.add(slot, np.where(np.arange(200) == 7, 5.0, 0.1)[None])
    assert many.summary().narrow_regions(0.9, 0.008) == [7]


def test_values_of_a_region_in_one_slot_are_one_piece_of_evidence() -> None:
    """They share a prior: one slot in which the region has jumped takes all of them out."""
    window = CalibrationWindow(2)
    window.add(0, np.tile([5.0, 0.1], (12, 1)))
    assert window.summary().narrow_regions(0.9, 0.008) == []
    for slot in range(1, 3):
        window.add(slot, np.tile([5.0, 0.1], (12, 1)))
    assert window.summary().narrow_regions(0.9, 0.008) == [0]


def test_values_of_users_who_stay_count_as_the_fewer_they_are() -> None:
    """With D = 5, eleven slots are the evidence of two, and 100 values of 20; regions are followed for 5 times as
    long, in blocks."""
    assert dependence_of(np.sqrt(2 / 3)) == pytest.approx(5.0)
    assert dependence_of(1.0) == 10_000
    window = CalibrationWindow(2, length=10, enough=20, longest=100, dependence=5.0)
    for slot in range(10):
        window.add(slot, np.array([[5.0, 0.0]]))
    assert window.summary().narrow_regions(0.9, 0.016) == [], "0.1 ** (10 / 5) is above 0.008"
    assert (window.summary().needed, window.summary().enough_at) == (100, 49)
    assert window.summary().chance_of_coverage(0.9) == pytest.approx(0.36, abs=0.01), "in total they are two, too"
    for again in (0.0, 5.0):
        window.add(10, np.array([[again, 0.0]]))
    assert window.summary().narrow_regions(0.9, 0.016) == [0]
    for slot in range(11, 50):
        window.add(slot, np.array([[5.0, 0.0]]))
    assert window.summary().enough_at is None
    evidence = window.summary().evidence
    assert evidence is not None
    assert evidence.values.tolist() == [50, 50]
    for slot in range(50, 500):
        window.add(slot, np.full((3, 2), 0.5))
    evidence = window.summary().evidence
    assert evidence is not None
    assert evidence.values.tolist() == [150, 150], "50 slots, where the total looks back at 17"
    assert (evidence.fullest.tolist(), evidence.coverage.tolist()) == ([3, 3], [1.0, 1.0])
    assert window.summary().window == 17
    uneven = CalibrationWindow(1, dependence=5.0)
    for slot, number in enumerate((1, 3, 2)):
        uneven.add(slot, np.zeros((number, 1)))
    evidence = uneven.summary().evidence
    assert evidence is not None
    assert (evidence.values.tolist(), evidence.fullest.tolist()) == ([6], [3]), "of one slot, not of one block"


def test_a_slot_that_is_released_again_counts_once() -> None:
    """A sample that could not be stored leads to a second release of the slot, with the same records."""
    window = CalibrationWindow(1)
    window.add(3, np.array([[1.0]]))
    window.add(4, np.array([[3.0]]))
    window.add(4, np.array([[0.0]]))
    summary = window.summary()
    assert (summary.records, summary.slots, summary.since) == (2, 2, 3)
    assert (summary.total_coverage, summary.total_mean_square) == (1.0, 0.5)


def test_old_slots_leave_the_window() -> None:
    """Otherwise a change of the crowd would take as long to show as the node has been running."""
    window = CalibrationWindow(2, length=5, enough=10, longest=20)
    for slot in range(20):
        window.add(slot, np.full((1, 2), 9.0 if slot < 10 else 0.5))
    assert window.summary().total_coverage == 1.0
    assert window.summary().slots == 5
    window.add(40, np.zeros((0, 2)))
    assert window.summary().records == 0
    assert np.isnan(window.summary().total_coverage)
    assert window.summary().since == 0


def test_regions_are_told_apart() -> None:
    """One region whose model is wrong is to be found among many."""
    window = CalibrationWindow(3)
    window.add(0, np.array([[0.1, 4.0, np.nan], [0.2, -4.0, np.nan]]))
    summary = window.summary()
    assert summary.coverage[:2].tolist() == [1.0, 0.0]
    assert summary.mean_square[1] == pytest.approx(16.0)
    assert np.isnan(summary.coverage[2])
    assert summary.values.tolist() == [2, 2, 0]


def test_a_sum_of_regions_is_nobodys_fault() -> None:
    """Its innovation stands at its lowest region: counted there, that region would be blamed for all of them."""
    window = CalibrationWindow(3)
    window.add(0, np.array([[9.0, np.nan, 0.5], [0.1, 0.2, 0.3]]), np.array([[True, False, False], [False] * 3]))
    summary = window.summary()
    assert summary.values.tolist() == [1, 1, 2]
    assert summary.coverage.tolist() == [1.0, 1.0, 1.0]
    assert (summary.sums, summary.total_values, summary.records) == (1, 5, 2)
    assert summary.total_coverage == pytest.approx(4 / 5), "the total knows of it"
    assert summary.total_mean_square == pytest.approx((81.0 + 0.25 + 0.01 + 0.04 + 0.09) / 5)


def test_the_window_is_as_long_as_it_takes_to_hold_enough() -> None:
    """With few values per record 100 slots never hold 200 of them, and there would never be a verdict."""
    window = CalibrationWindow(1, length=10, enough=20, longest=100)
    for slot in range(0, 200, 3):
        window.add(slot, np.full((1, 1), 9.0 if slot < 60 else 0.5))
        assert window.summary().total_values == min(slot // 3 + 1, 20)
    summary = window.summary()
    assert (summary.window, summary.slots) == (58, 20), "the last 20 values, from slot 141 to slot 198"
    assert summary.total_coverage == 1.0, "what is older than needed is forgotten"
    assert summary.enough_at is None
    for slot in range(200, 220):
        window.add(slot, np.full((4, 1), 0.5))
    assert (window.summary().window, window.summary().total_values) == (10, 40), "short again where values are many"


def test_it_says_when_there_will_be_enough() -> None:
    """An operator cannot tell a verdict that comes tomorrow from one that never does."""
    window = CalibrationWindow(1, length=10, enough=20, longest=100)
    window.add(7, np.zeros((0, 1)))
    assert window.summary().enough_at is None, "nothing has come yet"
    for slot in range(8, 32):
        window.add(slot, np.zeros((1 if slot % 5 == 0 else 0, 1)))
    assert window.summary().total_values == 5
    assert window.summary().enough_at == 106, "5 values in 25 slots: 20 take 100 slots from slot 7 on"
    for slot in range(32, 300):
        window.add(slot, np.zeros((1 if slot % 7 == 0 else 0, 1)))
    assert window.summary().enough_at == np.inf
    assert window.summary().window <= 100


def test_a_clock_set_back_replaces_the_evidence_of_later_blocks() -> None:
    """Blocks of slots that are released again kept what they held, out of order, some of them below zero."""
    window = CalibrationWindow(1, length=4, enough=1, dependence=3.0)
    for slot in range(20):
        window.add(slot, np.array([[5.0]]))
    alone = CalibrationWindow(1, length=4, enough=1, dependence=3.0)
    for slot in range(17):
        alone.add(slot, np.array([[5.0]]))
    for slot in range(17, 40):
        for one in (window, alone):
            one.add(slot, np.array([[0.0]]))
        evidence, expected = window.summary().evidence, alone.summary().evidence
        assert evidence is not None
        assert expected is not None
        assert (evidence.values.tolist(), evidence.since) == (expected.values.tolist(), expected.since)
        assert evidence.coverage.tolist() == expected.coverage.tolist()
