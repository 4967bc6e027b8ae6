"""What a consensus averages away: against networks of filters that are run many times."""

from __future__ import annotations

import numpy as np
import pytest

from dpcrowd.filters import consensus_gain, default_gain, fuse
from dpcrowd.filters.mixed import LinkEffect, follow_mixed, start_mixed
from dpcrowd.network.mixing import mixing_of

RUNS, SLOTS = 1500, 80


def links_of(kind: str, servers: int) -> tuple[np.ndarray, np.ndarray]:
    if kind == "complete":
        return np.triu_indices(servers, 1)
    if kind == "two groups":
        one, other = np.triu_indices(servers // 2, 1)
        half = servers // 2
        return np.concatenate([one, one + half, [half - 1]]), np.concatenate([other, other + half, [half]])
    numbers = np.arange(servers)
    if kind == "star":
        return np.zeros(servers - 1, dtype=np.int64), numbers[1:]
    step = {"ring": (1,), "ring of four": (1, 3)}[kind]
    ends = [(numbers, (numbers + one) % servers) for one in step]
    return np.concatenate([one for one, _ in ends]), np.concatenate([other for _, other in ends])


def run(kind: str, servers: int, speaking: float, q: float, noise: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return by server the mean squared error of the filters, and the variances that they and the memory state."""
    rng = np.random.default_rng(5)
    sources, targets = links_of(kind, servers)
    hears = np.eye(servers)
    hears[sources, targets] = hears[targets, sources] = 1.0
    links = LinkEffect(*mixing_of(servers, sources, targets))
    beta = default_gain(int(hears.sum(axis=1).max()) - 1)
    truth = rng.normal(0.0, np.sqrt(50.0), (1, RUNS))
    mean, var = np.zeros((servers, RUNS)), np.full((servers, RUNS), 50.0)
    mixed = start_mixed(var)
    for _ in range(SLOTS):
        truth = truth + rng.normal(0.0, np.sqrt(q), truth.shape)
        prior, prior_var = mean, var + q
        speaks = (rng.random((servers, 1)) < speaking).astype(float)
        sample = truth + rng.normal(0.0, np.sqrt(noise), prior.shape)
        heard = hears @ speaks * np.ones_like(prior)
        y, info = hears @ (speaks * sample / noise), hears @ (speaks * np.ones_like(prior) / noise)
        before = var
        mean, var = fuse(prior, prior_var, y, info, hears @ (speaks * prior), heard, beta)
        pull = consensus_gain(prior_var, beta) * (heard - speaks)
        mixed = follow_mixed(mixed, before, prior_var, var, np.ones(1), pull, links)
    return np.square(mean - truth).mean(axis=1), var.mean(axis=1), mixed.var.mean(axis=1)


@pytest.mark.parametrize("kind", ["complete", "ring of four", "ring"])
@pytest.mark.parametrize(("speaking", "q", "noise"), [(0.3, 0.01, 4000.0), (1.0, 1.0, 1e4), (0.3, 4.0, 100.0)])
def test_the_variance_is_that_of_estimates_that_are_mixed(kind: str, speaking: float, q: float, noise: float) -> None:
    """The filter's own variance is that of a server that hears its neighbours' samples alone."""
    error, alone, stated = run(kind, 20, speaking, q, noise)
    assert 0.85 * error.mean() < stated.mean() < 1.15 * error.mean()
    assert (stated <= alone + 1e-9).all()


@pytest.mark.parametrize("kind", ["star", "two groups"])
@pytest.mark.parametrize(("speaking", "q", "noise"), [(0.3, 0.01, 4000.0), (1.0, 1.0, 1e4), (0.3, 4.0, 100.0)])
def test_no_server_of_an_uneven_network_is_too_sure(kind: str, speaking: float, q: float, noise: float) -> None:
    """Two groups hardly hear of each other. The centre of a star hears everybody, and the consensus makes it worse: it
    pulls it towards those who know less, which `drift.Pulled` is for; here, it must only gain nothing."""
    error, alone, stated = run(kind, 20, speaking, q, noise)
    first = 1 if kind == "star" else 0
    assert stated[:first] == pytest.approx(alone[:first], rel=0.01)
    assert (stated[first:] > 0.8 * error[first:]).all()
    assert stated.mean() < 1.2 * error.mean()
    assert (stated <= alone + 1e-9).all()


def test_weak_samples_are_averaged_over_the_whole_network() -> None:
    """Without it, intervals of weak samples are twice as wide as they have to be."""
    error, alone, stated = run("ring of four", 20, 0.3, 0.01, 4000.0)
    assert alone.mean() > 1.4 * error.mean()
    assert stated.mean() < 1.2 * error.mean()


def test_nothing_is_gained_where_nobody_is_heard() -> None:
    """A server whose neighbours are down must not believe that it is averaged with them."""
    links = LinkEffect(*mixing_of(20, *links_of("ring", 20)))
    one = np.ones((1, 1))
    links = LinkEffect(*(part[:1] for part in links))
    mixed, var = start_mixed(np.inf * one), np.inf * one
    for _ in range(30):
        prior = var + 1.0
        after = 1.0 / (1.0 / prior + 0.01 * one)
        mixed, var = follow_mixed(mixed, var, prior, after, np.ones(1), 0.0 * one, links), after
    assert mixed.var == pytest.approx(var)
    assert np.isfinite(mixed.var).all()
