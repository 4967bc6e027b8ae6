"""The expected errors around a process model, against draws and against the normal case."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpcrowd.sim.planner.request import Crowd, Levels, SeasonRows
from dpcrowd.sim.planner.skewed import errors_around_model, skewed_errors, with_held_out_error


@pytest.mark.parametrize(("level", "spread"), [(0.2, 0.5), (2.0, 3.0), (30.0, 90.0)])
@pytest.mark.parametrize("kept", [1.0, 0.4])
def test_errors_are_those_of_drawn_counts(level: float, spread: float, kept: float) -> None:
    """A normal error of 0.2 people with a deviation of 0.7 would be 0.56; it is 0.36."""
    rng = np.random.default_rng(3)
    counts = rng.negative_binomial(level**2 / (spread - level), level / spread, 200_000)
    errors = kept * (level - counts) + rng.normal(0.0, math.sqrt(kept * spread * (1.0 - kept)), counts.size)
    absolute, relative = skewed_errors(np.array([level]), np.array([spread]), np.array([kept * spread]))
    assert absolute[0] == pytest.approx(np.abs(errors).mean(), rel=0.02)
    assert relative[0] == pytest.approx((np.abs(errors) / np.maximum(counts, 1)).mean(), rel=0.02)


def test_large_regions_have_normal_errors() -> None:
    """A plan for 5000 people must not change because small counts are skewed."""
    absolute, relative = skewed_errors(np.array([5000.0, 900.0]), np.array([1e4, 100.0]), np.array([2500.0, 99.0]))
    np.testing.assert_allclose(absolute, math.sqrt(2.0 / math.pi) * np.array([50.0, math.sqrt(99.0)]), rtol=0.005)
    np.testing.assert_allclose(relative, absolute / [5000.0, 900.0], rtol=0.005)


def test_errors_are_averaged_over_the_season() -> None:
    """At night few people are there, and vary little: the mean variance promised too large an error."""
    level = np.array([2.0] * 16 + [40.0] * 20 + [200.0] * 12)[:, None]
    season = SeasonRows(level, 3.0 * level)
    mean = float(level.mean())
    levels = Levels(("a",), (mean,), (1.0,), (3.0 * mean,), transition=(0.0,), season=season)
    absolute, relative = errors_around_model(levels, np.array([3.0 * mean]), [0])
    by_row = skewed_errors(level[:, 0], 3.0 * level[:, 0], 3.0 * level[:, 0])
    np.testing.assert_allclose([absolute[0], relative[0]], [by_row[0].mean(), by_row[1].mean()], rtol=1e-9)
    constant = Levels(("a",), (mean,), (1.0,), (3.0 * mean,), transition=(0.0,))
    assert absolute[0] < 0.9 * errors_around_model(constant, np.array([3.0 * mean]), [0])[0][0]


def test_a_season_that_is_merged_or_in_longer_slots_stays_one() -> None:
    """Advice to merge regions, or to lengthen slots, was computed with other errors than the plan itself."""
    season = SeasonRows(np.array([[1.0, 10.0], [3.0, 30.0]]), np.array([[2.0, 20.0], [6.0, 60.0]]))
    levels = Levels(("a", "b"), (2.0, 20.0), (0.5, 0.05), (4.0, 40.0), transition=(0.0, 0.0), season=season)
    merged = levels.merged([0, 1]).season
    assert merged is not None
    assert (merged.level.tolist(), merged.process_var.tolist()) == ([[11.0], [33.0]], [[22.0], [66.0]])
    longer = levels.in_longer_slots(2.0)
    assert longer.season is not None
    np.testing.assert_allclose(longer.season.level.mean(axis=0), longer.level)
    np.testing.assert_allclose(longer.season.process_var.mean(axis=0), longer.process_var)


def test_errors_around_a_level_that_leaves_out_bursts() -> None:
    """A model of usual slots expects 0.3 of 4 people; its level and variance were taken for those of the counts."""
    rng = np.random.default_rng(4)
    counts = rng.negative_binomial(0.2, 0.2 / 4.2, 400_000)
    mean, variance = float(counts.mean()), float(counts.var())
    for kept in (1.0, 0.6, 0.2):
        errors = kept * (0.3 - counts) + rng.normal(0.0, math.sqrt(20.0 * kept * (1.0 - kept)), counts.size)
        crowd = np.array([mean]), np.array([variance])
        absolute, _ = skewed_errors(np.array([0.3]), np.array([20.0]), np.array([20.0 * kept]), crowd)
        assert absolute[0] == pytest.approx(np.abs(errors).mean(), rel=0.03)


def test_errors_never_grow_with_what_records_tell() -> None:
    """A plan said that a larger epsilon has larger errors, and advised to take one."""
    crowd = Crowd((4.0,), (370.0,))
    levels = Levels(("a",), (0.3,), (1.0,), (20.0,), transition=(0.0,), crowd=crowd)
    by_variance = [errors_around_model(levels, np.array([20.0 * kept]), [0]) for kept in np.linspace(1.0, 0.01, 40)]
    absolute, relative = (np.array([pair[place][0] for pair in by_variance]) for place in (0, 1))
    assert (np.diff(absolute) <= 0.002 * absolute[:-1]).all()
    assert (np.diff(relative) <= 0.002 * relative[:-1]).all()
    assert absolute[-1] < 0.5 * absolute[0]


def test_the_model_alone_has_the_error_of_held_out_slots() -> None:
    """Beside the score in the model's file, a plan named another error of the same model."""
    levels = Levels(("a", "b"), (3.0, 9.0), (0.3, 0.1), (5.0, 9.0), transition=(0.2, 0.0), crowd=Crowd((4, 9), (9, 9)))
    held_out = with_held_out_error(levels, levels, 0.25)
    assert held_out.crowd is not None
    absolute, _ = errors_around_model(held_out, held_out.spread, [0, 1])
    assert absolute.sum() / 13.0 == pytest.approx(0.25)
    assert with_held_out_error(levels, levels, math.nan) == levels
    assert with_held_out_error(levels, levels, 0.0) == levels


def test_a_crowd_that_is_merged_or_in_longer_slots_keeps_its_bursts() -> None:
    """Advice was computed with other people than the plan itself."""
    crowd = Crowd((4.0, 6.0), (300.0, 500.0), 1.1)
    levels = Levels(("a", "b"), (0.3, 0.5), (1.0, 1.0), (20.0, 30.0), transition=(0.0, 0.5), crowd=crowd)
    assert levels.merged([0, 1]).crowd == Crowd((10.0,), (800.0,), 1.1)
    longer = levels.in_longer_slots(2.0)
    assert longer.crowd is not None
    assert longer.people == (8.0, 12.0)
    np.testing.assert_allclose(np.array(longer.crowd.variance) / crowd.variance, longer.spread / levels.spread)
