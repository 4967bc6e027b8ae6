"""A level that moves in all regions by one factor: one number, known from the records of all of them."""

from __future__ import annotations

import numpy as np
import pytest

from dpcrowd.filters import Course, ProcessModel
from dpcrowd.filters.common_level import RETURN, predict_level, start_var
from dpcrowd.filters.groups import GroupedSums
from dpcrowd.filters.learning import beliefs_of, complete_banks, predict_bank, reset_bank, start_bank, update_bank

LEVELS = np.array([40.0, 200.0, 900.0])
COURSE = Course(np.array([LEVELS, np.zeros(3)]), np.square(0.05 * np.array([LEVELS, LEVELS])), season=2, step=1)
COMMON = 7  # the place of this belief in a bank
WHITE = ProcessModel.around(Course(LEVELS[None], np.square(0.05 * LEVELS)[None]), np.zeros(3))


def test_it_is_the_joint_filter_of_level_and_deviations() -> None:
    """Deviations that do not last: a dense Gaussian update of all regions gives the same estimate and variance."""
    beliefs, rng = beliefs_of(WHITE), np.random.default_rng(1)
    bank, noise = start_bank(WHITE, 1, -1), np.array([900.0, 2500.0, 400.0])
    settled = np.diag(np.square(0.05 * LEVELS))
    level, variance = 0.0, float((start_var(WHITE.course, -1, np.zeros(3)) - np.diag(settled))[0] / LEVELS[0] ** 2)
    for slot in range(6):
        values = 0.6 * LEVELS + rng.normal(0.0, np.sqrt(noise))
        info = (1.0 / noise)[None]
        prior = predict_bank(bank, WHITE, beliefs, slot)
        bank = update_bank(prior, info * values, info, beliefs)
        level, variance = RETURN * level, RETURN**2 * variance + 0.05**2
        cov = variance * np.outer(LEVELS, LEVELS) + settled
        assert prior.var[COMMON, 0] == pytest.approx(np.diag(cov))
        gain = cov @ np.linalg.inv(cov + np.diag(noise))
        mean = (1.0 + level) * LEVELS + gain @ (values - (1.0 + level) * LEVELS)
        assert bank.mean[COMMON, 0] == pytest.approx(mean)
        assert bank.var[COMMON, 0] == pytest.approx(np.diag(cov - gain @ cov))
        precision = 1.0 / variance + np.square(LEVELS) @ (1.0 / (noise + np.diag(settled)))
        level += LEVELS @ ((values - (1.0 + level) * LEVELS) / (noise + np.diag(settled))) / precision
        variance = 1.0 / precision


def test_it_is_the_joint_filter_where_records_have_the_sum_of_all_regions() -> None:
    """A sum is one measurement: counted once per member, the level would be taken for known after one record."""
    beliefs, rng = beliefs_of(WHITE), np.random.default_rng(2)
    bank, noise, ones = start_bank(WHITE, 1, -1), 90000.0, np.ones((1, 3))
    settled = np.diag(np.square(0.05 * LEVELS))
    level, variance = 0.0, float((start_var(WHITE.course, -1, np.zeros(3)) - np.diag(settled))[0] / LEVELS[0] ** 2)
    row = np.ones(3)
    for slot in range(6):
        total = 1.7 * LEVELS.sum() + rng.normal(0.0, np.sqrt(noise))
        prior = predict_bank(bank, WHITE, beliefs, slot)
        assert prior.common is not None
        assert prior.common.level == pytest.approx(RETURN * level, rel=0.02)
        sums = GroupedSums(np.zeros(3, dtype=np.int64), total / noise * ones, ones / noise)
        bank = update_bank(prior, 0.0 * ones, 0.0 * ones, beliefs, [sums])
        level, variance = RETURN * level, RETURN**2 * variance + 0.05**2
        growth = max(1.0 + level, 1.0) ** 2
        of_sum = row @ (growth * settled + variance * np.outer(LEVELS, LEVELS)) @ row
        assert prior.common.added_var(np.zeros(3, dtype=np.int64))[0, 0] == pytest.approx(
            variance * (LEVELS.sum() ** 2 - np.square(LEVELS).sum()), rel=0.02
        )
        precision = 1.0 / variance + LEVELS.sum() ** 2 / (noise + row @ settled @ row)
        level += LEVELS.sum() * (total - (1.0 + level) * LEVELS.sum()) / (noise + row @ settled @ row) / precision
        variance = 1.0 / precision
        assert bank.mean[COMMON, 0].sum() == pytest.approx((1.0 + level) * LEVELS.sum(), rel=0.02)
        assert bank.var[COMMON, 0].sum() < of_sum


