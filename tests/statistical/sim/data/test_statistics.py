"""Draws have the distributions they claim. Fixed seeds; thresholds of five standard errors or more."""

from __future__ import annotations

import numpy as np
import pytest

from dpcrowd.sim.data import CheckIns, load, observe
from dpcrowd.sim.data.shares import draw_shares


def near(sample: np.ndarray, mean: float, variance: float) -> None:
    """Mean and variance of a sample, each within five standard errors (normal kurtosis)."""
    n = sample.size
    assert abs(sample.mean() - mean) < 5 * np.sqrt(variance / n)
    assert abs(sample.var() - variance) < 5 * variance * np.sqrt(2 / n)


def test_linear_moves_with_variance_q() -> None:
    """Without this, Q could be taken as a standard deviation, or A differ from 1."""
    truth = load("linear", slots=20_000).truth(np.random.default_rng(1))[:, 0]
    near(np.diff(truth)[truth[:-1] > 2000].astype(float), 0.0, 1e5 + 1 / 6)


def test_multi_linear_follows_its_matrix() -> None:
    """Without this, the truth could follow A transposed, and the matrix form of the filter a wrong model."""
    data = load("multi-linear", slots=20_000)
    truth = data.truth(np.random.default_rng(2)).astype(float)
    high = (truth[:-1] > 3000).all(axis=1)  # far from the reflection
    assert high.sum() > 1000
    errors = (truth[1:] - truth[:-1] @ data.model.matrix_transition.T)[high]
    rounding = (1 + np.square(data.model.matrix_transition).sum(axis=1)) / 12
    for k in range(6):
        near(errors[:, k], 0.0, data.change_var[k] + rounding[k])


def test_papers_noise_has_variance_h2q() -> None:
    """Without this, the observation noise could lack the factor H^2."""
    truth = np.full((20_000, 1), 50_000)
    counts = observe("paper", truth, np.array([0.1, 0.9]), np.array([1e5]), np.random.default_rng(3))
    for i, share in enumerate((0.1, 0.9)):
        near(counts[:, i, 0].astype(float), share * 50_000, share**2 * 1e5 + 1 / 12)


@pytest.mark.parametrize("shares", [[0.2, 0.7], [0.2, 0.3, 0.5]])
def test_binomial_moments(shares: list[float]) -> None:
    """Without this, the split of a partition could favour early servers, or share H be used as odds."""
    truth = np.full((20_000, 1), 400)
    counts = observe("binomial", truth, np.array(shares), np.ones(1), np.random.default_rng(4))[:, :, 0].astype(float)
    for i, share in enumerate(shares):
        near(counts[:, i], 400 * share, 400 * share * (1 - share))
    correlation = np.corrcoef(counts[:, 0], counts[:, 1])[0, 1]
    a, b = shares[:2]
    partition = sum(shares) == pytest.approx(1)
    expected = -np.sqrt(a * b / ((1 - a) * (1 - b))) if partition else 0.0
    assert abs(correlation - expected) < 5 / np.sqrt(len(counts))


def test_shares_are_uniform() -> None:
    """Without this, shares could come near 0, where x/H has no finite variance."""
    for kind in ("uniform", "per-slot"):
        shares = draw_shares(kind, 5000, 4, np.random.default_rng(5)).ravel()
        near(shares, 0.525, 0.95**2 / 12)


@pytest.mark.parametrize("users", ["pinned", "roaming"])
def test_servers_get_their_share_of_users(users: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Without this, users would not be drawn with probability = share."""
    path = tmp_path_factory.mktemp("data") / "c.csv"
    path.write_text("user,time,region\n" + "".join(f"{u},{u % 2 * 86_400},A\n" for u in range(20_000)))
    data = load(path)
    assert isinstance(data, CheckIns)
    shares = np.array([0.1, 0.2, 0.7])
    got = data.split(shares, users, np.random.default_rng(6)).sum(axis=(0, 2)) / 20_000
    assert (np.abs(got - shares) < 5 * np.sqrt(shares * (1 - shares) / 20_000)).all()
    per_slot = np.array([[0.1, 0.9], [0.8, 0.2]])
    if users == "roaming":
        split = data.split(per_slot, users, np.random.default_rng(7))[:, :, 0] / 10_000
        assert np.abs(split - per_slot).max() < 5 * np.sqrt(0.25 / 10_000)
