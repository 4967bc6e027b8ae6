"""Users who stay: counts are those of a fresh draw in every slot, but deviations persist."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from dpcrowd.arrays import Floats
from dpcrowd.errors import BadInput
from dpcrowd.sim.configure import configure
from dpcrowd.sim.data import draw_run, load
from dpcrowd.sim.data.observe import observe
from dpcrowd.sim.data.shares import draw_composition

PARTITION = np.array([0.5, 0.3, 0.15, 0.05])
OVERLAPPING = np.array([0.9, 0.5, 0.3, 0.05])
RISING_AND_FALLING = np.array([60, 90, 90, 30, 45, 0, 20])
REGIONS = 20_000


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize("shares", [PARTITION, OVERLAPPING], ids=["partition", "overlapping"])
@pytest.mark.parametrize("turnover", [0.02, 0.3])
def test_every_slot_is_a_binomial_part(shares: Floats, turnover: float) -> None:
    """With wrong departures or arrivals, mean and variance of the counts would drift from Binomial(r, H)."""
    truth = np.tile(RISING_AND_FALLING[:, None], (1, REGIONS))
    counts = observe("binomial", truth, shares, np.ones(REGIONS), rng(1), turnover=turnover)
    for slot, people in enumerate(RISING_AND_FALLING):
        mean, var = people * shares, people * shares * (1.0 - shares)
        assert (np.abs(counts[slot].mean(axis=1) - mean) <= 5.0 * np.sqrt(var / REGIONS)).all()
        assert np.allclose(counts[slot].var(axis=1), var, rtol=0.06)
        assert counts[slot].min() >= 0
        if people:  # not only two moments: nobody at a server has the probability (1 - H)^r
            nobody = (counts[slot] == 0).mean(axis=1)
            expected = (1.0 - shares) ** people
            assert (np.abs(nobody - expected) <= 5.0 * np.sqrt(expected / REGIONS) + 1e-9).all()


def test_counts_of_a_partition_sum_to_the_truth() -> None:
    """People who were lost or counted twice between two slots would show in the sum."""
    truth = rng().integers(0, 50, (40, 7))
    counts = observe("binomial", truth, PARTITION, np.ones(7), rng(2), turnover=0.1)
    assert_array_equal(counts.sum(axis=1), truth)
    covariance = np.cov(
        observe("binomial", np.full((2, REGIONS), 100), PARTITION, np.ones(REGIONS), rng(3), turnover=0.1)[1]
    )
    assert np.allclose(covariance, 100 * (np.diag(PARTITION) - np.outer(PARTITION, PARTITION)), atol=0.8)


@pytest.mark.parametrize("shares", [PARTITION, OVERLAPPING], ids=["partition", "overlapping"])
@pytest.mark.parametrize("turnover", [0.02, 0.3])
def test_deviations_persist(shares: Floats, turnover: float) -> None:
    """The autocorrelation of a deviation is 1 - turnover per slot while nobody leaves for good."""
    truth = np.full((6, 4_000), 200)
    counts = observe("binomial", truth, shares, np.ones(4_000), rng(4), turnover=turnover)
    deviation = counts - 200 * shares[:, None]
    for lag in (1, 5):
        correlation = (deviation[lag] * deviation[0]).mean() / np.square(deviation).mean()
        assert correlation == pytest.approx((1.0 - turnover) ** lag, abs=0.04)


def test_turnover_of_one_is_the_former_draw() -> None:
    """Figures of the paper's data keep their bits, and so do roaming users and shares that change in every slot."""
    truth = rng().integers(0, 50, (9, 3))
    for shares in (PARTITION, OVERLAPPING, np.tile(OVERLAPPING, (9, 1))):
        plain = observe("binomial", truth, shares, np.ones(3), rng(5))
        assert_array_equal(observe("binomial", truth, shares, np.ones(3), rng(5), turnover=1.0), plain)
        roaming = observe("binomial", truth, shares, np.ones(3), rng(5), users="roaming", turnover=0.1)
        assert_array_equal(roaming, plain)
    changing = np.tile(OVERLAPPING, (9, 1))
    assert_array_equal(
        observe("binomial", truth, changing, np.ones(3), rng(5), turnover=0.1),
        observe("binomial", truth, changing, np.ones(3), rng(5)),
    )


