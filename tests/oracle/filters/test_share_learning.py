"""Learned shares against dense Gaussian computations that are written out here."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dpcrowd.arrays import Floats
from dpcrowd.filters import ProcessModel
from dpcrowd.filters.course import Course
from dpcrowd.filters.persistence import PersistentRecords, fuse_persistent
from dpcrowd.filters.share_learning import FinalSlot, learn_shares, shrunk_shares, start_learner
from dpcrowd.filters.uncertain_shares import fuse_uncertain

SERVERS, REGIONS = 5, 2
CROWD_VAR = np.array([90_000.0, 4_000.0])  # of the first estimate: comparable with its assumed deviation


def some_public(rng: np.random.Generator) -> Floats:
    return rng.dirichlet(np.full(SERVERS, 4.0), REGIONS).T


def final_slot(rng: np.random.Generator, slot: int, shares: Floats, crowd: Floats) -> FinalSlot:
    origins = np.flatnonzero(rng.random(SERVERS) < 0.7)
    noise_var = rng.uniform(20.0, 60.0, len(origins))
    noisy = shares[origins] * crowd + rng.normal(0.0, 5.0, (len(origins), REGIONS))
    return FinalSlot(slot, origins, noisy, noise_var, crowd, CROWD_VAR, shares)


def centred(var: Floats) -> Floats:
    return np.diag(var) - np.outer(var, var) / var.sum()


def dense_update(mean: Floats, cov: Floats, final: FinalSlot, region: int) -> tuple[Floats, Floats]:
    """The records of a slot, one after the other, with the linearised row of each written out."""
    for origin, noisy, noise_var in zip(final.origins, final.noisy[:, region], final.noise_var, strict=True):
        share, crowd = final.shares[origin, region], max(mean[0], 1.0)
        row = np.zeros(len(mean))
        row[0], row[1 + origin], row[1 + SERVERS + origin] = share, crowd, 1.0
        off, both = mean[1 + origin] - share, cov[0, 1 + origin]
        rest = cov[0, 0] * (cov[1 + origin, 1 + origin] + off**2) + both**2
        expected = share * mean[0] + crowd * mean[1 + origin] - crowd * share + both + mean[1 + SERVERS + origin]
        var = row @ cov @ row + rest + noise_var
        gain = cov @ row / var
        mean, cov = mean + gain * (noisy - expected), cov - np.outer(gain, row @ cov)
    return mean, cov


@pytest.mark.parametrize("turnover", [1.0, 0.1])
def test_the_learner_is_a_dense_kalman_filter(turnover: float) -> None:
    """A sign, a block or an index that is off would learn another server's share."""
    rng = np.random.default_rng(0)
    public, crowd = some_public(rng), np.array([2000.0, 700.0])
    model = ProcessModel.of(0.95, [400.0, 90.0])
    learner = start_learner(public[None], 0.1, np.zeros(1, dtype=np.int64))
    dense = []
    for k in range(REGIONS):
        mean, cov = np.zeros(2 * SERVERS + 1), np.zeros((2 * SERVERS + 1, 2 * SERVERS + 1))
        mean[0], mean[1 : SERVERS + 1] = crowd[k], public[:, k]
        cov[0, 0] = (0.5 * crowd[k]) ** 2 + 4.0 * CROWD_VAR[k]
        cov[1 : SERVERS + 1, 1 : SERVERS + 1] = centred((15 * 0.1 * public[:, k]) ** 2)
        cov[SERVERS + 1 :, SERVERS + 1 :] = centred(crowd[k] * public[:, k])
        dense.append((mean, cov))
    for slot in range(6):
        final = final_slot(rng, slot, public, crowd)
        learn_shares(learner, 0, final, model, turnover)
        for k in range(REGIONS):
            steps = np.concatenate([[0.95], np.ones(SERVERS), np.full(SERVERS, 1.0 - turnover)])
            mean, cov = steps * dense[k][0], np.outer(steps, steps) * dense[k][1]
            cov[0, 0] += model.process_var[k]
            arrivals = (1 - (1 - turnover) ** 2) * max(mean[0], 1.0) * public[:, k]
            cov[SERVERS + 1 :, SERVERS + 1 :] += centred(arrivals)
            dense[k] = dense_update(mean, cov, final, k)
            assert np.allclose(learner.mean[0, k], dense[k][0], rtol=1e-9)
            assert np.allclose(learner.cov[0, k], dense[k][1], rtol=1e-8, atol=1e-8)
    assert np.allclose(learner.mean[0, :, 1 : SERVERS + 1].sum(axis=1), 1.0)


