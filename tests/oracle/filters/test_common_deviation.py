"""Deviations in common: the belief of a bank against a filter whose state is every region's own deviation and f."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dpcrowd.arrays import Floats
from dpcrowd.filters import Course, ProcessModel
from dpcrowd.filters.common_deviation import beliefs_in_common
from dpcrowd.filters.groups import GroupedSums
from dpcrowd.filters.learning import MODEL, beliefs_of, predict_bank, start_bank, update_bank
from dpcrowd.filters.model import InCommon

LEVELS = np.array([300.0, 40.0, 120.0, 75.0])
SETTLED = np.array([900.0, 90.0, 400.0, 30.0])
D, RHO, LASTS = 4, 0.4, 0.8
ONE_SUM = np.zeros(D, dtype=np.int64)


def model_of(fades: float) -> ProcessModel:
    """A model of deviations that lose 1 - `fades` per slot, and of which regions share a part."""
    course = Course(LEVELS[None], (SETTLED * (1.0 - fades**2))[None])
    return ProcessModel.around(course, np.full(D, fades), None, RHO, InCommon(LASTS))


def joint_filter(samples: Floats, noise: Floats, fades: float, *, sums: bool = False) -> tuple[Floats, Floats]:
    """Means and variances (T, d) of the counts after every slot, by a Kalman filter with the state (e, f)."""
    move = np.diag(np.append(np.full(D, fades), LASTS))
    added = np.diag(np.append((1.0 - RHO) * SETTLED * (1.0 - fades**2), 1.0 - LASTS**2))
    counts = np.hstack([np.eye(D), np.sqrt(RHO * SETTLED)[:, None]])
    state, cov = np.zeros(D + 1), np.diag(np.append((1.0 - RHO) * SETTLED, 1.0))
    means, variances = [], []
    for sample, one in zip(samples, noise, strict=True):
        state, cov = move @ state, move @ cov @ move.T + added
        if np.isfinite(one):
            seen = counts.sum(axis=0, keepdims=True) if sums else counts
            value = np.array([(sample - LEVELS).sum()]) if sums else sample - LEVELS
            gain = cov @ seen.T @ np.linalg.inv(seen @ cov @ seen.T + one * np.eye(len(seen)))
            state, cov = state + gain @ (value - seen @ state), cov - gain @ seen @ cov
        means.append(LEVELS + counts @ state)
        variances.append(np.diag(counts @ cov @ counts.T))
    return np.array(means), np.array(variances)


def by_bank(samples: Floats, noise: Floats, fades: float, *, sums: bool = False) -> tuple[Floats, Floats]:
    """The same by the last belief of a bank."""
    model = model_of(fades)
    beliefs, bank = beliefs_of(model), start_bank(model, 1, -1)
    means, variances = [], []
    for slot, (sample, one) in enumerate(zip(samples, noise, strict=True)):
        info, nothing = np.full((1, D), 1.0 / one), np.zeros((1, D))
        prior = predict_bank(bank, model, beliefs, slot)
        if sums and np.isfinite(one):
            records = [GroupedSums(ONE_SUM, info * sample.sum(), info)]
            bank = update_bank(prior, nothing, nothing, beliefs, records)
        else:
            bank = update_bank(prior, info * sample, info, beliefs)
        means.append(bank.mean[-1, 0])
        variances.append(bank.var[-1, 0])
    return np.array(means), np.array(variances)


def drawn(seed: int, slots: int = 60) -> tuple[Floats, Floats]:
    """Samples (60, 4) of a crowd whose regions rise and fall together, and variances of their noise; inf: none."""
    rng = np.random.default_rng(seed)
    together = np.zeros(slots)
    for slot in range(1, slots):
        together[slot] = LASTS * together[slot - 1] + rng.normal(0.0, np.sqrt(1.0 - LASTS**2))
    counts = LEVELS + np.sqrt(RHO * SETTLED) * together[:, None]
    counts = counts + rng.normal(0.0, np.sqrt((1.0 - RHO) * SETTLED), counts.shape)
    noise = np.where(rng.random(slots) < 0.3, np.inf, rng.choice([4.0, 400.0, 40_000.0], slots))
    return counts + rng.normal(0.0, np.sqrt(np.where(np.isfinite(noise), noise, 0.0))[:, None], counts.shape), noise


@pytest.mark.parametrize("seed", range(4))
def test_it_is_the_joint_filter_where_own_deviations_do_not_last(seed: int) -> None:
    """f and its variance are read off two estimates: a wrong part would let it run away, or be known too well."""
    samples, noise = drawn(seed)
    expected, found = joint_filter(samples, noise, 0.0), by_bank(samples, noise, 0.0)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-6)
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-6)


@pytest.mark.parametrize("fades", [0.3, 0.6, 0.9])
def test_it_is_close_where_they_do(fades: float) -> None:
    """In between the parts are approximate; estimates and widths have to stay those of the joint filter."""
    samples, noise = drawn(9)
    expected, found = joint_filter(samples, noise, fades), by_bank(samples, noise, fades)
    off = np.abs(found[0] - expected[0]) / np.sqrt(expected[1])
    assert off.mean() < 0.25
    ratio = found[1] / expected[1]
    assert ratio.min() > 0.6
    assert ratio.max() < 1.7


def test_the_sum_of_all_regions_is_one_measurement_of_what_they_have_in_common() -> None:
    """Counted once per region, f would be taken for known after one record of the sum.

    Records have sums where those of single regions would say little; where they say much, it is an approximation.
    """
    samples, noise = drawn(5)
    noise = np.where(np.isfinite(noise), 40_000.0, np.inf)
    expected, found = joint_filter(samples, noise, 0.0, sums=True), by_bank(samples, noise, 0.0, sums=True)
    assert np.ptp(expected[0], axis=0).min() > 4.0, "the sums say something"
    off = np.abs(found[0] - expected[0]) / np.sqrt(expected[1])
    assert off.max() < 0.02
    np.testing.assert_allclose(found[1], expected[1], rtol=0.02)


def test_storms_in_all_regions_have_a_belief_of_their_own_beside_it() -> None:
    """The filter of f goes on as without it, or f would be read off its median; weak records change the median less."""
    plain = model_of(0.0)
    stormy = replace(plain, in_common=InCommon(LASTS, usual=0.02, unusual=0.05))
    samples, noise = drawn(7)
    noise = np.where(np.isfinite(noise), np.maximum(noise, 4_000.0), np.inf)
    banks = []
    for model in (plain, stormy):
        beliefs, bank = beliefs_of(model), start_bank(model, 1, -1)
        for slot, (sample, one) in enumerate(zip(samples, noise, strict=True)):
            info = np.full((1, D), 1.0 / one)
            bank = update_bank(predict_bank(bank, model, beliefs, slot), info * sample, info, beliefs)
        banks.append(bank)
    without, bank = banks
    assert len(bank.mean) == len(without.mean) + 1
    np.testing.assert_allclose(bank.mean[:-1], without.mean)
    np.testing.assert_allclose(bank.var[:-1], without.var)
    moved, less = (np.abs(bank.mean[place, 0] - LEVELS).sum() for place in (-2, -1))
    assert moved > 1.0, "records have shown something"
    assert less < 0.8 * moved
    trust = beliefs_of(stormy).trust[:, 0, 0]
    assert trust[-1] == pytest.approx(0.9 * (trust[-1] + trust[-2])), "trusted as far as f is mostly small"
    assert trust.sum() == pytest.approx(1.0)


def test_where_records_are_weak_it_knows_more_than_the_filter_of_each_region_alone() -> None:
    """Forty regions whose records say next to nothing alone: together they show what all have in common."""
    rng = np.random.default_rng(3)
    number, slots, noise = 40, 200, 40_000.0
    course = Course(np.full((1, number), 200.0), np.full((1, number), 400.0))
    model = ProcessModel.around(course, np.zeros(number), None, 0.5, InCommon(0.9))
    beliefs, bank = beliefs_of(model), start_bank(model, 1, -1)
    together, errors = 0.0, []
    for slot in range(slots):
        together = 0.9 * together + rng.normal(0.0, np.sqrt(1.0 - 0.81))
        counts = 200.0 + np.sqrt(200.0) * (together + rng.normal(0.0, 1.0, number))
        info = np.full((1, number), 1.0 / noise)
        sample = counts + rng.normal(0.0, np.sqrt(noise), number)
        bank = update_bank(predict_bank(bank, model, beliefs, slot), info * sample, info, beliefs)
        estimates = np.array([np.full(number, 200.0), *bank.mean[[MODEL, -1], 0]])
        errors.append(np.square(estimates - counts).mean(axis=1))
    past, alone, common = np.mean(errors, axis=0)
    assert alone > 0.97 * past, "records of one region say next to nothing"
    assert common < 0.9 * alone


def test_there_is_no_such_belief_where_the_model_does_not_say_how_long_it_lasts() -> None:
    """Models of earlier versions have a correlation alone: their banks, which live servers keep, stay as they are."""
    model = model_of(0.5)
    earlier, unrelated = replace(model, in_common=None), replace(model, region_correlation=0.0)
    assert [beliefs_in_common(one) for one in (model, earlier, unrelated)] == [1, 0, 0]
    assert len(beliefs_of(model).weight) == len(beliefs_of(earlier).weight) + 1
    assert np.exp(beliefs_of(model).weight).sum() == pytest.approx(1.0)


def test_regions_that_are_all_alike_and_a_count_that_is_known_are_no_obstacle() -> None:
    """A correlation of 1 leaves nothing to own deviations, and an exact record nothing to anything: no 0/0."""
    model = replace(model_of(0.3), region_correlation=1.0)
    beliefs, bank = beliefs_of(model), start_bank(model, 1, -1)
    for slot, info in enumerate((1e300, 1e-300, 1.0)):
        size = np.full((1, D), info)
        bank = update_bank(predict_bank(bank, model, beliefs, slot), size * LEVELS, size, beliefs)
        assert np.isfinite(bank.mean).all()
        assert (bank.var >= 0.0).all()
        assert bank.mean[-1, 0] == pytest.approx(LEVELS, rel=0.2)
