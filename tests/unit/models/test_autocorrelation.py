"""Seasons in numbers of slots, which the autocorrelation of counts suggests."""

from __future__ import annotations

import numpy as np
import pytest

from dpcrowd.arrays import Floats
from dpcrowd.models.autocorrelation import smooth_season, suggested_seasons
from dpcrowd.models.estimate import fit_series
from dpcrowd.models.season import DAY, HOUR, WEEK, SlotTimes


def walk(rng: np.random.Generator, slots: int, regions: int, a: float) -> Floats:
    """Counts around 500 whose deviations are an AR(1) process, or a random walk with a = 1."""
    deviation = np.zeros((slots, regions))
    for slot in range(1, slots):
        deviation[slot] = a * deviation[slot - 1] + rng.normal(0.0, 10.0, regions)
    return np.asarray(np.maximum(np.rint(500.0 + deviation), 0.0))


@pytest.mark.parametrize("a", [0.0, 0.7, 0.95, 1.0])
def test_series_without_a_season_get_none(a: float) -> None:
    """A profile of chance has narrow intervals and large errors; a crowd that moves slowly seems to come back."""
    rng = np.random.default_rng(int(100 * a))
    for slots, regions in ((60, 1), (200, 1), (200, 4), (600, 1)):
        for _ in range(5):
            value = walk(rng, slots, regions, a)
            suggested = suggested_seasons(value) or smooth_season(value)
            assert not suggested or fit_series(value).season == "none"


def test_outliers_do_not_make_a_season() -> None:
    """Two crowded days, 50 slots apart, have a large product and say nothing about day 150."""
    value = np.random.default_rng(1).poisson(30, (240, 1)).astype(np.float64)
    value[[40, 90]] = 3000.0
    assert suggested_seasons(value) == []


def test_a_season_is_found_and_taken_without_times() -> None:
    """Calls of a bank without times were predicted by a constant level, with four times the error."""
    rng = np.random.default_rng(2)
    slots = np.arange(280)
    value = rng.poisson(100.0 + 60.0 * np.sin(2.0 * np.pi * slots / 14.0)).astype(np.float64)[:, None]
    assert suggested_seasons(value) == [14]
    fitted = fit_series(value)
    assert fitted.season == 14
    assert fitted.scores.past < 0.5 * fit_series(value, season="none").scores.past
    assert fit_series(value, np.ones_like(value)).season == "none", "measurements are too noisy for it"


def test_a_week_has_days_within_it() -> None:
    """The day alone is the clearest season; closed Sundays are seen only in what remains without it."""
    slots = np.arange(10 * 56)
    expected = np.where(slots % 56 < 48, 60.0 + 40.0 * np.cos(2.0 * np.pi * slots / 8.0), 5.0)
    value = np.random.default_rng(3).poisson(expected).astype(np.float64)[:, None]
    assert suggested_seasons(value) == [8, 56]
    assert fit_series(value).season == 56


@pytest.mark.parametrize(("season", "slots"), [(30, 100), (60, 200), (61, 250), (90, 300), (97, 400)])
def test_the_length_of_a_smooth_season_is_exact(season: int, slots: int) -> None:
    """The peak of the autocorrelation is flat: 61 instead of 60 slots had twice the error on held-out blocks."""
    rng = np.random.default_rng(season)
    angle = 2.0 * np.pi * np.arange(slots) / season
    shape = np.maximum(1.0 + 0.7 * np.sin(angle) + 0.3 * np.sin(3.0 * angle), 0.05)
    for _ in range(4):
        value = rng.poisson(np.array([300.0, 1000.0, 2500.0, 8000.0]) * shape[:, None]).astype(np.float64)
        assert season in suggested_seasons(value)


def test_outliers_do_not_move_the_length_of_a_season() -> None:
    """Squares of a few absurd slots would outweigh what all others say about it."""
    rng = np.random.default_rng(4)
    angle = 2.0 * np.pi * np.arange(200) / 60
    for _ in range(5):
        value = rng.poisson(200.0 * (1.0 + 0.5 * np.sin(angle) + 0.4 * np.sin(3.0 * angle)))[:, None].astype(float)
        value[rng.integers(0, 200, 4)] = 5000.0
        assert suggested_seasons(value) == [60]


@pytest.mark.parametrize("slots", [1, 3, 5, 8])
def test_short_and_constant_series_have_no_season(slots: int) -> None:
    """Nothing may be divided by a variance of zero, or by no slots."""
    assert suggested_seasons(np.full((slots, 2), 7.0)) == []


@pytest.mark.slow
@pytest.mark.parametrize("length", [WEEK, 37 * HOUR])
def test_a_season_that_no_calendar_has_is_found_beside_times(length: int) -> None:
    """Times say which seasons of the calendar are possible, not that there is no other: the error would be twice it."""
    rng = np.random.default_rng(0)
    value = rng.poisson(np.where(np.arange(210) % 7 < 5, 30, 10))[:, None].astype(float)
    fitted = fit_series(value, times=SlotTimes(0, length))
    assert fitted.season == 7
    assert fitted.scores.past < 0.6 * fit_series(value, times=SlotTimes(0, length), season="none").scores.past
    assert fit_series(value, times=SlotTimes(0, DAY)).season == "week", "seven days are a week"
    assert fit_series(value[:20], times=SlotTimes(0, length)).season == "none", "less than three seasons"


@pytest.mark.slow
@pytest.mark.parametrize(("season", "slots"), [(40, 180), (25, 90), (60, 200), (100, 420)])
def test_a_smooth_wave_is_found_and_taken(season: int, slots: int) -> None:
    """Hardly anything of it is new in a slot, so a constant level was taken, with twice the error and more."""
    rng = np.random.default_rng(season)
    wave = 1.0 + 0.4 * np.sin(2.0 * np.pi * np.arange(slots) / season)[:, None]
    lasting = np.zeros((slots, 3))
    for slot in range(1, slots):
        lasting[slot] = 0.6 * lasting[slot - 1] + rng.normal(0.0, 0.05, 3)
    value = rng.poisson(np.array([50.0, 200.0, 1000.0]) * wave * np.exp(lasting)).astype(np.float64)
    assert suggested_seasons(value) == []
    found = smooth_season(value)
    assert found is not None
    assert abs(found - season) <= 1
    fitted = fit_series(value)
    assert fitted.season == found
    assert fitted.scores.past < 0.5 * fit_series(value, season="none").scores.past


def test_a_cycle_that_loses_step_is_no_smooth_season() -> None:
    """After two seasons such a cycle is somewhere else, and a profile of it has larger errors than a level."""
    steady, varying = (
        np.concatenate([200.0 + 80.0 * np.sin(2.0 * np.pi * np.arange(length) / length) for length in lengths])
        for lengths in ((40, 40, 40, 40, 40), (40, 30, 40, 50, 40))
    )
    assert smooth_season(steady[:, None]) == 40
    assert smooth_season(varying[:, None]) is None


@pytest.mark.parametrize("value", [np.full((60, 2), 7.0), np.arange(60.0)[:, None], np.zeros((60, 1)), np.ones((4, 1))])
def test_lines_and_short_series_have_no_smooth_season(value: Floats) -> None:
    """Nothing is left of them without their trend, and nothing may be divided by it."""
    assert smooth_season(value) is None