def test_the_learner_around_a_course_is_a_dense_filter_of_the_deviations() -> None:
    """A course of the wrong slot moves the crowd, and the share of whoever was heard then is learned wrong.

    The dense filter knows deviations e from the course, e <- a e + w, where the learner knows the crowd itself. It
    starts from what the deviations have settled at, and needs no first estimate.
    """
    rng = np.random.default_rng(4)
    a, first, turnover = 0.8, 7, 0.1
    profile, variance = rng.uniform(400.0, 3000.0, (3, REGIONS)), rng.uniform(50.0, 900.0, (3, REGIONS))
    model = ProcessModel.around(Course(profile, variance, season=3, offset=0, step=1), a)
    public = some_public(rng)
    learner = start_learner(public[None], 0.1, np.zeros(1, dtype=np.int64))
    dense = []
    for k in range(REGIONS):
        mean, cov = np.zeros(2 * SERVERS + 1), np.zeros((2 * SERVERS + 1, 2 * SERVERS + 1))
        mean[1 : SERVERS + 1] = public[:, k]
        cov[0, 0] = sum(a ** (2 * age) * variance[(first - 1 - age) % 3, k] for age in range(300))
        cov[1 : SERVERS + 1, 1 : SERVERS + 1] = centred((15 * 0.1 * public[:, k]) ** 2)
        cov[SERVERS + 1 :, SERVERS + 1 :] = centred(profile[(first - 1) % 3, k] * public[:, k])
        dense.append((mean, cov))
    for slot in range(first, first + 7):
        records = final_slot(rng, slot, public, profile[slot % 3])
        learn_shares(learner, 0, replace(records, crowd=np.full(REGIONS, np.nan)), model, turnover)
        for k in range(REGIONS):
            steps = np.concatenate([[a], np.ones(SERVERS), np.full(SERVERS, 1.0 - turnover)])
            mean, cov = steps * dense[k][0], np.outer(steps, steps) * dense[k][1]
            cov[0, 0] += variance[slot % 3, k]
            mean[0] += profile[slot % 3, k]  # from the deviation to the crowd, and back below
            cov[SERVERS + 1 :, SERVERS + 1 :] += centred((1 - (1 - turnover) ** 2) * max(mean[0], 1.0) * public[:, k])
            mean, cov = dense_update(mean, cov, records, k)
            assert np.allclose(learner.mean[0, k], mean, rtol=1e-9)
            assert np.allclose(learner.cov[0, k], cov, rtol=1e-8, atol=1e-8)
            mean[0] -= profile[slot % 3, k]
            dense[k] = mean, cov


