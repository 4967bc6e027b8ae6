"""Counts that have stepped to another level: where a model begins, and what is no step."""

from __future__ import annotations

import numpy as np
import pytest

from dpcrowd.arrays import Floats
from dpcrowd.models.season import DAY, WEEK, SlotTimes
from dpcrowd.models.steps import fit_after_step, step_of
from dpcrowd.sim.data.counts import counts_from_array
from dpcrowd.sim.data.dataset import DataSet
from dpcrowd.sim.data.span import cut
from dpcrowd.sim.fit import fit
from dpcrowd.sim.fitted import overlap
from dpcrowd.sim.simulate import simulate

SIZES = np.array([20.0, 40.0, 80.0, 120.0])


def stepped(factor: float, slots: int = 250, step: int = 75, seed: int = 1) -> Floats:
    """Calm counts that are `factor` times as large from a slot on."""
    rng = np.random.default_rng(seed)
    level = np.where(np.arange(slots) < step, 1.0 / factor, 1.0)[:, None]
    return rng.poisson(SIZES * level * np.exp(rng.normal(0.0, 0.1, (slots, 4)))).astype(float)


@pytest.mark.parametrize("factor", [0.3, 0.5, 2.0, 3.0])
def test_a_step_is_found_and_left_behind(factor: float) -> None:
    step = step_of(stepped(factor), np.full((250, 4), stepped(factor).mean(axis=0)))
    assert step is not None
    assert 75 <= step.begin <= 100
    assert step.change == pytest.approx(factor, rel=0.1)


@pytest.mark.parametrize(
    "counts",
    [
        stepped(1.0),
        stepped(0.8),
        stepped(0.3, step=180),
        100.0 * np.exp(0.01 * np.arange(250.0))[:, None],
        100.0 + 2.0 * np.arange(250.0)[:, None],
        np.zeros((250, 2)),
        stepped(0.3, slots=59, step=18),
    ],
    ids=["calm", "small", "late", "exponential", "linear", "empty", "short"],
)
def test_what_is_no_step(counts: Floats) -> None:
    """A late step leaves too little to fit on, and growth goes on: the slots before are no other level."""
    assert step_of(counts, np.maximum(np.full(counts.shape, counts.mean(axis=0)), 1.0)) is None


@pytest.mark.parametrize("length", [1.0, 1.25, 1.5, 2.0], ids=lambda length: f"{length} spans")
@pytest.mark.parametrize("swing", [0.5, 0.8])
def test_a_season_that_is_as_long_as_the_span_is_no_step(length: float, swing: float) -> None:
    """One year of days was fitted on its high or its low half, in one of three years: the other half comes back."""
    rng, slots = np.random.default_rng(6), np.arange(365)
    for phase in np.linspace(0.0, 1.0, 24):
        level = 300.0 * (1.0 + swing * np.sin(2.0 * np.pi * (slots / (365.0 * length) + phase)))
        counts = rng.poisson(level)[:, None].astype(float)
        assert step_of(counts, np.full(counts.shape, counts.mean())) is None


def test_regions_that_step_in_different_directions() -> None:
    """It said that counts had risen, where one region of two had fallen."""
    up, down = stepped(3.0, seed=2)[:, :2], stepped(1.0 / 3.0, seed=3)[:, :2]
    counts = np.concatenate([up, down], axis=1)
    step = step_of(counts, np.tile(counts.mean(axis=0), (len(counts), 1)))
    assert step is not None
    assert step.mixed
    assert "changed by a factor of about 3, up in some regions and down in others" in step.text


def test_slots_before_a_step_are_not_called_in_sample() -> None:
    """They were, with and without times: the model has not learned anything from them."""
    data = drawn(0.3)
    model = fit(cut(data, 0, 250), source="drawn")
    assert overlap(model, cut(data, 0, 60), 0) == 0
    assert overlap(model, cut(data, 0, 250), 0) == model.slots
    assert overlap(model, cut(data, 250, 500), 0) == 0


def test_random_walks_rarely_have_a_step() -> None:
    """They wander, so half of what there is looks like two levels; a line explains as much."""
    found = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        level = 200.0 * np.exp(np.cumsum(rng.normal(0.0, 0.05, (220, 3)), axis=0))
        found += step_of(rng.poisson(level).astype(float), np.full((220, 3), level.mean(axis=0))) is not None
    assert found <= 4


def test_the_model_is_that_of_the_slots_after_the_step() -> None:
    counts = stepped(0.3)
    fitted, step = fit_after_step(counts, None, "none")
    assert step is not None
    assert fitted.estimate.profile.level == pytest.approx(counts[step.begin :].mean(axis=0), rel=0.1)
    assert fitted.estimate.transition.max() < 0.3, "the way from one level to the other is no deviation that lasts"


def test_a_season_goes_on_in_its_phase() -> None:
    """Slots after the step begin on another day of the week than the span."""
    day = np.where(np.arange(250) % 7 < 5, 1.5, 0.5)[:, None]
    counts = np.rint(stepped(0.3) * day)
    fitted, step = fit_after_step(counts, SlotTimes(4 * DAY, DAY), "auto")  # begins on a Monday
    assert step is not None
    assert fitted.season == "week"
    rows = fitted.estimate.profile.rows / fitted.estimate.profile.rows.mean(axis=0)
    assert rows[:5].min() > 1.1
    assert rows[5:].max() < 0.7


def test_a_season_that_was_asked_for_is_kept() -> None:
    """Twice a season is left before the step and after it, but not after it alone."""
    fitted, step = fit_after_step(stepped(0.3), SlotTimes(0, WEEK), "year")
    assert step is not None, "155 weeks are nearly three years"
    assert fitted.season == "year"
    fitted, step = fit_after_step(stepped(0.3, slots=150, step=60), SlotTimes(0, WEEK), "year")
    assert step is None
    assert len(fitted.expected) == 150


def drawn(factor: float) -> DataSet:
    return counts_from_array(stepped(factor, slots=500).astype(int).tolist())


def test_fit_says_what_it_did() -> None:
    model = fit(cut(drawn(0.3), 0, 250), source="drawn")
    begin = model.first
    assert 75 <= begin <= 100, "the file names the slots that it was fitted on"
    assert model.slots == 250 - begin
    assert f"on the slots from {begin} on" in model.notes[0]
    assert "fallen to 0.3" in model.notes[0]
    assert "--span" in model.notes[0]
    assert not any("risen" in note or "from the beginning of the span" in note for note in model.notes[1:])


@pytest.mark.slow
def test_estimates_do_not_follow_noise_after_a_step() -> None:
    """With deviations across the step, the error was 1.6 times that of the model alone."""
    data = drawn(0.3)
    model, scored = fit(cut(data, 0, 250), source="drawn"), cut(data, 250, 500)
    found = simulate(
        "relay,past", scored, model=model, groups="auto", shares="partition", epsilon=0.1, runs=2, window=40,
        servers=20, hops_per_slot="all", jobs=1,
    )  # fmt: skip
    assert found["relay"].total_error.mean() < 1.03 * found["past"].total_error.mean()
