"""The population of a plan: the crowd of a slot hardly ever exceeds it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import dpcrowd
from dpcrowd.sim.data.counts import counts_from_array
from dpcrowd.sim.planner.population import planned_population
from dpcrowd.sim.planner.request import Crowd, Levels, PlanRequest, SeasonRows, levels_of_model, read_levels


def population(levels: Levels, **more: Any) -> int:
    return planned_population(PlanRequest(levels=levels, **more))


def test_a_walk_moves_as_long_as_the_promise_lasts() -> None:
    """The sum of the levels would be exceeded in every other slot."""
    levels = read_levels([300, 80, 12], [9, 4, 1])
    assert population(levels, window=100) == 510, "392 + 3 sqrt(100 x 14) = 504.2"
    assert population(levels, window=24) == 450, "392 + 3 sqrt(24 x 14) = 447.0"
    assert population(levels, horizon=1000) == 750, "392 + 3 sqrt(1000 x 14) = 747.0"


def test_counts_of_a_series_say_how_large_it_was() -> None:
    """Public data with a rush hour: Q is large, and yet nobody has to think of a walk over the complete window."""
    quiet = np.full((96, 2), 50)
    quiet[8::24] = 400
    series = counts_from_array(quiet)
    assert population(read_levels(data=series)) == 800
    steady = np.array([[50, 50], [54, 54]] * 40)
    assert population(read_levels(data=counts_from_array(steady))) == 120, "104 + 3 x 4 = 116"


def test_regions_that_rise_together_need_more_room_than_others() -> None:
    """Of nine regions that rise together the total deviates three times as far as of nine that do not."""
    levels = Levels(
        tuple("abcdefghi"), (100.0,) * 9, (0.01,) * 9, (75.0,) * 9, transition=(0.5,) * 9, region_correlation=None
    )
    assert population(levels) == 990, "900 + 3 x 30"
    assert population(replace(levels, region_correlation=1.0)) == 1200, "900 + 3 x 90 = 1170"
    season = SeasonRows(np.array([[100.0] * 9, [200.0] * 9]), np.array([[75.0] * 9, [75.0] * 9]))
    assert population(replace(levels, season=season)) == 1900, "1800 + 3 x 30"
    crowd = Crowd((120.0,) * 9, (400.0,) * 9)
    assert population(replace(levels, crowd=crowd)) == 1300, "1080 + 3 x 60 = 1260"
    assert population(replace(levels, crowd=replace(crowd, misfit=2.0))) == 1500, "1080 + 3 x 120 = 1440"


@pytest.mark.parametrize("seed", range(3))
def test_the_crowd_of_a_model_hardly_ever_exceeds_it(seed: int) -> None:
    """A model that is fitted on other slots of the same crowd expects a little more: that is no contradiction."""
    rng = np.random.default_rng(seed)
    fitted, other = (rng.poisson([300, 80, 12], (300, 3)) for _ in range(2))
    chosen = population(levels_of_model(dpcrowd.fit(fitted, source="published")))
    assert (other.sum(axis=1) > chosen).mean() < 0.01
    assert 430 <= chosen <= 480
