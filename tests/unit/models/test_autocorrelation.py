"""Seasons that the autocorrelation of counts without times suggests."""

from __future__ import annotations

import numpy as np
import pytest

from dpcrowd.arrays import Floats
from dpcrowd.models.autocorrelation import suggested_seasons
from dpcrowd.models.estimate import fit_series
from dpcrowd.models.season import SlotTimes


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
            assert not suggested_seasons(value) or fit_series(value).season == "none"


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
    assert fit_series(value, times=SlotTimes(0, 60_000_000)).season == "none", "times say which seasons there are"
    assert fit_series(value, np.ones_like(value)).season == "none", "measurements are too noisy for it"


def test_a_week_has_days_within_it() -> None:
    """The day alone is the clearest season; closed Sundays are seen only in what remains without it."""
    slots = np.arange(10 * 56)
    expected = np.where(slots % 56 < 48, 60.0 + 40.0 * np.cos(2.0 * np.pi * slots / 8.0), 5.0)
    value = np.random.default_rng(3).poisson(expected).astype(np.float64)[:, None]
    assert suggested_seasons(value) == [8, 56]
    assert fit_series(value).season == 56


@pytest.mark.parametrize("slots", [1, 3, 5, 8])
def test_short_and_constant_series_have_no_season(slots: int) -> None:
    """Nothing may be divided by a variance of zero, or by no slots."""
    assert suggested_seasons(np.full((slots, 2), 7.0)) == []