def test_draw_is_seeded() -> None:
    """The same seed and run give the same people; without it comparisons would not be paired."""
    data = load("linear", slots=20)
    runs = [
        draw_run(data, seed=1, run=2, servers=6, shares="partition", observation="binomial", turnover=turnover).counts
        for turnover in (0.1, 0.1, 1.0)
    ]
    assert_array_equal(runs[0], runs[1])
    assert (runs[0] != runs[2]).any()


@pytest.mark.parametrize("turnover", [0.0, -0.1, 1.5, float("nan"), True, "0.1"])
def test_bad_turnover_is_refused(turnover: float) -> None:
    """A turnover of 0 would mean that nobody ever leaves, for which the filters have no state."""
    with pytest.raises(BadInput, match=r"turnover=.*above 0 and at most 1"):
        observe("binomial", np.ones((2, 1), dtype=np.int64), PARTITION, np.ones(1), rng(), turnover=turnover)


def test_huge_regions_are_refused() -> None:
    """The sampler of departures would fail with a message about `ngood`."""
    with pytest.raises(BadInput, match="turnover=1"):
        observe("binomial", np.full((2, 1), 2 * 10**9), PARTITION, np.ones(1), rng(), turnover=0.5)


def test_default_of_a_simulation() -> None:
    """Pinned people have a turnover of 5%; roaming users and the paper's observation have none to set."""
    partition: dict[str, Any] = {
        "shares": "partition",
        "servers": 4,
        "slots": 20,
        "runs": 1,
        "density": 1.0,
        "burn_in": 0,
    }
    assert configure("dpcrowd", **partition).turnover == 0.05
    assert configure("dpcrowd", **partition, turnover=0.3).turnover == 0.3
    assert configure("dpcrowd", **partition, users="roaming").turnover == 1.0
    assert configure("dpcrowd", **{**partition, "shares": "uniform"}).turnover == 1.0
    with pytest.raises(BadInput, match="roaming"):
        configure("dpcrowd", **partition, users="roaming", turnover=0.3)
    with pytest.raises(BadInput, match="binomial"):
        configure("dpcrowd", **{**partition, "shares": "uniform"}, turnover=0.3)


def test_shares_that_differ_by_region() -> None:
    """Without the composition, a simulation could not show what a wrong public share costs."""
    by_region = draw_composition(PARTITION, 5.0, REGIONS, rng(6))
    assert np.allclose(by_region.sum(axis=0), 1.0)
    assert np.allclose(by_region.mean(axis=1), PARTITION, atol=0.005)
    assert np.allclose(by_region.var(axis=1), PARTITION * (1.0 - PARTITION) / (5.0 * 4 + 1.0), rtol=0.06)
    data = load("multi-linear", slots=30)
    settings: dict[str, Any] = {"seed": 1, "run": 0, "servers": 4, "shares": "partition", "observation": "binomial"}
    run, plain = (draw_run(data, **settings, turnover=0.2, composition=one) for one in (0.5, None))
    assert_array_equal(run.counts.sum(axis=1), run.truth)
    assert_array_equal(run.shares, plain.shares)
    off = np.abs(run.counts - run.shares[:, None] * run.truth[:, None, :]).mean()
    assert off > 5.0 * np.abs(plain.counts - plain.shares[:, None] * plain.truth[:, None, :]).mean()
    with pytest.raises(BadInput, match="composition=5 needs binomial counts"):
        draw_run(data, **{**settings, "shares": "uniform"}, composition=5.0)
    with pytest.raises(BadInput, match=r"composition=0\.0; allowed"):
        configure("dpcrowd", shares="partition", servers=4, slots=20, runs=1, burn_in=0, composition=0.0)
