"""The smoother against the joint Gaussian of all slots: one dense system of equations instead of a recursion."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcrowd.filters import ProcessModel, predict, predict_matrix, update, update_matrix
from dpcrowd.filters.smoothing import smooth, smooth_matrix
from examples_support import examples
from relay_support import CentralFilter
from relay_worlds import draw_records, networks, play_records

SLOTS = 9


def joint(a: Any, q: list[Any], info_vec: Any, info_mat: Any) -> tuple[Any, Any]:
    """Means (T, d) and covariances (T, d, d) of r(0) .. r(T-1), of which nothing was known before.

    q[t] is the covariance of the step to slot t; information (T, d) and (T, d, d) by slot.
    """
    slots, d = info_vec.shape
    precision, vector = np.zeros((slots * d, slots * d)), info_vec.ravel()
    for t in range(slots):
        here = slice(t * d, (t + 1) * d)
        precision[here, here] += info_mat[t]
        if t:
            before, weight = slice((t - 1) * d, t * d), np.linalg.inv(q[t])
            precision[here, here] += weight
            precision[before, before] += a.T @ weight @ a
            precision[here, before] -= weight @ a
            precision[before, here] -= a.T @ weight
    cov = np.linalg.inv(precision)
    blocks = np.array([cov[t * d : (t + 1) * d, t * d : (t + 1) * d] for t in range(slots)])
    return (cov @ vector).reshape(slots, d), blocks


def draw_info(rng: np.random.Generator, servers: int, d: int, quiet: int) -> tuple[Any, Any]:
    """Information of (T, N, d), none in the first `quiet` slots and in a third of the others."""
    info = rng.uniform(0.001, 0.1, (SLOTS, servers, d)) * (rng.random((SLOTS, servers, 1)) < 2 / 3)
    info[:quiet] = 0.0
    info[quiet] = 0.05
    return info * rng.uniform(50, 500, info.shape), info


@pytest.mark.slow
@settings(max_examples=60)
@given(st.integers(0, 10**6), st.sampled_from([1.0, 0.9, -0.5, 1.1]), st.integers(0, 3), st.booleans())
def test_diagonal_smoother(seed: int, a: float, quiet: int, doubted: bool) -> None:
    """A gain with the wrong slot's variance would still look smooth; the joint Gaussian tells."""
    rng = np.random.default_rng(seed)
    servers, d = 3, 2
    model = ProcessModel.of(a, rng.uniform(1.0, 60.0, d))
    info_vec, info = draw_info(rng, servers, d, quiet)
    doubt = np.where(doubted & (rng.random((SLOTS, servers)) < 0.3), rng.uniform(4, 50, (SLOTS, servers)), 1.0)
    means, variances, steps = np.zeros(info.shape), np.full(info.shape, np.inf), np.zeros(info.shape)
    mean, var = means[0], variances[0]
    for t in range(SLOTS):
        prior, prior_var = predict(mean, var, model)
        prior_var = prior_var * doubt[t][:, None]
        steps[t] = np.where(np.isfinite(var), prior_var - a * a * np.where(np.isfinite(var), var, 0), model.noise_var)
        mean, var = means[t], variances[t] = update(prior, prior_var, info_vec[t], info[t])
    smoothed, smoothed_var = smooth(means, variances, doubt, model)
    for n in range(servers):
        q = [np.diag(steps[t, n]) for t in range(SLOTS)]
        matrices = np.array([np.diag(row) for row in info[:, n]])
        expected, expected_cov = joint(a * np.eye(d), q, info_vec[:, n], matrices)
        assert smoothed[:, n] == pytest.approx(expected, rel=1e-9)
        assert smoothed_var[:, n] == pytest.approx(np.einsum("tkk->tk", expected_cov), rel=1e-9)
    assert (smoothed[-1] == means[-1]).all()
    assert (smoothed_var <= variances * (1 + 1e-12)).all()


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.integers(0, 3), st.booleans())
@pytest.mark.slow
def test_matrix_smoother(seed: int, quiet: int, doubted: bool) -> None:
    """The same with people who move between regions, so that a region's past is told by another one's future."""
    rng = np.random.default_rng(seed)
    servers, d = 2, 3
    root = rng.normal(0, 4, (d, d))
    model = ProcessModel.of(0.6 * np.eye(d) + 0.4 * rng.dirichlet(np.ones(d), d).T, root @ root.T + np.eye(d))
    a = model.matrix_transition
    info_vec, info = draw_info(rng, servers, d, quiet)
    matrices = np.array([[np.diag(row) for row in rows] for rows in info])
    doubt = np.where(doubted & (rng.random((SLOTS, servers)) < 0.3), rng.uniform(4, 50, (SLOTS, servers)), 1.0)
    means, covs = np.zeros(info.shape), np.tile(np.eye(d), (SLOTS, servers, 1, 1))
    known, steps = np.zeros((SLOTS, servers), dtype=np.bool_), np.tile(model.matrix_var, (SLOTS, servers, 1, 1))
    mean, cov, there = means[0], covs[0], known[0]
    for t in range(SLOTS):
        prior, prior_cov = predict_matrix(mean, cov, model)
        prior_cov = np.where(there[:, None, None], prior_cov * doubt[t][:, None, None], cov)
        steps[t] = np.where(there[:, None, None], prior_cov - a @ cov @ a.T, model.matrix_var)
        mean, cov, there = means[t], covs[t], known[t] = update_matrix(
            prior, prior_cov, there, info_vec[t], matrices[t]
        )
    smoothed, smoothed_cov, smoothed_known = smooth_matrix(means, covs, known, doubt, model)
    assert smoothed_known.all()
    for n in range(servers):
        expected, expected_cov = joint(a, list(steps[:, n]), info_vec[:, n], matrices[:, n])
        assert smoothed[:, n] == pytest.approx(expected, rel=1e-8)
        assert smoothed_cov[:, n] == pytest.approx(expected_cov, rel=1e-7, abs=1e-9 * abs(expected_cov).max())
        assert (np.linalg.eigvalsh(smoothed_cov[:, n]) > 0).all()


