"""Continued learning: wider where a series leaves its past, narrower by evidence alone, and hardly ever worse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dpcrowd.filters import Course, ProcessModel, predict, update
from dpcrowd.filters.learning import beliefs_of, combined, predict_bank, reset_bank, start_bank, update_bank

LEVEL, A, Q = 200.0, 0.6, 64.0
RUNS = 400
MODEL = ProcessModel.around(Course(np.array([[LEVEL]]), np.array([[Q]])), np.array([A]))


def crowds(slots: int, q: float, level: float, seed: int) -> Any:
    """Truth (slots, runs, 1) that deviates from a level as the model says, with another variance."""
    rng = np.random.default_rng(seed)
    deviation, values = rng.normal(0.0, np.sqrt(q / (1 - A * A)), (RUNS, 1)), []
    for _ in range(slots):
        deviation = A * deviation + rng.normal(0.0, np.sqrt(q), (RUNS, 1))
        values.append(level + deviation)
    return np.array(values)


def learned(truth: Any, noise: float, seed: int, model: ProcessModel = MODEL) -> tuple[Any, Any]:
    """Means and variances of filters that learn, with Laplace noise in every slot."""
    beliefs, bank = beliefs_of(model), start_bank(model, RUNS, -1)
    rng, estimates = np.random.default_rng(seed), []
    for slot, values in enumerate(truth):
        info = np.full(values.shape, 1.0 / noise)
        sample = values + rng.laplace(0.0, np.sqrt(noise / 2), values.shape)
        bank = update_bank(predict_bank(bank, model, beliefs, slot), info * sample, info, beliefs)
        estimates.append(combined(bank))
    means, variances = zip(*estimates, strict=True)
    return np.array(means), np.array(variances)


def fixed(truth: Any, noise: float, seed: int, factor: float) -> tuple[Any, Any]:
    """The same filter with one variance throughout."""
    model = ProcessModel.around(Course(np.array([[LEVEL]]), np.array([[factor * Q]])), np.array([A]))
    mean, var = (np.tile(part, (RUNS, 1)) for part in model.start(-1))
    rng, estimates = np.random.default_rng(seed), []
    for slot, values in enumerate(truth):
        info = np.full(values.shape, 1.0 / noise)
        sample = values + rng.laplace(0.0, np.sqrt(noise / 2), values.shape)
        mean, var = update(*predict(mean, var, model, slot), info * sample, info)
        estimates.append((mean, var))
    means, variances = zip(*estimates, strict=True)
    return np.array(means), np.array(variances)


@pytest.mark.parametrize("noise", [20.0, 400.0, 8000.0])
@pytest.mark.parametrize("q", [Q, 4 * Q, 16 * Q])
def test_at_most_a_tenth_worse_than_the_best_value_in_hindsight(q: float, noise: float) -> None:
    """Learning that costs more than it gains would better be switched off."""
    truth = crowds(160, q, LEVEL, 1)
    errors = [np.abs(fixed(truth, noise, 2, factor)[0] - truth).mean() for factor in 4.0 ** np.arange(-2, 4)]
    error = np.abs(learned(truth, noise, 2)[0] - truth).mean()
    assert error < 1.10 * min(errors)


def test_a_model_that_is_too_wide_does_little_harm() -> None:
    """Precise records show it; where records are weak nobody can know, and learning must not make it much worse."""
    truth = crowds(160, Q / 8, LEVEL, 1)
    for noise, most in ((20.0, 0.9), (400.0, 1.02), (8000.0, 1.2)):
        plain, mean = fixed(truth, noise, 2, 1.0)[0], learned(truth, noise, 2)[0]
        assert np.abs(mean - truth).mean() < most * np.abs(plain - truth).mean()


@pytest.mark.parametrize(("noise", "samples"), [(20.0, 3), (400.0, 12)])
def test_intervals_widen_within_a_few_samples(noise: float, samples: int) -> None:
    """A crowd that suddenly moves four times as far must not be reported with the intervals of calm days."""
    calm, lively = crowds(60, Q, LEVEL, 3), crowds(60, 30 * Q, LEVEL, 4)
    truth = np.concatenate([calm, lively])
    mean, var = learned(truth, noise, 5)
    covered = np.abs(mean - truth) < 1.96 * np.sqrt(var)
    assert covered[10:60].mean() > 0.93
    assert covered[60 + samples :].mean() > 0.9
    assert var[60 + samples :].mean() > 1.2 * var[20:60].mean()


def test_narrower_only_by_evidence() -> None:
    """Where records say nothing, a learner that narrowed its intervals would claim what nobody knows."""
    beliefs = beliefs_of(MODEL)
    bank = start_bank(MODEL, 1, -1)
    alone = MODEL.start(0)[1]
    for slot in range(50):
        bank = update_bank(predict_bank(bank, MODEL, beliefs, slot), np.zeros((1, 1)), np.zeros((1, 1)), beliefs)
        assert (combined(bank)[1] >= alone).all()
    assert np.exp(bank.weight).sum(axis=0) == pytest.approx(1.0)
    assert bank.weight == pytest.approx(np.broadcast_to(beliefs.weight, bank.weight.shape))
    calm = crowds(160, Q / 10, LEVEL, 6)
    _, var = learned(calm, 20.0, 7)
    assert var[-60:].mean() < 0.9 * fixed(calm, 20.0, 7, 1.0)[1][-60:].mean()


def test_a_level_that_has_moved_is_followed() -> None:
    """The model keeps expecting the old level; estimates that were pulled back to it would be wrong for ever."""
    truth = crowds(150, Q, LEVEL + 80.0, 8)
    mean, var = learned(truth, 400.0, 9)
    plain = fixed(truth, 400.0, 9, 1.0)[0]
    late = slice(60, None)
    assert np.abs(mean - truth)[late].mean() < 0.8 * np.abs(plain - truth)[late].mean()
    assert (np.abs(mean - truth) < 1.96 * np.sqrt(var))[late].mean() > 0.88


def test_without_a_course_the_variance_need_not_be_known() -> None:
    """A network that begins with a guess at Q, wrong by a factor of 16, must not stay with it."""
    model = ProcessModel.of(1.0, [Q / 16])
    rng = np.random.default_rng(10)
    truth = LEVEL + np.cumsum(rng.normal(0.0, np.sqrt(Q), (120, RUNS, 1)), axis=0)
    mean, var = learned(truth, 100.0, 11, model)
    covered = np.abs(mean - truth) < 1.96 * np.sqrt(var)
    assert np.isfinite(var).all()
    assert covered[40:].mean() > 0.9


def test_a_bank_that_agrees() -> None:
    """After a long absence all filters continue from one estimate, and none is trusted more than at the start."""
    mean, var = np.array([[120.0]]), np.array([[9.0]])
    bank = reset_bank(mean, var, beliefs_of(MODEL))
    for one, other in zip(combined(bank), (mean, var), strict=True):
        assert one == pytest.approx(other)
