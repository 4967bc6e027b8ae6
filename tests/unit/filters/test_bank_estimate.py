"""What a bank says together: no belief without evidence decides, and a step ahead fits its variances."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtr

from dpcrowd.filters import Course, ProcessModel
from dpcrowd.filters.bank_estimate import combined, step_ahead
from dpcrowd.filters.learning import beliefs_of, predict_bank, start_bank, update_bank
from dpcrowd.filters.smoothing import smooth_steps

LEVEL, A, Q = 200.0, 0.6, 64.0
MODEL = ProcessModel.around(Course(np.array([[LEVEL]]), np.array([[Q]])), np.array([A]))


def test_the_intervals_have_the_evidence_of_the_estimate_and_no_belief_without_evidence_decides() -> None:
    """A calmer start would be a narrower interval without evidence, and a level far away one without end."""
    beliefs = beliefs_of(MODEL)
    start, trust, silent = np.exp(beliefs.weight[:, 0, 0]), beliefs.trust[:, 0, 0], beliefs.silent[:, 0, 0]
    assert start.sum() == pytest.approx(1.0)
    assert trust.sum() == pytest.approx(1.0)
    bank = start_bank(MODEL, 1, -1)
    bank.mean[:, 0, 0] = 100.0 + np.arange(len(start))
    bank.weight[:, 0, 0] = np.log(start)
    mean, var = combined(bank, beliefs)
    trusted = np.maximum(trust - silent, 0.0) / np.sqrt(bank.var[:, 0, 0])
    assert mean[0, 0] == pytest.approx((trusted * bank.mean[:, 0, 0]).sum() / trusted.sum(), rel=1e-6)
    shared = np.where(beliefs.factor[:, 0, 0] < 1.0, 0.0, start)  # no calmer belief is right in all regions
    weight = 0.8 * start + 0.2 * (0.9 * shared / shared.sum() + 0.1 * start)  # one region in ten is an exception
    weight = np.maximum(weight - silent, 0.0)
    spread = bank.var + (bank.mean - mean) ** 2
    spread[5] += bank.mean[5] - bank.mean[1]  # people at a level far away come by chance, as all others do
    assert var == pytest.approx((weight[:, None, None] * spread).sum(axis=0) / weight.sum(), rel=1e-6)
    assert (beliefs.factor[trust > start, 0, 0] != 1.0).all()


def test_the_estimate_is_close_to_the_median_of_what_is_believed() -> None:
    """The mean of all beliefs follows the noise that a wide one with little evidence has fused."""
    beliefs, bank = beliefs_of(MODEL), start_bank(MODEL, 1, -1)
    bank.mean += 0.2 * np.sqrt(bank.var)  # every belief has followed the same record, the wider the farther
    weight = np.maximum(beliefs.trust - beliefs.silent, 0.0)
    weight /= weight.sum()
    low, high = LEVEL, LEVEL + 100.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        below = (weight * ndtr((middle - bank.mean) / np.sqrt(bank.var))).sum()
        low, high = (middle, high) if below < 0.5 else (low, middle)
    mean_of_all = float((weight * bank.mean).sum())
    estimate = float(combined(bank, beliefs)[0][0, 0])
    assert abs(estimate - low) < 0.03 * (mean_of_all - low)


def test_no_covariance_of_a_step_is_larger_than_its_variances_allow() -> None:
    """A smoother would get negative variances from it, and intervals that are not numbers."""
    regions, rng = 5, np.random.default_rng(51)
    levels = np.linspace(20.0, 300.0, regions)
    model = ProcessModel.around(Course(levels[None], levels[None]), np.full(regions, A))
    beliefs, bank = beliefs_of(model), start_bank(model, 200, -1)
    for slot in range(3):
        info = np.where(rng.random((200, regions)) < 0.5, 0.0, 10.0 ** rng.uniform(-5.0, 1.0, (200, regions)))
        values = levels * rng.uniform(0.0, 3.0, (200, regions))
        bank = update_bank(predict_bank(bank, model, beliefs, slot), info * values, info, beliefs)
        var = combined(bank, beliefs)[1]
        _, prior_var, covariance = step_ahead(bank, model, beliefs, slot + 1)
        assert (np.square(covariance) <= var * prior_var * (1.0 + 1e-9)).all()


def test_a_covariance_that_is_too_large_leaves_no_negative_variance() -> None:
    """The variances of a release may be others than those of the bank, whose covariances then do not fit them."""
    variances, steps = np.array([[[4.0]], [[0.01]]]), np.array([[[[0.0]], [[4.0]], [[5.0]]]] * 2)
    smoothed_var = smooth_steps(np.zeros((2, 1, 1)), variances, np.ones((2, 1)), steps)[1]
    assert smoothed_var.min() > 0.0


def test_a_belief_that_is_sure_and_nearly_refuted_does_not_decide() -> None:
    """Densities alone would give a model of 200 people that has lost all its weight the estimate of a crowd of 9000."""
    beliefs, bank = beliefs_of(MODEL), start_bank(MODEL, 1, -1)
    bank.mean[-1], bank.var[-1] = 9000.0, 2500.0**2
    weight = np.full(len(bank.weight), 1e-4)
    weight[1], weight[-1] = 0.01, 1.0
    bank.weight[:, 0, 0] = np.log(weight / weight.sum())
    assert 8000.0 < combined(bank, beliefs)[0][0, 0] < 9000.0


def test_calm_regions_do_not_outvote_one_that_has_plainly_left_its_model() -> None:
    """Fifteen shops that are calmer than their model would keep the estimate of the one that has opened near nobody."""
    regions, rng = 16, np.random.default_rng(5)
    level, var = np.full((1, regions), 1000.0), np.full((1, regions), 200.0**2)
    level[0, -1], var[0, -1] = 3.0, 120.0
    model = ProcessModel.around(Course(level, var), np.full(regions, A))
    beliefs, bank, deviation, errors = beliefs_of(model), start_bank(model, 1, -1), np.zeros(regions), []
    info = np.full((1, regions), 1.0 / 50.0**2)
    for slot in range(60):
        deviation = A * deviation + rng.normal(0.0, 100.0, regions)
        record = 1000.0 + deviation + rng.laplace(0.0, 35.0, regions)
        bank = update_bank(predict_bank(bank, model, beliefs, slot), info * record, info, beliefs)
        errors.append(np.abs(combined(bank, beliefs)[0][0] - 1000.0 - deviation))
    error = np.mean(errors[20:], axis=0)
    assert error[:-1].mean() < 40.0
    assert error[-1] < 150.0
