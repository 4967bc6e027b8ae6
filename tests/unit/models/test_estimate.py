"""Fitting: what is there is found, what is not there is not invented, and short or empty series do no harm."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dpcrowd.models.estimate import _Block, _least_variance, _most_likely, fit_series
from dpcrowd.models.model import row_variances
from dpcrowd.models.profiles import ProfileSeries, estimate_profile
from dpcrowd.models.season import SlotTimes
from dpcrowd.models.weak import EarlierModel, settled_var

HOURLY = SlotTimes(4 * 86_400_000_000, 3_600_000_000)  # from a Monday on


def ar(rng: np.random.Generator, slots: int, a: float, deviation: float) -> Any:
    """Deviations with a standard deviation, of which a part lasts."""
    values, last = np.zeros(slots), 0.0
    for slot in range(slots):
        last = a * last + rng.normal(0.0, deviation * np.sqrt(1 - a * a))
        values[slot] = last
    return values


def test_level_and_deviations() -> None:
    """A level, a and variance that are off would make every interval wrong."""
    rng = np.random.default_rng(1)
    series = np.stack([500.0 + ar(rng, 1000, 0.8, 40.0), 80.0 + ar(rng, 1000, 0.2, 8.0)], axis=1)
    fitted = fit_series(np.rint(series))
    estimate = fitted.estimate
    assert estimate.profile.level == pytest.approx([500, 80], rel=0.05)
    assert estimate.transition == pytest.approx([0.8, 0.2], abs=0.1)
    scale = estimate.profile.level if estimate.kind == "proportional" else 1.0
    settled = np.sqrt(estimate.variance * scale / (1 - estimate.transition**2))
    assert settled == pytest.approx([40, 8], rel=0.2)
    assert 0.92 < fitted.scores.coverage < 0.98
    assert fitted.scores.error < fitted.scores.past


def test_blocks_that_were_calm_by_chance_make_no_calm_model() -> None:
    """The slots before them are part of the past, too: intervals by the calm ones alone would be far too narrow."""
    rng = np.random.default_rng(6)
    deviations = ar(rng, 200, 0.3, 1.0) * np.where(np.arange(200) < 70, 60.0, 6.0)
    estimate = fit_series(np.rint(500.0 + deviations[:, None])).estimate
    rows = row_variances(
        estimate.profile.rows, estimate.profile.level, estimate.transition, estimate.variance, estimate.kind
    )
    settled = (rows / (1.0 - np.square(estimate.transition))).mean(axis=0)
    assert settled == pytest.approx(estimate.profile.deviation_var, rel=0.01)
    assert settled == pytest.approx(deviations.var(), rel=0.2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("season", "factor"),
    [
        ("day", lambda hour: 1.0 + 0.8 * np.sin(2 * np.pi * hour / 24)),
        ("week", lambda hour: np.where(hour // 24 % 7 < 5, 1.2, 0.5)),
        ("hour-of-week", lambda hour: np.where((hour // 24 % 7 < 5) & (hour % 24 > 8), 2.0, 0.4)),
        ("none", lambda hour: np.ones_like(hour, dtype=float)),
    ],
)
def test_the_season_is_chosen(season: str, factor: Any) -> None:
    """A season that is not there costs accuracy, and one that is missed costs more."""
    rng = np.random.default_rng(3)
    hours = np.arange(24 * 7 * 5)
    counts = rng.poisson(np.stack([30.0 * factor(hours), 6.0 * factor(hours)], axis=1))
    fitted = fit_series(counts.astype(float), None, HOURLY)
    assert fitted.season == season
    if season != "none":
        rows = fitted.estimate.profile.rows
        step = 24 if season == "week" else 1
        expected = 30.0 * factor(np.arange(0, len(rows) * step, step))
        assert np.abs(rows[:, 0] - expected).mean() < 2.0


@pytest.mark.slow
def test_relative_deviations_are_chosen_where_they_are() -> None:
    """A deviation of the day that is carried into the night makes its intervals many times too wide."""
    rng = np.random.default_rng(5)
    slots = 24 * 28
    expected = 200.0 * (1.05 + np.sin(2 * np.pi * np.arange(slots) / 24))
    followed = rng.poisson(expected * np.maximum(1.0 + ar(rng, slots, 0.9, 0.3), 0.0))
    fitted = fit_series(followed[:, None].astype(float), None, HOURLY, "day").estimate
    assert fitted.kind == "relative"
    assert float(fitted.transition[0]) == pytest.approx(0.9, abs=0.08)
    assert float(np.sqrt(fitted.variance / (1 - fitted.transition**2))[0]) == pytest.approx(0.3, rel=0.4)
    stays = np.maximum(expected + ar(rng, slots, 0.9, 60.0), 0.0)
    assert fit_series(np.rint(stays)[:, None], None, HOURLY, "day").estimate.kind != "relative"


def test_a_crowd_that_grows_keeps_its_season() -> None:
    """The level of the last slots, and a shape from all of them: otherwise growth would hide the week."""
    rng = np.random.default_rng(4)
    hours = np.arange(24 * 7 * 6)
    shape = np.where(hours % 24 > 8, 1.4, 0.3)
    counts = rng.poisson(shape * (5.0 + 60.0 * hours / len(hours)))[:, None].astype(float)
    fitted = fit_series(counts, None, HOURLY)
    assert fitted.season in ("day", "hour-of-week")
    assert fitted.estimate.profile.level[0] > 45.0
    assert "half-life" in fitted.reason


@pytest.mark.slow
def test_mean_counts_have_the_bursts_that_levels_leave_out() -> None:
    """Errors are divided by people: by levels of usual slots, those of rare bursts were ten times as large."""
    rng = np.random.default_rng(8)
    bursts = (rng.random((200, 4)) < 0.08) * rng.poisson(50, (200, 4))
    fitted = fit_series(bursts.astype(np.float64))
    assert fitted.estimate.profile.level.sum() < 0.2 * bursts.mean(axis=0).sum()
    assert fitted.mean == pytest.approx(bursts.mean(axis=0))
    growing = rng.poisson(np.linspace(50, 400, 200)[:, None] * np.where(np.arange(200) % 7 < 5, 1.2, 0.5)[:, None])
    fitted = fit_series(growing.astype(np.float64), season=7)
    assert fitted.mean == pytest.approx(fitted.estimate.profile.level, rel=0.05), "as recent as the level"
    assert fit_series(bursts.astype(np.float64), np.ones_like(bursts, dtype=np.float64)).mean is None


def test_the_reason_compares_like_with_like() -> None:
    """The score of the chosen kind of variance stood beside those of others with fixed variance, which looked worse."""
    rng = np.random.default_rng(5)
    expected = 200.0 * (1.05 + np.sin(2 * np.pi * np.arange(24 * 28) / 24))
    counts = rng.poisson(expected * np.maximum(1.0 + ar(rng, len(expected), 0.9, 0.3), 0.0))[:, None].astype(float)
    fitted = fit_series(counts, None, HOURLY, "day")
    assert fitted.estimate.kind == "relative"
    head, _, tail = fitted.reason.partition("; then of season day")
    assert head.startswith("season day, relative variance: CRPS per slot on held-out blocks, all with fixed variance: ")
    chosen, kinds = head.split(": ")[2].split("; ")[0], tail.split(": ")[1].split(", ")
    assert chosen.startswith("season day ")
    fixed = next(kind for kind in kinds if kind.startswith("fixed "))
    assert chosen.split()[-1] == fixed.split()[-1], "compared with others as they are"
    assert kinds[0].startswith("relative "), "the chosen kind comes first"
    assert float(kinds[0].split()[1]) < float(fixed.split()[1])


def test_regions_where_nobody_was_seen() -> None:
    """A level and a variance of 0 would never believe any record again."""
    counts = np.zeros((120, 3))
    counts[:, 1] = np.random.default_rng(0).poisson(0.1, 120)
    estimate = fit_series(counts).estimate
    assert (estimate.profile.level > 0).all()
    assert (estimate.profile.level[[0, 2]] < 0.1).all()
    assert (estimate.variance > 0).all()
    assert np.isfinite(estimate.transition).all()


def test_where_nobody_was_counted_there_is_no_relative_error() -> None:
    """An error of 384% of nobody was printed for a series of zeros; it is unknown, and the coverage is known."""
    scores = fit_series(np.zeros((60, 2))).scores
    assert np.isnan(scores.error)
    assert np.isnan(scores.past)
    assert scores.coverage == 1.0


def test_regions_without_anybody_do_not_count_in_the_coverage() -> None:
    """An always-empty region counted as full success, and hid that intervals of the others were too narrow."""
    counts = np.random.default_rng(3).poisson(np.random.default_rng(4).gamma(2.0, 20.0, (200, 3))).astype(float)
    scores = fit_series(counts).scores
    with_empty = fit_series(np.column_stack([counts, np.zeros((200, 3))])).scores
    assert 0.8 < scores.coverage < 1.0
    assert with_empty.coverage == pytest.approx(scores.coverage, abs=0.01)
    assert with_empty.past_coverage == pytest.approx(scores.past_coverage, abs=0.01)


def test_levels_of_constant_counts_are_exact() -> None:
    """Errors of 1e-16 of the model alone made any other error 1e11 times as large."""
    counts = np.tile([0.0, 7.0, 70.0, 700.0], (200, 1))
    fitted = fit_series(counts)
    assert fitted.estimate.profile.level[1:].tolist() == [7.0, 70.0, 700.0]
    assert fitted.mean is not None
    assert fitted.mean.tolist() == [0.0, 7.0, 70.0, 700.0]
    series = ProfileSeries(counts, np.zeros_like(counts), np.zeros(200, dtype=np.int64))
    profile = estimate_profile(series, 1, half_life=30.0, smooth=False)
    assert profile.level[1:].tolist() == [7.0, 70.0, 700.0]


@pytest.mark.parametrize("slots", [3, 8, 20, 29, 31])
def test_short_series(slots: int) -> None:
    """Whoever has a dozen slots gets a wide model, not an exception or a certainty."""
    counts = np.random.default_rng(slots).poisson(40.0, (slots, 2)).astype(float)
    fitted = fit_series(counts, None, HOURLY)
    assert fitted.estimate.profile.level == pytest.approx([40, 40], rel=0.25)
    assert np.isfinite(fitted.estimate.variance).all()
    assert (fitted.estimate.variance > 0).all()
    assert (fitted.scores.slots == 0) == ("too few" in fitted.reason)


def test_one_absurd_slot_does_not_decide() -> None:
    """A typing error of a factor of 1000 must not become the variance of every interval."""
    counts = np.random.default_rng(5).poisson(40.0, (300, 1)).astype(float)
    clean = fit_series(counts).estimate
    counts[150] = 40_000.0
    dirty = fit_series(counts).estimate
    assert dirty.profile.level == pytest.approx(clean.profile.level, rel=0.05)
    assert dirty.variance[0] < 40 * clean.variance[0]


def test_missing_values_are_left_out() -> None:
    """Measurements of past releases exist only where something was learned."""
    rng = np.random.default_rng(6)
    value, noise = rng.normal(100.0, 10.0, (400, 1)), np.full((400, 1), 25.0)
    missing = rng.random((400, 1)) < 0.5
    value[missing], noise[missing] = 0.0, np.inf
    estimate = fit_series(value, noise).estimate
    assert estimate.profile.level == pytest.approx([100], rel=0.03)


@pytest.mark.parametrize("hours", [18, 9])
def test_closed_hours_are_not_taken_for_a_smaller_crowd(hours: int) -> None:
    """A place that was open for 9 of 24 hours was expected to have 30 instead of 100 people in them."""
    open_hours = np.arange(24 * 40) % 24 < hours
    counts = np.random.default_rng(4).poisson(np.where(open_hours, 400.0, 0.0))[:, None].astype(np.float64)
    fitted = fit_series(counts, times=SlotTimes(0, 3_600_000_000), season="day")
    rows = fitted.estimate.profile.rows[:, 0]
    assert rows[:hours] == pytest.approx(np.full(hours, 400.0), rel=0.05)
    assert rows[hours:] == pytest.approx(np.zeros(24 - hours), abs=0.5)
    assert fitted.scores.past < 0.06
    assert fitted.estimate.profile.level[0] == pytest.approx(400.0 * hours / 24, rel=0.02)


def test_rare_absurd_values_still_do_not_count() -> None:
    """A few slots of a million people must not decide the level, whatever closed hours do."""
    counts = np.random.default_rng(5).poisson(30.0, (200, 1)).astype(np.float64)
    counts[[3, 70, 111, 190]] = 1e6
    assert fit_series(counts).estimate.profile.level[0] == pytest.approx(30.0, rel=0.1)


def test_noisy_measurements_of_a_crowd_that_drifts_still_show_the_chance_of_a_slot() -> None:
    """One AR(1) through drift and chance took half of the chance for nothing: intervals were too narrow afterwards."""
    rng = np.random.default_rng(5)
    levels = rng.lognormal(5.5, 0.6, 10)
    crowd = rng.poisson(levels * np.exp(np.cumsum(rng.normal(0.0, 0.012, (160, 10)), axis=0)))
    noise = np.square(0.1 * levels) * np.ones((160, 1))
    fitted = fit_series(crowd + rng.normal(0.0, np.sqrt(noise)), noise, season="none").estimate
    added = fitted.variance * (crowd.mean(axis=0) if fitted.kind == "proportional" else 1.0)
    assert (added > 0.8 * crowd.mean(axis=0)).mean() > 0.7


def test_scores_are_of_slots_that_deviations_were_not_taken_from() -> None:
    """Blocks overlap: a last quarter with four times the deviations judged itself, and 0.91 of it were covered, where a
    model of the slots before covers 0.41."""
    rng = np.random.default_rng(0)
    deviation = np.where(np.arange(200) < 150, 10.0, 40.0)[:, None]
    value = np.rint(1000.0 + deviation * rng.normal(0.0, 1.0, (200, 4)))
    scores = fit_series(value, season="none").scores
    calm = fit_series(np.rint(1000.0 + 10.0 * rng.normal(0.0, 1.0, (200, 4))), season="none").scores
    assert scores.past_coverage < 0.8
    assert 0.9 < calm.past_coverage < 0.98


def noisy_block(level: float, noise: float, earlier: EarlierModel | None = None) -> _Block:
    """A block of noisy measurements of one region around its level."""
    value = level + np.random.default_rng(4).normal(0.0, np.sqrt(noise), (50, 1))
    series = ProfileSeries(value, np.full(value.shape, noise), np.zeros(50, dtype=np.int64))
    return _Block(series, np.full((50, 1), level), np.array([level]), np.array([level]), earlier)


def test_doubt_about_deviations_counts_by_their_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """A filter should expect what it doubts: the variance of a typical deviation makes intervals too narrow, and the
    mean of variances lets one cell that is hardly possible decide."""
    settled = settled_var(np.array([300.0]))[:, 0]
    small, large = int(settled.argmin()), int(settled.argmax())
    chance = np.zeros((len(settled), 1))
    chance[[small, large]] = 0.5
    monkeypatch.setattr("dpcrowd.models.estimate.common_weights", lambda likelihood, start: chance)
    transition, variance = _most_likely([noisy_block(300.0, 1.0)], "proportional")
    found = variance / (1.0 - np.square(transition))
    assert found == pytest.approx(np.square(np.sqrt(settled[[small, large]]).mean()))
    assert np.sqrt(settled[small] * settled[large]) < 0.5 * found[0] < found[0] < settled[[small, large]].mean()


@pytest.mark.parametrize(
    ("noise", "settled", "least"),
    [(640.0, None, 300.0), (640.0, 20.0, 20.0), (640.0, 900.0, 300.0), (640.0, np.nan, 300.0), (30.0, 20.0, 0.0)],
)
def test_an_earlier_model_may_say_that_a_crowd_is_calmer_than_persons(
    noise: float, settled: float | None, least: float
) -> None:
    """Fitted on public counts, it knows what noisy measurements cannot show; every fit on releases would forget it."""
    earlier = None
    if settled is not None:
        earlier = EarlierModel("none", np.array([300.0]), np.array([0.5]), np.array([settled]))
    assert _least_variance([noisy_block(300.0, noise, earlier)], np.array([300.0])).tolist() == [least]