def test_deviations_grow_with_the_crowd_and_do_not_shrink_with_it() -> None:
    """Intervals of a crowd of 200 with the deviations of a crowd of 100 would cover too little."""
    mean, settled = LEVELS[None], COURSE.settled_var(0, np.zeros(3))[None]
    for factor, growth in ((2.0, 4.0), (0.5, 1.0)):
        belief = factor * mean, growth * settled + 0.01 * np.square(mean)
        common = predict_level((mean, settled), belief, settled, COURSE, np.zeros(3), 2, 0)
        assert common.variance == pytest.approx(RETURN**4 * 0.01 + 0.05**2 * (1.0 + RETURN**2))
        var = common.estimate(mean, settled)[1] - np.square(mean) * common.variance
        assert var == pytest.approx(max(1.0 + (factor - 1.0) * RETURN**2, 1.0) ** 2 * settled)


def test_it_survives_an_hour_in_which_nobody_is_expected() -> None:
    """Where every expected count is 0, a factor of them would be lost, and with it all that was learned."""
    a = np.zeros(3)
    settled = COURSE.settled_var(0, a)[None]
    mean = LEVELS[None]
    before = predict_level((mean, settled), (0.5 * mean, settled + 0.01 * np.square(mean)), settled, COURSE, a, 1, 0)
    assert before.level == pytest.approx(-0.5 * RETURN)
    empty = before.estimate(np.zeros((1, 3)), settled)
    assert np.abs(empty[0]).max() < 1.0
    after = predict_level((np.zeros((1, 3)), settled), empty, settled, COURSE, a, 2, 1)
    assert after.level == pytest.approx(-0.5 * RETURN**2)
    assert after.variance == pytest.approx(RETURN**2 * before.variance + 0.05**2, rel=1e-6)


def test_slots_that_were_skipped_count_as_many() -> None:
    """After an absence the level is as uncertain as if every slot had passed without records."""
    a, settled = np.zeros(3), COURSE.settled_var(0, np.zeros(3))[None]
    state = (LEVELS[None], settled), (1.2 * LEVELS[None], settled + 0.02 * np.square(LEVELS[None]))
    at_once = predict_level(*state, settled, COURSE, a, 2, 0)
    one = predict_level(*state, settled, COURSE, a, 1, 0)
    assert at_once.level == pytest.approx(RETURN * one.level)
    assert at_once.variance == pytest.approx(RETURN**2 * one.variance + 0.05**2)


@pytest.mark.parametrize("missing", [2, 3])
def test_filters_that_agree_and_banks_of_earlier_versions_have_a_level(missing: int) -> None:
    """A bank that was reset, or saved before this belief or a later one existed, must go on with finite numbers."""
    beliefs = beliefs_of(WHITE)
    bank = reset_bank(np.full((2, 3), 70.0), np.full((2, 3), 9.0), beliefs)
    prior = predict_bank(bank, WHITE, beliefs, 5)
    assert prior.mean[COMMON] == pytest.approx(prior.mean[1])
    fresh = {f"state.bank.{name}": part for name, part in vars(start_bank(WHITE, 2, -1)).items()}
    saved = {name: array[:-missing].copy() for name, array in fresh.items()}
    saved["state.bank.mean"][-1] *= 1.3
    complete_banks(saved, fresh)
    bank = type(bank)(*(saved[f"state.bank.{name}"] for name in ("mean", "var", "weight")))
    prior = predict_bank(bank, WHITE, beliefs, 0)
    assert prior.mean[COMMON] == pytest.approx((1.0 + 0.3 * RETURN) * np.tile(LEVELS, (2, 1)))
    assert np.isfinite(prior.var).all()
    assert (prior.var > 0.0).all()


def test_a_region_without_people_or_variance() -> None:
    """A model that expects nothing anywhere would divide by nothing."""
    course = Course(np.zeros((1, 2)), np.zeros((1, 2)))
    model = ProcessModel.around(course, np.array([0.0, 0.5]))
    beliefs = beliefs_of(model)
    info = np.full((1, 2), 0.01)
    bank = update_bank(predict_bank(start_bank(model, 1, -1), model, beliefs, 0), 5.0 * info, info, beliefs)
    assert bank.mean[COMMON] == pytest.approx(bank.mean[1])
    assert np.isfinite(predict_bank(bank, model, beliefs, 1).mean[COMMON]).all()