def test_a_process_that_forgets_tells_nothing_of_the_past() -> None:
    """With A = 0 a later slot says nothing of one before: dividing by A would invent a number."""
    for transition in (0.0, np.zeros((1, 1))):
        model = ProcessModel.of(transition, [5.0])
        means, variances = np.array([[[0.0]], [[30.0]]]), np.array([[[np.inf]], [[2.0]]])
        if np.ndim(transition) == 0:
            smoothed_var = smooth(means, variances, np.ones((2, 1)), model)[1]
            assert np.isinf(smoothed_var[0]).all()
        else:
            covs, known = np.ones((2, 1, 1, 1)), np.array([[False], [True]])
            assert not smooth_matrix(means, covs, known, np.ones((2, 1)), model)[2][0].any()


@settings(max_examples=examples(15))
@given(networks(), st.integers(0, 10**6))
@pytest.mark.slow
def test_a_server_smooths_what_it_has(network: Any, seed: int) -> None:
    """The last L slots of a server: those of a central filter over its records, smoothed; the last one as released."""
    rng = np.random.default_rng(seed)
    records = draw_records(network, rng)
    arrivals: dict[int, list[tuple[int, int]]] = {}
    for key in records:
        if key[0] != 0 and rng.random() < 0.8:
            arrivals.setdefault(key[1] + int(rng.integers(0, network.lag)), []).append(key)
    releases, sets, server = play_records(network, 0, records, arrivals, 20)
    history = server.smoothed()
    assert history.slots.tolist() == list(range(20 - network.lag, 20))
    posteriors = CentralFilter(network).run(sets[-1], 19)[-network.lag :]
    assert history.estimate[-1] == pytest.approx(releases[-1].estimate, nan_ok=True)
    assert history.variance[-1] == pytest.approx(releases[-1].variance)
    oracle = CentralFilter(network)
    model = ProcessModel.of(oracle.a, oracle.q) if network.model.course is None else network.model
    d = len(oracle.a)
    means = np.array([[np.zeros(d) if p.mean is None else p.mean] for p in posteriors])
    known = np.array([[p.mean is not None] for p in posteriors])
    covs, doubt = np.array([[p.cov] for p in posteriors]), np.array([[p.doubt] for p in posteriors])
    expected, cov, there = smooth_matrix(means, covs, known, doubt, model, 20 - network.lag)
    for t in range(network.lag):
        if there[t, 0]:
            assert history.estimate[t] == pytest.approx(expected[t, 0], rel=1e-7)
            assert history.variance[t] == pytest.approx(np.diag(cov[t, 0]), rel=1e-7)
            assert (history.low[t] < history.high[t]).all()
        else:
            assert np.isnan(history.estimate[t]).all()
