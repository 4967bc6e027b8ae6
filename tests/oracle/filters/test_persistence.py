"""Persistent deviations against matrices: gains and variances from a dense covariance of error and deviations."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from dpcrowd.arrays import Floats
from dpcrowd.filters.persistence import (
    PersistentRecords,
    are_partitioned,
    fuse_persistent,
    partitioned_information,
    persistent_gain,
    repeated_part,
)

SERVERS, PEOPLE = 5, 300.0
NOISE = np.array([8.0, 3.0, 20.0, 5.0, 11.0])


def covariance_of(shares: Floats, partition: bool) -> Floats:
    """Return Cov(delta)."""
    if partition:
        return np.asarray(PEOPLE * (np.diag(shares) - np.outer(shares, shares)))
    return np.asarray(PEOPLE * np.diag(shares * (1.0 - shares)))


def records_of(origins: list[int], noisy: Floats, shares: Floats, partition: bool) -> PersistentRecords:
    return PersistentRecords(
        origins=np.array(origins, dtype=np.int64),
        noisy=noisy[:, None, None],
        noise_var=NOISE[origins][:, None, None],
        shares=shares[:, None, None],
        people=np.full((1, 1), PEOPLE),
        partition=np.array([[partition]]),
    )


def dense_step(
    mean: float, cov: Floats, deviations: Floats, shares: Floats, origins: list[int], noisy: Floats
) -> tuple[float, Floats]:
    """Return mean and Cov(e, delta) by full matrices: Cov(delta) is considered and stays what it is.

    cov  (1 + m,) the variance of the error e = mean - r, and its covariances with the deviations
    """
    full = np.block([[cov[:1, None], cov[None, 1:]], [cov[1:, None], deviations]])
    sensing = np.zeros((len(origins), 1 + SERVERS))  # nu = -H e + delta + noise
    for row, origin in enumerate(origins):
        sensing[row, 0], sensing[row, 1 + origin] = -shares[origin], 1.0
    innovation_cov = sensing @ full @ sensing.T + np.diag(NOISE[origins])
    gain = -np.linalg.solve(innovation_cov, sensing @ full[:, 0])
    step = np.eye(1 + SERVERS)
    step[0] += gain @ sensing
    after = step @ full @ step.T
    after[0, 0] += gain @ np.diag(NOISE[origins]) @ gain
    return float(mean + gain @ (noisy - shares[origins] * mean)), np.asarray(after[0])


@pytest.mark.parametrize("partition", [True, False], ids=["partition", "overlapping"])
@pytest.mark.parametrize("turnover", [0.02, 0.3])
def test_as_with_full_matrices(partition: bool, turnover: float) -> None:
    """A wrong sign or a lost covariance in the five sums would give other gains than the matrices."""
    rng = np.random.default_rng(3)
    shares = np.array([0.3, 0.25, 0.2, 0.15, 0.1]) if partition else np.array([0.9, 0.5, 0.3, 0.2, 0.05])
    deviations = covariance_of(shares, partition)
    mean, var, cross = np.full((1, 1), 280.0), np.full((1, 1), 900.0), np.zeros((SERVERS, 1, 1))
    dense_mean, dense = 280.0, np.concatenate([[900.0], np.zeros(SERVERS)])
    for _ in range(30):
        origins = sorted(rng.choice(SERVERS, size=rng.integers(1, SERVERS + 1), replace=False).tolist())
        noisy = shares[origins] * PEOPLE + rng.normal(0.0, 6.0, len(origins))
        cross, dense[1:] = cross * (1.0 - turnover), dense[1:] * (1.0 - turnover)
        var, dense[0] = var + 4.0, dense[0] + 4.0
        mean, var, cross = fuse_persistent(mean, var, cross, records_of(origins, noisy, shares, partition))
        dense_mean, dense = dense_step(dense_mean, dense, deviations, shares, origins, noisy)
        assert_allclose(mean[0, 0], dense_mean, rtol=1e-9)
        assert_allclose(np.concatenate([var[0], cross[:, 0, 0]]), dense, rtol=1e-7, atol=1e-7)
    if partition:
        assert abs(cross.sum()) < 1e-6  # the deviations of a partition sum to 0


@pytest.mark.parametrize("partition", [True, False], ids=["partition", "overlapping"])
def test_first_records(partition: bool) -> None:
    """Where nothing is known, the records alone decide; with a partition of which all were heard, the noise alone."""
    shares = np.full(SERVERS, 1.0 / SERVERS)
    noisy = np.array([50.0, 70.0, 61.0, 58.0, 55.0])
    everybody = list(range(SERVERS))
    none = np.full((1, 1), np.inf), np.zeros((SERVERS, 1, 1))
    mean, var, cross = fuse_persistent(np.zeros((1, 1)), *none, records_of(everybody, noisy, shares, partition))
    large = np.full((1, 1), 1e9), np.zeros((SERVERS, 1, 1))
    assert_allclose(
        np.concatenate([mean[0], var[0], cross[:, 0, 0]]),
        np.concatenate([part.ravel() for part in fuse_persistent(
            np.zeros((1, 1)), *large, records_of(everybody, noisy, shares, partition)
        )]),
        rtol=1e-4, atol=1e-4,
    )  # fmt: skip
    if partition:
        assert var[0, 0] < 1.2 * NOISE.sum()
        assert mean[0, 0] == pytest.approx(noisy.sum(), abs=3.0)


def test_fresh_deviations_of_overlapping_servers() -> None:
    """With nothing in common, the update is the usual one."""
    shares, origins = np.array([0.9, 0.5, 0.3, 0.2, 0.05]), [0, 2]
    noisy = np.array([250.0, 99.0])
    zero = np.zeros((SERVERS, 1, 1))
    mean, var, _ = fuse_persistent(
        np.full((1, 1), 280.0), np.full((1, 1), 50.0), zero, records_of(origins, noisy, shares, False)
    )
    share = shares[origins]
    variance = NOISE[origins] + PEOPLE * share * (1.0 - share)
    info = 1.0 / 50.0 + (share * share / variance).sum()
    assert_allclose(var, 1.0 / info)
    assert_allclose(mean, (280.0 / 50.0 + (share * noisy / variance).sum()) / info)


@pytest.mark.parametrize("origins", [[2], [0, 3], [0, 1, 2, 3, 4]], ids=str)
def test_fresh_deviations_of_a_partition(origins: list[int]) -> None:
    """By the inverse of the covariance of what was measured; records that were taken for independent say less."""
    shares = np.array([0.3, 0.25, 0.2, 0.15, 0.1])
    noisy = np.array([93.0, 70.0, 61.0, 42.0, 33.0])[origins]
    y, info = partitioned_information(records_of(origins, noisy, shares, True))
    measured = np.diag(NOISE[origins]) + covariance_of(shares, True)[np.ix_(origins, origins)]
    weights = np.linalg.solve(measured, shares[origins])
    assert_allclose(info[0, 0], weights @ shares[origins])
    assert_allclose(y[0, 0], weights @ noisy)


def test_shares_with_six_decimals_are_a_partition() -> None:
    """Thirty equal parts, rounded down, sum to 0.99999: a plan would write a network that loses what it has planned."""
    assert are_partitioned(np.full((30, 1), 0.033333)).all()
    assert not are_partitioned(np.full((30, 1), 0.0332)).any()


@pytest.mark.parametrize("partition", [True, False], ids=["partition", "overlapping"])
def test_the_part_that_the_next_records_repeat(partition: bool) -> None:
    """Filters that learn would take a deviation that stays for a level that has moved, again with every record."""
    shares = np.array([0.3, 0.25, 0.2, 0.15, 0.1]) if partition else np.array([0.9, 0.5, 0.3, 0.2, 0.05])
    origins, var, cross = [1, 3], np.full((1, 1), 40.0), np.zeros((SERVERS, 1, 1))
    records = records_of(origins, np.zeros(2), shares, partition)
    gain = persistent_gain(var, cross, records)
    weights = gain.weights[:, 0, 0]
    own = np.diag(covariance_of(shares, partition))[origins] if not partition else PEOPLE * shares[origins]
    innovation_cov = covariance_of(shares, partition)[np.ix_(origins, origins)] + np.diag(NOISE[origins])
    innovation_cov += 40.0 * np.outer(shares[origins], shares[origins])
    expected = (np.square(weights) * own).sum() / (weights @ innovation_cov @ weights)
    heard = 1.5 * shares[origins].sum()
    expected *= 1.0 - heard if partition else 1.0
    assert_allclose(repeated_part(var, gain, records, 1.5)[0, 0], expected, rtol=1e-9)
    assert 0.1 < expected < 1.0
    if partition:  # everybody is heard until the next record of a server: deviations cancel
        assert repeated_part(var, gain, records, 2.5)[0, 0] == 0.0
