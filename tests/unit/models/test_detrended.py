"""A season that is only a trend is noticed, and a crowd that grows keeps the season that it has."""

from __future__ import annotations

import numpy as np
import pytest

from dpcrowd.arrays import Floats
from dpcrowd.models.detrended import left_by_others, shows_beside_trend, without_trend
from dpcrowd.models.estimate import fit_series
from dpcrowd.models.season import DAY, MONTH, SlotTimes, timing

QUARTERS, MONTHS, DAYS = SlotTimes(0, 3 * MONTH), SlotTimes(0, MONTH), SlotTimes(4 * DAY, DAY)


def line(slots: int, noise: float, seed: int) -> Floats:
    """Counts of one region that grow by 40 people per slot."""
    deviation = np.random.default_rng(seed).normal(0.0, 1.0, slots)
    return np.asarray(np.rint(10_000.0 + 40.0 * np.arange(slots) + noise * deviation)[:, None])


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.0, 100.0])
@pytest.mark.parametrize(("times", "slots"), [(QUARTERS, 44), (MONTHS, 60), (DAYS, 60), (DAYS, 150)])
def test_a_straight_line_has_no_season(times: SlotTimes, slots: int, noise: float) -> None:
    """Exact lines had one in all of these cases, and one of the noisy ones: which rows were seen last decided."""
    assert fit_series(line(slots, noise, seed=5), times=times).season == "none"


@pytest.mark.parametrize("regions", [1, 5])
def test_the_rounding_of_straight_lines_is_no_season(regions: int) -> None:
    """Steps of 41.5 persons are rounded in turn, which a profile explains completely."""
    counts = np.rint(1_000.0 + np.arange(60.0)[:, None] * (40.5 + np.arange(regions)))
    assert not shows_beside_trend(counts, timing("year", MONTHS))


@pytest.mark.parametrize("amplitude", [0.1, 0.3])
def test_a_crowd_that_grows_by_a_percentage_has_its_year(amplitude: float) -> None:
    """The curve of growth is larger than the season, and would hide it from a straight line."""
    slots = np.arange(96)
    level = 100.0 * 1.01**slots * (1.0 + amplitude * np.sin(2.0 * np.pi * slots / 12.0))
    counts = np.random.default_rng(1).poisson(level)[:, None].astype(np.float64)
    assert shows_beside_trend(counts, timing("year", MONTHS))
    assert fit_series(counts, times=MONTHS).season == "year"


def test_regions_may_have_opposite_seasons() -> None:
    """Their sum has none, so it alone would hide the days of offices and of parks."""
    slots = np.arange(140)
    week = np.where(slots % 7 < 5, 300.0, 0.0)[:, None]
    counts = 10.0 * slots[:, None] + np.hstack([week, 300.0 - week]) + slots[:, None] % 2
    assert shows_beside_trend(counts, timing("week", DAYS))


def test_a_series_that_does_not_grow_is_left_to_cross_validation() -> None:
    """A weak season of noisy counts may be worth 1%, which a comparison of single slots does not show."""
    counts = np.random.default_rng(3).poisson(30, (90, 1)).astype(np.float64)
    assert shows_beside_trend(counts, timing("week", DAYS))


def test_a_slot_that_is_alone_in_its_row_is_left_as_it_is() -> None:
    """Nothing may be divided by the number of the others, which is zero."""
    value = np.array([[1.0], [2.0], [6.0]])
    assert left_by_others(value, np.array([0, 1, 1])).ravel().tolist() == [1.0, -4.0, 4.0]
    assert np.abs(without_trend(value, 2)).max() < 1e-12
