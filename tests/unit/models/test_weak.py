"""Regions that say little borrow from the others, and those that say much do not."""

from __future__ import annotations

import numpy as np

from dpcrowd.models.weak import CELLS, EarlierModel, common_weights, settled_var, shrunk_levels


def test_levels_are_never_negative_and_precise_ones_stay() -> None:
    """The mean of noise may be below 0, which no count is; a level that is known must not move towards others."""
    level, var = np.array([-40.0, 5.0, 800.0, 3.0]), np.array([400.0, 400.0, 4.0, 0.01])
    shrunk, doubt = shrunk_levels(level, var)
    assert (shrunk > 0.0).all()
    assert shrunk[2:].tolist() == [800.0, 3.0]
    assert shrunk[0] < shrunk[1] < 12.0
    assert (doubt[:2] > doubt[2]).all()


def test_a_region_without_any_measurement_has_a_level_with_doubt() -> None:
    """0 with no doubt would be a region that can never fill."""
    shrunk, doubt = shrunk_levels(np.array([0.0, 20.0, 30.0]), np.array([np.inf, 1.0, 1.0]))
    assert 0.0 < shrunk[0] < 30.0
    assert doubt[0] > 1.0


def test_an_earlier_level_counts_more_than_the_levels_of_others() -> None:
    """Where most regions are empty, a small one that was known before would be forgotten."""
    level, var = np.array([4.0, 0.0, 0.0, 0.0, 0.0, 0.0]), np.array([9.0, 1e-4, 1e-4, 1e-4, 1e-4, 1e-4])
    without, _ = shrunk_levels(level, var)
    before = np.array([3.0, 0.01, 0.01, 0.01, 0.01, np.nan])
    shrunk, _ = shrunk_levels(level, var, before)
    assert without[0] < 2.5 < shrunk[0] < 5.0
    assert (shrunk[1:] < 0.1).all()


def test_weights_follow_the_others_where_a_region_says_nothing() -> None:
    """A flat likelihood would otherwise give the mean of the grid, which is nobody's variance."""
    clear = -np.square(np.arange(len(CELLS)) - 40.0)
    weight = common_weights(np.stack([clear] * 8 + [np.zeros(len(CELLS))], axis=1))
    assert weight[40, 0] > 0.5
    assert weight[38:43, 8].sum() > 0.5
    alone = common_weights(np.zeros((len(CELLS), 1)))
    np.testing.assert_allclose(alone, 1.0 / len(CELLS))


def test_variances_are_those_of_a_poisson_count_where_few_people_are() -> None:
    """With one dispersion for all, what a large crowd does together would be expected of a single person."""
    relative = CELLS[:, 2] == 0.0625
    small, large = settled_var(np.array([0.5, 1600.0]))[relative][0]
    assert small < 1.05
    assert large == 101.0


def test_an_earlier_model_is_where_a_region_starts() -> None:
    """Cells far from it need evidence."""
    level = np.array([100.0, 100.0])
    settled = settled_var(level) * level
    earlier = EarlierModel("none", level, np.array([0.6, np.nan]), np.array([725.0, np.nan]))
    prior = earlier.log_prior(settled, np.broadcast_to(CELLS[:, :1], settled.shape))
    assert not prior[:, 1].any(), "a new region starts from nothing"
    best = CELLS[int(prior[:, 0].argmax())]
    assert best[0] == 0.6
    assert settled[int(prior[:, 0].argmax()), 0] == 725.0
