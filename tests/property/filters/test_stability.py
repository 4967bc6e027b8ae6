"""The filters stay finite, positive and bounded: for long, for any scales, on any graph within the bound."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcrowd.filters import (
    ProcessModel,
    default_gain,
    fuse,
    fuse_matrix,
    observation_info,
    predict,
    predict_matrix,
    update,
    update_matrix,
)
from examples_support import examples

STEPS = 30_000


def scaled_infos(rng: np.random.Generator, servers: int, d: int, slots: int) -> np.ndarray:
    """Information matrices of a server for each kind of trouble: (slots, servers, d, d)."""
    info = np.zeros((slots, servers, d, d))
    own = np.arange(d)
    info[:, 0, own, own] = 12.0  # every slot as exact as a count can be
    info[:, 1, own, own] = 1e-9  # next to nothing
    info[:, 2, own, own] = 10.0 ** rng.uniform(-9, 3, (slots, d))  # all scales at once
    info[:, 3] = 10.0 ** rng.uniform(-6, 3, (slots, 1, 1))  # one sum of all regions: rank one
    seen = rng.random((slots, d)) < 0.1  # rarely anything, and never the last region
    info[:, 4, own[:-1], own[:-1]] = np.where(seen, 12.0, 0.0)[:, :-1]
    return info


@pytest.mark.slow
def test_covariances_stay_symmetric_positive_definite_for_30_000_slots() -> None:
    """Rounding must not add up to a covariance that cannot be factorised: a live server runs for years.

    An asymmetric A moves people between regions whose variances span twelve orders of magnitude.
    """
    rng = np.random.default_rng(0)
    servers, d, cycle = 5, 4, 128
    transition = 0.7 * np.eye(d) + 0.3 * rng.dirichlet(np.full(d, 0.3), d).T
    model = ProcessModel.of(transition, [1e6, 1e-6, 1.0, 0.0])
    infos = scaled_infos(rng, servers, d, cycle)
    data = rng.normal(0, 100, (cycle, servers, d))
    vecs = np.einsum("tnkl,tnl->tnk", infos, data)
    mean, cov = np.zeros((servers, d)), np.tile(np.eye(d), (servers, 1, 1))
    known = np.ones(servers, dtype=bool)
    for step in range(STEPS):
        mean, cov = predict_matrix(mean, cov, model)
        prior_cov = cov
        mean, cov, known = update_matrix(mean, cov, known, vecs[step % cycle], infos[step % cycle])
        if step % 97 == 0 or step > STEPS - 20:
            for each in (prior_cov, cov):
                diagonal = np.sqrt(np.diagonal(each, axis1=1, axis2=2))
                assert (diagonal > 0).all()
                correlation = each / (diagonal[:, :, None] * diagonal[:, None, :])
                np.testing.assert_allclose(correlation, correlation.swapaxes(1, 2), atol=1e-14)
                assert np.linalg.eigvalsh(correlation).min() > 0
                np.linalg.cholesky(each)
    assert np.isfinite(mean).all()
    assert abs(mean).max() < 1e6


@pytest.mark.slow
def test_variances_stay_positive_for_30_000_slots() -> None:
    """The diagonal form: from exact to useless observations, with and without process noise."""
    rng = np.random.default_rng(1)
    d, cycle = 6, 128
    model = ProcessModel.of([1.0, 0.9, -0.9, 1.0, 1.0, 0.0], [0.0, 1e-9, 1e9, 1.0, 1e6, 0.0])
    info = 10.0 ** rng.uniform(-12, 6, (cycle, 3, d)) * (rng.random((cycle, 3, d)) < 0.7)
    vec = info * rng.normal(0, 100, (cycle, 3, d))
    mean, var = np.zeros((3, d)), np.full((3, d), np.inf)
    smallest = np.inf
    for step in range(STEPS):
        mean, var = predict(mean, var, model)
        mean, var = update(mean, var, vec[step % cycle], info[step % cycle])
        smallest = min(smallest, var[:, :5].min())
    assert smallest > 0
    assert (var[:, 5] >= 0).all()  # A = 0 and Q = 0: this region is known to be empty
    assert np.isfinite(var).all()
    assert abs(mean).max() < 1e3


def random_graph(rng: np.random.Generator, servers: int) -> np.ndarray:
    """A symmetric adjacency matrix: a ring, so that nobody is isolated, and random links."""
    links = np.roll(np.eye(servers, dtype=bool), 1, axis=0)
    links = links | (rng.random((servers, servers)) < rng.random())
    links = links | links.T
    np.fill_diagonal(links, False)
    return links


@pytest.mark.slow
@given(
    seed=st.integers(0, 2**32 - 1),
    servers=st.integers(2, 9),
    part=st.floats(0, 1),
    transition=st.floats(-1, 1),
    process=st.floats(-6, 9),
    exact=st.floats(0, 9),
    dynamic=st.booleans(),
)
@settings(max_examples=examples(50))
def test_within_the_bound_differences_never_grow(
    seed: int, servers: int, part: float, transition: float, process: float, exact: float, dynamic: bool
) -> None:
    """beta <= 1/(2 max_degree) and |A| <= 1: two networks that hear the same data never move apart, and stay bounded.

    Servers sample at random, shares differ, the graph may change in each slot: the worst case of the proof.
    """
    rng = np.random.default_rng(seed)
    share = rng.uniform(0.05, 1, (servers, 1))
    model = ProcessModel.of(transition, [10.0**process] * 2)  # a column a network: same data, another start
    mean, var = rng.uniform(-100, 100, (servers, 2)), np.repeat(10.0 ** rng.uniform(-3, 9, (servers, 1)), 2, axis=1)
    links = random_graph(rng, servers)
    for _ in range(60):
        if dynamic:
            links = random_graph(rng, servers)
        beta = part * 0.5 / links.sum(axis=1).max()
        speaks = rng.random((servers, 1)) < 0.7
        heard = (links | np.eye(servers, dtype=bool)).astype(float)
        obs_var = np.repeat(10.0 ** (process - rng.uniform(-1, exact, (servers, 1))), 2, axis=1)
        noisy = share * np.repeat(rng.uniform(-100, 100, (servers, 1)), 2, axis=1)
        info = observation_info(noisy, share, obs_var, speaks)
        apart, reach = abs(mean[:, 0] - mean[:, 1]).max(), abs(mean).max()
        prior, prior_var = predict(mean, var, model)
        count = np.repeat(heard @ speaks.astype(float), 2, axis=1)
        mean, var = fuse(prior, prior_var, heard @ info[0], heard @ info[1], heard @ (prior * speaks), count, beta)
        assert abs(mean[:, 0] - mean[:, 1]).max() <= apart * (1 + 1e-9) + 1e-9
        assert abs(mean).max() <= reach + 100 + 1e-6


@pytest.mark.parametrize("seed", range(8))
def test_matrix_form_within_the_bound_stays_bounded(seed: int) -> None:
    """The same for full covariances (A = 1): estimates stay near the data, also with correlated changes."""
    rng = np.random.default_rng(seed)
    servers, d = int(rng.integers(2, 7)), 3
    links = random_graph(rng, servers)
    heard = (links | np.eye(servers, dtype=bool)).astype(float)
    beta = 0.5 / links.sum(axis=1).max()
    root = rng.normal(size=(d, d)) * 10.0 ** rng.uniform(-2, 3, d)
    model = ProcessModel.of(1.0, root @ root.T)
    mean, cov = rng.uniform(-100, 100, (servers, d)), np.tile(np.eye(d), (servers, 1, 1))
    known = np.ones(servers, dtype=bool)
    for _ in range(300):
        speaks = rng.random(servers) < 0.8
        info = np.zeros((servers, d, d))
        info[:, np.arange(d), np.arange(d)] = 10.0 ** rng.uniform(-4, 1, (servers, d)) * speaks[:, None]
        vec = np.einsum("nkl,nl->nk", info, rng.uniform(-100, 100, (servers, d)))
        prior, prior_cov = predict_matrix(mean, cov, model)
        mean, cov, known = fuse_matrix(
            prior,
            prior_cov,
            known,
            heard @ vec,
            np.einsum("ij,jkl->ikl", heard, info),
            heard @ (prior * speaks[:, None]),
            (heard @ speaks)[:, None],
            beta,
        )
    assert abs(mean).max() < 1e4


def largest_estimate(transition: np.ndarray, process_var: np.ndarray, info: np.ndarray, slots: int = 400) -> float:
    """Two camps of six servers that hear each other only, start apart, and see nothing but zeros."""
    half, d = 6, len(transition)
    model = ProcessModel.of(transition, process_var)
    mean = np.concatenate([np.ones((half, d)), -np.ones((half, d))])
    cov, known = np.tile(np.eye(d), (2 * half, 1, 1)), np.ones(2 * half, dtype=bool)
    links = np.kron([[0, 1], [1, 0]], np.ones((half, half))) + np.eye(2 * half)
    heard = links.sum(axis=1)[:, None]
    infos = np.tile(info, (2 * half, 1, 1))
    for _ in range(slots):
        prior, prior_cov = predict_matrix(mean, cov, model)
        mean, cov, known = fuse_matrix(
            prior, prior_cov, known, np.zeros_like(mean), infos, links @ prior, heard, default_gain(half)
        )
    return float(np.abs(mean).max())


def test_the_matrix_form_is_stable_where_the_printed_gain_diverges() -> None:
    """A full A and strongly correlated noise of the regions: C = beta P/(|P| + 1) reaches 1e43 here."""
    transition = np.array([[0.353, 0.226], [0.647, 0.774]])
    process_var = np.array([[307.0, 2012.0], [2012.0, 13654.0]])
    assert largest_estimate(transition, process_var, np.diag([5.5e-2, 3.9e-6])) < 2.0


@pytest.mark.slow
@settings(max_examples=examples(25))
@given(st.integers(0, 10_000))
def test_the_matrix_form_is_stable_for_any_markov_matrix(seed: int) -> None:
    """The step may depend on the number of neighbours only: nobody can check a condition on A and Q by hand."""
    rng = np.random.default_rng(seed)
    d = int(rng.integers(2, 4))
    transition = rng.dirichlet(np.ones(d), size=d).T
    root = rng.normal(size=(d, d)) * 10 ** rng.uniform(-1, 3, size=(d, 1))
    info = np.diag(10.0 ** rng.uniform(-8, 0, size=d))
    assert largest_estimate(transition, root @ root.T + 1e-6 * np.eye(d), info, slots=150) < 1e4