def test_shrinking_to_a_width_is_another_prior(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read off the widest filter has to be what a filter with that width would say."""
    from dpcrowd.filters import share_learning

    rng = np.random.default_rng(1)
    public, width = some_public(rng), 0.2
    learner = start_learner(public[None], width, np.zeros(1, dtype=np.int64))
    rows = rng.normal(0.0, 1.0, (3, SERVERS))  # linear measurements of the shares, with variance 0.01
    values = rng.normal(0.0, 0.1, (REGIONS, 3))
    place = slice(1, SERVERS + 1)

    def posterior(k: int, factor: float) -> tuple[Floats, Floats]:
        prior = centred((factor * width * public[:, k]) ** 2)
        gain = prior @ rows.T @ np.linalg.inv(rows @ prior @ rows.T + 0.01 * np.eye(3))
        return public[:, k] + gain @ values[k], prior - gain @ rows @ prior

    for k in range(REGIONS):
        learner.mean[0, k, place], learner.cov[0, k, place, place] = posterior(k, 15.0)
    for factor in (1.0, 4.0, 15.0):
        monkeypatch.setattr(share_learning, "_WIDTHS", ((factor, 1.0),))
        shares, var, common = shrunk_shares(learner, 0, width)
        for k in range(REGIONS):
            mean, cov = posterior(k, factor)
            assert np.allclose(var[:, k], np.diag(cov), rtol=1e-6)
            weights = var[:, k] / var[:, k].sum()
            assert np.allclose(common[:, k], cov @ weights / np.sqrt(weights @ cov @ weights), rtol=1e-6)
            if (mean > 0.01).all():
                assert np.allclose(shares[:, k], mean, rtol=1e-6)


def test_the_width_is_found() -> None:
    """Right public shares must stay what they are, and wrong ones must not."""
    rng = np.random.default_rng(2)
    public, crowd = np.full((20, 6), 0.05), np.full(6, 4000.0)
    model = ProcessModel.of(1.0, np.full(6, 100.0))
    errors = {}
    for name, concentration in (("right", None), ("wrong", 10.0)):
        true = public if concentration is None else rng.dirichlet(np.full(20, concentration / 20), 6).T
        learner, believed = start_learner(public[None], 0.1, np.zeros(1, dtype=np.int64)), public
        for slot in range(40):
            origins = np.flatnonzero(np.arange(20) % 4 == slot % 4)
            noisy = rng.poisson(true[origins] * crowd) + rng.laplace(0.0, 10.0, (len(origins), 6))
            final = FinalSlot(slot, origins, noisy, np.full(len(origins), 200.0), crowd, np.zeros(6), believed)
            learn_shares(learner, 0, final, model, 1.0)
            believed, var, _ = shrunk_shares(learner, 0, 0.1)
        assert np.allclose(believed.sum(axis=0), 1.0)
        errors[name] = np.abs(believed - true).sum(axis=0).mean(), np.abs(public - true).sum(axis=0).mean()
        assert 0.4 < np.mean(np.square(believed - true) / var) < 1.6 or name == "right"
    assert errors["right"][0] < 0.05
    assert errors["wrong"][0] < 0.15 * errors["wrong"][1]


def test_uncertain_shares_are_deviations_in_a_dense_filter() -> None:
    """Woodbury's three equations must be the textbook update, and without uncertainty the one of `persistence`."""
    rng = np.random.default_rng(3)
    n, origins = 3, np.array([0, 2, 3])
    shares = rng.dirichlet(np.full(SERVERS, 3.0), (n, REGIONS)).transpose(2, 0, 1)
    people = rng.uniform(50.0, 500.0, (n, REGIONS))
    noisy, noise = rng.uniform(10.0, 100.0, (3, n, REGIONS)), rng.uniform(5.0, 50.0, (3, n, REGIONS))
    noise[1, 0], noisy[1, 0] = np.inf, 0.0
    records = PersistentRecords(origins, noisy, noise, shares, people, np.ones((n, 1), dtype=np.bool_))
    prior, prior_var = rng.uniform(50.0, 500.0, (n, REGIONS)), rng.uniform(10.0, 300.0, (n, REGIONS))
    prior_var[2, 1] = np.inf
    cross = rng.normal(0.0, 1.0, (SERVERS, n, REGIONS))
    cross -= cross.mean(axis=0)
    for mine, theirs in zip(
        fuse_uncertain(prior, prior_var, cross, records, np.zeros_like(shares), np.zeros_like(shares)),
        fuse_persistent(prior, prior_var, cross, records),
        strict=True,
    ):
        assert np.allclose(mine, theirs, rtol=1e-9)
    share_var = rng.uniform(0.0, 0.01, shares.shape)
    common = np.sqrt(share_var) * rng.uniform(-0.9, 0.9, shares.shape)
    mean, var, after = fuse_uncertain(prior, prior_var, cross, records, share_var, common)
    v = shares * people + (share_var - common**2) * people**2
    for i, k in ((0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)):
        known = np.isfinite(prior_var[i, k])
        deviations = centred(v[:, i, k]) + np.outer(common[:, i, k], common[:, i, k]) * people[i, k] ** 2
        joint = np.zeros((SERVERS + 1, SERVERS + 1))  # the crowd and the deviations
        joint[0, 0], joint[1:, 1:] = prior_var[i, k] if known else 1e12, deviations
        joint[0, 1:] = joint[1:, 0] = -cross[:, i, k] * known
        held = [number for number in range(3) if np.isfinite(noise[number, i, k])]
        rows = np.zeros((len(held), SERVERS + 1))
        rows[:, 0] = shares[origins[held], i, k]
        rows[np.arange(len(held)), 1 + origins[held]] = 1.0
        gain = np.linalg.solve(rows @ joint @ rows.T + np.diag(noise[held, i, k]), rows @ joint)[:, 0]
        tolerance = 1e-6 if known else 1e-3
        assert np.isclose(mean[i, k], prior[i, k] + gain @ (noisy[held, i, k] - rows[:, 0] * prior[i, k]), tolerance)
        assert np.isclose(var[i, k], joint[0, 0] - gain @ rows @ joint[:, 0], tolerance)
        expected = (1 - gain @ rows[:, 0]) * cross[:, i, k] * known + deviations @ rows[:, 1:].T @ gain
        assert np.allclose(after[:, i, k], expected, tolerance)
