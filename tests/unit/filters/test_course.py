"""A course whose deviations follow a scale: what is carried from slot to slot, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dpcrowd.errors import BadInput
from dpcrowd.filters import Course, ProcessModel
from dpcrowd.filters.ahead import moved_in_time
from dpcrowd.filters.bank_estimate import step_ahead
from dpcrowd.filters.common_level import RETURN
from dpcrowd.filters.course import same_course
from dpcrowd.filters.learning import beliefs_of, predict_bank, start_bank
from dpcrowd.schemes.uniform import expected_miss

PROFILE = np.array([[400.0, 9.0], [20.0, 3.0], [150.0, 5.0]])
A = np.array([0.9, 0.4])
COMMON, OTHER_SEASON, MOVING = 7, 9, 10  # the places of these beliefs in a bank
COURSE = Course(PROFILE, 0.04 * np.square(PROFILE), season=3, offset=0, step=1, scale=PROFILE)
MODEL = ProcessModel.around(COURSE, A)


def test_deviations_shrink_and_grow_with_the_scale() -> None:
    """The deviation of a day that was carried into the night as it is would be larger than the crowd of the night."""
    assert MODEL.carried(1) == pytest.approx(A * [20.0 / 400.0, 3.0 / 9.0])
    assert MODEL.carried(3) == pytest.approx(A * [400.0 / 150.0, 9.0 / 5.0])
    assert MODEL.carried(6, 3) == pytest.approx(A**3)
    for slot in range(3):  # relative to what is expected, all parts of the season are the same
        assert COURSE.settled_var(slot, A) == pytest.approx(0.04 * np.square(PROFILE[slot]) / (1.0 - A * A))


def test_without_a_scale_everything_is_carried_over_as_it_is() -> None:
    """Models of earlier versions must give the same to the last bit."""
    plain = replace(COURSE, scale=None)
    assert plain.carried(A, 1) is A
    assert plain.ratio(0, 1) == 1.0
    mean, var = np.array([[300.0, 4.0]]), np.array([[50.0, 2.0]])
    model = ProcessModel.around(plain, A)
    assert moved_in_time(mean, var, model, 0, 1)[1] is var


def test_an_estimate_of_another_slot_has_the_same_relative_deviation() -> None:
    """Variances and covariances follow the scale as the means do."""
    mean, var = np.array([[440.0, 6.0]]), np.array([[1600.0, 9.0]])
    moved, moved_var = moved_in_time(mean, var, MODEL, 0, 1)
    assert moved == pytest.approx(np.array([[22.0, 2.0]]))
    assert moved_var == pytest.approx(np.array([[4.0, 1.0]]))
    covariances = moved_in_time(mean, np.diag(var[0])[None], MODEL, 0, 1)[1]
    assert covariances == pytest.approx(np.diag([4.0, 1.0])[None])


def test_new_regions_have_the_scale_of_the_first() -> None:
    """A revision that adds a region would fail on a scale of the wrong shape."""
    wider = COURSE.with_more_regions(2)
    assert wider.scale is not None
    assert wider.scale[:, 2:].tolist() == PROFILE[:, [0, 0]].tolist()


def test_courses_with_other_scales_differ() -> None:
    """A state must not go on under a course that carries deviations in another way."""
    assert same_course(COURSE, replace(COURSE, scale=PROFILE.copy()))
    assert not same_course(COURSE, replace(COURSE, scale=None))
    assert not same_course(COURSE, replace(COURSE, scale=2.0 * PROFILE))


@pytest.mark.parametrize("scale", [PROFILE[:2], 0.0 * PROFILE, np.full((3, 2), np.nan)], ids=["shape", "zero", "nan"])
def test_a_scale_that_says_nothing_is_refused(scale: np.ndarray) -> None:
    """A ratio with 0 would be infinite in every filter."""
    with pytest.raises(BadInput, match="the scale of a course must have the shape of its profile"):
        replace(COURSE, scale=scale)


def test_a_variance_of_zero_is_the_least_one() -> None:
    """Filters divide by it: a region that is said never to deviate made all regions NaN where filters learn."""
    course = Course(PROFILE, np.zeros_like(PROFILE), season=3, step=1)
    assert (course.variance > 0.0).all()
    assert course.settled_var(0, A).max() < 1e-6, "the model is still as good as certain"
    beliefs = beliefs_of(ProcessModel.around(course, A))
    assert np.isfinite(beliefs.factor).all()
    assert Course(PROFILE, COURSE.variance).variance is COURSE.variance, "others are kept as they are"


def test_all_beliefs_follow_the_scale() -> None:
    """A bank that skips slots must be where the same bank is slot by slot, and know its covariance with the next."""
    beliefs = beliefs_of(MODEL)
    bank = start_bank(MODEL, 1, 0)
    bank.mean += 0.3 * PROFILE[0]
    one = predict_bank(predict_bank(bank, MODEL, beliefs, 1), MODEL, beliefs, 2)
    both = predict_bank(bank, MODEL, beliefs, 2, 0)
    assert both.mean == pytest.approx(one.mean)
    assert both.var == pytest.approx(one.var)
    relative = (both.mean - PROFILE[2]) / PROFILE[2]
    own = np.delete(np.arange(len(relative)), [COMMON, OTHER_SEASON, MOVING])
    assert relative[own] == pytest.approx(0.3 * beliefs.transition[own] ** 2)
    prior, prior_var, covariance = step_ahead(bank, MODEL, beliefs, 1)
    assert (np.square(covariance) <= prior_var * (bank.var.max(axis=0) + np.square(0.3 * PROFILE[0]))).all()
    assert (covariance < 0.2 * bank.var.max(axis=0)).all()
    assert (prior < PROFILE[0]).all()


def test_a_common_level_is_a_factor_also_where_deviations_follow_a_scale() -> None:
    """A crowd that has grown by a fifth is expected to be a fifth larger in the night, too."""
    beliefs, bank = beliefs_of(MODEL), start_bank(MODEL, 1, 0)
    bank.mean[COMMON] += 0.2 * PROFILE[0]
    night = predict_bank(bank, MODEL, beliefs, 1)
    assert night.mean[COMMON] == pytest.approx((1.0 + 0.2 * RETURN) * PROFILE[1][None])
    both = predict_bank(bank, MODEL, beliefs, 2, 0)
    assert both.mean[COMMON] == pytest.approx(predict_bank(night, MODEL, beliefs, 2).mean[COMMON])
    assert both.var[COMMON] == pytest.approx(predict_bank(night, MODEL, beliefs, 2).var[COMMON])


def test_a_repeated_value_misses_what_the_scale_takes_away() -> None:
    """Of a value of the day, little is left in the night: its error is that of the day."""
    day, night = PROFILE[0], PROFILE[1]
    expected = np.square(day - night) + 0.04 / (1.0 - A * A) * (day**2 + night**2 - 2.0 * A * day * night)
    assert expected_miss(MODEL, 1, 1) == pytest.approx(expected)
    assert expected_miss(MODEL, 1, 0) == pytest.approx(np.zeros(2), abs=1e-9)


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("age", [1, 2, 3])
def test_a_repeated_value_misses_what_a_simulated_course_moves(age: int, scaled: bool) -> None:
    """Where the variance has a season, that of the slot before is another one: 48.5 was expected instead of 108."""
    profile, variance, a, slots = np.array([[100.0], [97.0]]), np.array([[1.0], [100.0]]), 0.5, 200_000
    course = Course(profile, variance, season=2, step=1, scale=np.array([[1.0], [0.6]]) if scaled else None)
    model, rng = ProcessModel.around(course, a), np.random.default_rng(age)
    changes = rng.normal(0.0, 1.0, slots) * np.sqrt(variance[np.arange(slots) % 2, 0])
    deviation = np.zeros(slots)
    carried = [float(np.broadcast_to(model.carried(slot), 1)[0]) for slot in range(2)]
    for slot in range(1, slots):
        deviation[slot] = carried[slot % 2] * deviation[slot - 1] + changes[slot]
    count = np.resize(profile[:, 0], slots) + deviation
    for slot in (1000, 1001):
        later = np.arange(slot, slots, 2)
        seen = np.square(count[later] - count[later - age]).mean()
        assert expected_miss(model, slot, age) == pytest.approx([seen], rel=0.03)


def test_of_an_unknown_season_size_and_speed_are_known() -> None:
    """A belief with another size or speed would have wrong intervals, or take years to find a season that has moved."""
    slots = np.arange(24)
    profile = np.stack([200.0 + 100.0 * np.sin(2.0 * np.pi * slots / 24.0), np.full(24, 50.0)], axis=1)
    season = Course(profile, np.full((24, 2), 3.0), season=24, offset=5, step=1).unknown_season
    assert season is not None
    assert season.level == pytest.approx([200.0, 50.0])
    assert season.transition[0] == pytest.approx(0.5 ** (1 / 4))  # cos(2 pi 4/24) = 1/2
    assert season.settled_var[0] == pytest.approx(100.0**2 / 2.0)
    mean, var = season.predict(np.array([[300.0, 50.0]]), np.zeros((1, 2)), 4)
    assert mean[0, 0] == pytest.approx(250.0)
    assert var[0, 0] == pytest.approx(0.75 * 100.0**2 / 2.0)
    assert Course(profile[:1], np.ones((1, 2))).unknown_season is None
    assert Course(profile[:, 1:], np.ones((24, 1)), season=24, step=1).unknown_season is None


def test_a_season_in_steps_that_do_not_divide_it_is_looked_at_slot_by_slot() -> None:
    """Rows of the profile are not slots: with two rows per slot a season is twice as fast."""
    profile = 200.0 + 100.0 * np.sin(2.0 * np.pi * np.arange(48) / 48.0)[:, None]
    course = Course(profile, np.ones((48, 1)), season=48, step=2)
    season = course.unknown_season
    assert season is not None
    assert season.transition[0] == pytest.approx(0.5 ** (1 / 4))


def test_the_largest_level_is_that_of_the_busiest_slot() -> None:
    """The mean over the season would cap what a region may be off by at night's crowd, when the day is ten times it."""
    assert COURSE.largest_level == pytest.approx([400.0, 204.5]), "of a small region, that of an average one"
