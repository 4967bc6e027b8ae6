"""A trend within the span of a fit is noticed, and deviations that come and go slowly are not taken for one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dpcrowd
from dpcrowd.models.trend import trend_of

LEVELS = np.array([40.0, 90.0, 300.0])


def around(levels: Any, a: float, slots: int, rng: np.random.Generator, runs: int = 1) -> Any:
    """Counts (slots, runs, d) whose deviations have a standard deviation of a fifth of the level."""
    shape = (runs, len(levels))
    deviation, values = rng.normal(0.0, 0.2, shape), []
    for _ in range(slots):
        deviation = a * deviation + rng.normal(0.0, 0.2 * np.sqrt(1.0 - a * a), shape)
        values.append(levels * np.exp(deviation))
    return np.array(values)


@pytest.mark.parametrize("slots", [48, 150])
def test_slow_deviations_are_not_taken_for_a_trend(slots: int) -> None:
    """A note that comes with every other series would not be read."""
    levels = np.array([100.0])
    values = around(levels, 0.95, slots, np.random.default_rng(3), 300)
    expected = np.tile(levels, (slots, 1))
    assert sum(trend_of(values[:, run], expected) is not None for run in range(300)) <= 15


@pytest.mark.parametrize("slots", [12, 20, 30, 47])
@pytest.mark.parametrize("a", [0.0, 0.9, 0.98])
def test_slow_deviations_are_rarely_in_order(slots: int, a: float) -> None:
    """A few slots of a crowd that comes back slowly look like growth, and a note on them would be read as one."""
    levels = np.array([100.0])
    values = around(levels, a, slots, np.random.default_rng(7), 300)
    expected = np.tile(levels, (slots, 1))
    assert sum(trend_of(values[:, run], expected) is not None for run in range(300)) <= 12


@pytest.mark.parametrize("slots", [12, 24, 44])
@pytest.mark.parametrize(("rate", "word"), [(0.02, "risen"), (-0.02, "fallen")])
def test_clear_growth_of_a_few_slots_gets_a_note(slots: int, rate: float, word: str) -> None:
    """Eleven years of quarters, each higher than the last, were fitted without a word, and no interval held later."""
    rng = np.random.default_rng(9)
    counts = rng.poisson(np.array([9_000.0, 20_000.0]) * (1.0 + rate * np.arange(slots))[:, None]).astype(np.float64)
    trend = trend_of(counts, np.broadcast_to(counts.mean(axis=0), counts.shape))
    assert trend is not None
    assert f"the counts have {word} by about" in trend.note
    assert trend.regions == 2
    swapped = counts[np.random.default_rng(1).permutation(slots)]
    assert trend_of(swapped, np.broadcast_to(counts.mean(axis=0), counts.shape)) is None
    calm = rng.poisson(np.full((slots, 2), 20_000.0) * (1.0 + 0.05 * rate * np.arange(slots))[:, None])
    assert trend_of(calm.astype(np.float64), np.full((slots, 2), 20_000.0)) is None, "less than a tenth"


@pytest.mark.parametrize(("factor", "word"), [(1.006, "risen"), (0.996, "fallen")])
def test_a_crowd_that_grows_or_shrinks_gets_a_note(factor: float, word: str) -> None:
    """Whoever fits on such a span would otherwise learn of it from estimates that lag behind."""
    rng = np.random.default_rng(4)
    week = np.array([1.0, 1.0, 1.1, 1.1, 1.4, 0.8, 0.6])[np.arange(120) % 7]
    counts = rng.poisson(LEVELS * (week * factor ** np.arange(120))[:, None])
    model = dpcrowd.fit(dpcrowd.counts_from_array(counts, regions=["a", "b", "c"]), source="drawn here", season=7)
    note = model.notes[0]
    assert note.startswith(f"the counts have {word} by about ")
    assert "in 3 of the 3 regions with enough people to tell" in note
    calm = rng.poisson(LEVELS * week[:, None])
    (note,) = dpcrowd.fit(dpcrowd.counts_from_array(calm, regions=["a", "b", "c"]), source="here", season=7).notes
    assert "is counted from slot 0" in note


def test_one_region_that_grows_is_not_a_crowd_that_grows() -> None:
    """A single region with most of the people would speak for all others, which have stayed where they were."""
    rng = np.random.default_rng(5)
    expected = np.tile([40.0, 50.0, 60.0, 900.0], (120, 1))
    counts = rng.poisson(expected).astype(float)
    counts[:, 3] *= 1.01 ** np.arange(120)
    assert trend_of(counts, expected) is None


def test_a_few_slots_and_empty_regions_have_no_trend() -> None:
    """Logarithms and quotients of nothing would be warnings, which are errors in tests."""
    assert trend_of(np.arange(11.0)[:, None], np.ones((11, 1))) is None
    assert trend_of(np.full((40, 1), 7.0), np.full((40, 1), 7.0)) is None
    assert trend_of(np.zeros((100, 2)), np.full((100, 2), 0.01)) is None
    assert trend_of(np.zeros((100, 2)), np.zeros((100, 2))) is None
    constant = np.full((100, 1), 7.0)
    assert trend_of(constant, constant) is None


@pytest.mark.parametrize("curve", ["logistic", "step", "fall"])
def test_a_crowd_that_has_moved_once_gets_a_note(curve: str) -> None:
    """A line does not fit a step or a curve, so both were taken for deviations that last."""
    slots = np.arange(300.0)
    level = {
        "logistic": 0.05 + 5.0 / (1.0 + np.exp(-(slots - 200.0) / 15.0)),
        "step": np.where(slots < 200, 1.0, 10.0),
        "fall": np.where(slots < 100, 10.0, 1.0),
    }[curve]
    counts = np.random.default_rng(4).poisson(20.0 * level[:, None] * np.ones(20)).astype(np.float64)
    trend = trend_of(counts, np.broadcast_to(counts.mean(axis=0), counts.shape))
    assert trend is not None
    assert trend.regions == 20
    words = {"logistic": "risen to about", "step": "risen to about", "fall": "fallen by about 9"}
    assert words[curve] in trend.note
