"""The matrix filter against dense linear algebra with explicit inverses, filterpy and one big joint Gaussian."""

from __future__ import annotations

import numpy as np
import pytest
from filterpy.kalman import KalmanFilter

from dpcrowd.filters import (
    ProcessModel,
    fuse,
    fuse_matrix,
    group_info,
    observation_info,
    predict,
    predict_matrix,
    update_matrix,
)

Array = np.ndarray


def random_cov(rng: np.random.Generator, d: int, low: float = -2, high: float = 3) -> Array:
    """A covariance with eigenvalues of different sizes in no special direction."""
    basis = np.linalg.qr(rng.normal(size=(d, d)))[0]
    return basis @ np.diag(10.0 ** rng.uniform(low, high, d)) @ basis.T


def random_groups(rng: np.random.Generator, servers: int, d: int) -> tuple[Array, Array]:
    """members (N, d, d) of random groups with some regions left out, and which pivots lead a group."""
    members = np.zeros((servers, d, d))
    for n in range(servers):
        of = rng.integers(0, d, d)
        for g in set(of.tolist()):
            group = np.flatnonzero((of == g) & (rng.random(d) < 0.85))
            if group.size:
                members[n, group[0], group] = 1.0
    return members, members.any(axis=2)


def rows_of(members: Array, share: float, obs_var: Array) -> tuple[Array, Array]:
    """The explicit measurement matrix (a row H 1_g a group) and the covariance of its noise."""
    leads = members.any(axis=1)
    return share * members[leads], np.diag(obs_var[leads])


def test_group_info_is_the_explicit_measurement_matrix() -> None:
    """z_g = H sum r_k + noise is one scalar row: information H_m^T R^-1 H_m and H_m^T R^-1 z."""
    rng = np.random.default_rng(0)
    servers, d = 12, 5
    members, leads = random_groups(rng, servers, d)
    share = rng.uniform(0.1, 1, (servers, 1))
    obs_var = np.where(leads, rng.uniform(0.5, 90, (servers, d)), np.inf)
    noisy = rng.normal(40, 9, (servers, d))
    vec, mat = group_info(noisy, share, obs_var, members)
    for n in range(servers):
        design, noise = rows_of(members[n], share[n, 0], obs_var[n])
        weigh = np.linalg.inv(noise)
        np.testing.assert_allclose(mat[n], design.T @ weigh @ design, rtol=1e-12, atol=1e-15)
        np.testing.assert_allclose(vec[n], design.T @ weigh @ noisy[n, leads[n]], rtol=1e-12, atol=1e-15)
        assert (mat[n] == mat[n].T).all()


def test_groups_of_one_are_plain_observations() -> None:
    """Grouping nothing must give the information of the ungrouped path."""
    rng = np.random.default_rng(1)
    share, noisy, obs_var = rng.uniform(0.1, 1, (4, 1)), rng.normal(9, 3, (4, 3)), rng.uniform(1, 9, (4, 3))
    vec, mat = group_info(noisy, share, obs_var, np.tile(np.eye(3), (4, 1, 1)))
    plain_vec, plain_mat = observation_info(noisy, share, obs_var, np.ones((4, 3), dtype=bool))
    np.testing.assert_allclose(vec, plain_vec, rtol=1e-14)
    np.testing.assert_allclose(mat, np.einsum("nk,kl->nkl", plain_mat, np.eye(3)), rtol=1e-14)


def test_update_is_the_dense_inverse_the_moment_form_and_least_squares() -> None:
    """Three other ways to the posterior after grouped measurements of two servers."""
    rng = np.random.default_rng(2)
    servers, d = 10, 4
    prior, prior_cov = rng.normal(100, 30, (servers, d)), np.stack([random_cov(rng, d) for _ in range(servers)])
    vec, mat = np.zeros((servers, d)), np.zeros((servers, d, d))
    designs: list[list[Array]] = [[] for _ in range(servers)]
    noises: list[list[float]] = [[] for _ in range(servers)]
    data: list[list[float]] = [[] for _ in range(servers)]
    for _ in range(2):
        members, leads = random_groups(rng, servers, d)
        share = rng.uniform(0.2, 1, (servers, 1))
        obs_var = np.where(leads, rng.uniform(0.5, 50, (servers, d)), np.inf)
        noisy = rng.normal(60, 20, (servers, d))
        more_vec, more_mat = group_info(noisy, share, obs_var, members)
        vec, mat = vec + more_vec, mat + more_mat
        for n in range(servers):
            design, noise = rows_of(members[n], share[n, 0], obs_var[n])
            designs[n] += list(design)
            noises[n] += np.diag(noise).tolist()
            data[n] += noisy[n, leads[n]].tolist()
    mean, cov, known = update_matrix(prior, prior_cov, np.ones(servers, dtype=bool), vec, mat)
    assert known.all()
    for n in range(servers):
        inverse = np.linalg.inv(np.linalg.inv(prior_cov[n]) + mat[n])
        np.testing.assert_allclose(cov[n], inverse, rtol=1e-8, atol=1e-10)
        design, noise, z = np.array(designs[n]), np.diag(noises[n]), np.array(data[n])
        gain = prior_cov[n] @ design.T @ np.linalg.inv(design @ prior_cov[n] @ design.T + noise)
        np.testing.assert_allclose(cov[n], (np.eye(d) - gain @ design) @ prior_cov[n], rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(mean[n], prior[n] + gain @ (z - design @ prior[n]), rtol=1e-8)
        whiten = np.linalg.inv(np.linalg.cholesky(prior_cov[n]))
        stacked = np.vstack([whiten, design / np.sqrt(np.diag(noise))[:, None]])
        target = np.concatenate([whiten @ prior[n], z / np.sqrt(np.diag(noise))])
        np.testing.assert_allclose(mean[n], np.linalg.lstsq(stacked, target, rcond=None)[0], rtol=1e-8)


def test_one_server_is_filterpys_kalman_filter_with_full_a_and_q() -> None:
    """People who move between regions and correlated changes: the matrix form is the textbook filter."""
    rng = np.random.default_rng(3)
    d, share = 4, 0.4
    transition, process_cov = 0.8 * np.eye(d) + 0.2 * rng.dirichlet(np.ones(d), d).T, random_cov(rng, d)
    model = ProcessModel.of(transition, process_cov)
    book = KalmanFilter(dim_x=d, dim_z=d)
    book.x, book.P = np.full((d, 1), 50.0), random_cov(rng, d)
    book.F, book.Q, book.H = transition, process_cov, share * np.eye(d)
    mean, cov = book.x.T.copy(), book.P[None].copy()
    for slot in range(100):
        book.predict()
        mean, cov = predict_matrix(mean, cov, model)
        noisy, obs_var = rng.normal(20, 5, (1, d)), rng.uniform(0.5, 40, (1, d))
        vec, mat = group_info(noisy, np.array([[share]]), obs_var, np.eye(d)[None])
        if slot % 4 == 1:
            vec, mat = 0 * vec, 0 * mat
        else:
            book.update(noisy.T, R=np.diag(obs_var[0]))
        mean, cov, _ = fuse_matrix(mean, cov, np.array([True]), vec, mat, mean, np.ones((1, 1)), 0.3)
        np.testing.assert_allclose(mean[0], book.x[:, 0], rtol=1e-8)
        np.testing.assert_allclose(cov[0], book.P, rtol=1e-7, atol=1e-9)


def test_filter_over_slots_is_one_joint_gaussian() -> None:
    """r(0..T) and all measurements are one Gaussian vector; conditioning it needs no recursion at all."""
    rng = np.random.default_rng(4)
    d, slots, share = 3, 8, 0.5
    transition, process_cov = rng.normal(0, 0.6, (d, d)), random_cov(rng, d, -1, 2)
    model = ProcessModel.of(transition, process_cov)
    start, start_cov = rng.normal(10, 5, d), random_cov(rng, d, 0, 2)
    # r(t) = A^t r(0) + sum_s A^(t-s) w(s): a matrix from (r(0), w(1), ..) to (r(0), r(1), ..).
    powers = [np.linalg.matrix_power(transition, k) for k in range(slots + 1)]
    build = np.block(
        [[powers[t - s] if s <= t else np.zeros((d, d)) for s in range(slots + 1)] for t in range(slots + 1)]
    )
    sources = np.zeros(((slots + 1) * d,) * 2)
    sources[:d, :d] = start_cov
    for t in range(1, slots + 1):
        sources[t * d : (t + 1) * d, t * d : (t + 1) * d] = process_cov
    joint_cov = build @ sources @ build.T
    joint_mean = build[:, :d] @ start
    mean, cov, known = start[None], start_cov[None], np.array([True])
    design, data, noise = np.zeros((0, (slots + 1) * d)), np.zeros(0), np.zeros(0)
    for t in range(1, slots + 1):
        members, leads = random_groups(rng, 1, d)
        obs_var = np.where(leads, rng.uniform(0.5, 20, (1, d)), np.inf)
        noisy = rng.normal(5, 5, (1, d))
        mean, cov = predict_matrix(mean, cov, model)
        mean, cov, known = update_matrix(mean, cov, known, *group_info(noisy, np.array([[share]]), obs_var, members))
        rows = np.zeros((int(leads.sum()), (slots + 1) * d))
        rows[:, t * d : (t + 1) * d] = share * members[0][leads[0]]
        design, data = np.vstack([design, rows]), np.append(data, noisy[leads])
        noise = np.append(noise, obs_var[leads])
        gain = joint_cov @ design.T @ np.linalg.inv(design @ joint_cov @ design.T + np.diag(noise))
        here = slice(t * d, (t + 1) * d)
        expected = joint_mean + gain @ (data - design @ joint_mean)
        np.testing.assert_allclose(mean[0], expected[here], rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(cov[0], (joint_cov - gain @ design @ joint_cov)[here, here], rtol=1e-7, atol=1e-8)


def test_consensus_is_the_dense_formula() -> None:
    """C = beta P/(|P|_F + 1) times sum_j (prior_j - prior_i), with the Frobenius norm."""
    rng = np.random.default_rng(5)
    servers, d, beta = 6, 3, 0.1
    prior, prior_cov = rng.normal(10, 4, (servers, d)), np.stack([random_cov(rng, d) for _ in range(servers)])
    hears = rng.random((servers, servers)) < 0.6
    np.fill_diagonal(hears, True)
    nothing = np.zeros((servers, d)), np.zeros((servers, d, d))
    mean, cov, _ = fuse_matrix(
        prior, prior_cov, np.ones(servers, dtype=bool), *nothing, hears @ prior, hears.sum(1)[:, None] + 0.0, beta
    )
    for i in range(servers):
        pull = sum((prior[j] - prior[i] for j in range(servers) if hears[i, j]), np.zeros(d))
        size = np.sqrt(np.sum(prior_cov[i] ** 2))
        np.testing.assert_allclose(mean[i], prior[i] + beta * prior_cov[i] @ pull / (size + 1), rtol=1e-10)
        np.testing.assert_allclose(cov[i], prior_cov[i], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("transition", [1.0, 0.9])
def test_for_one_region_both_forms_are_the_same_filter(transition: float) -> None:
    """For one region only the consensus gain may differ, which has M for P in the matrix form."""
    rng = np.random.default_rng(6)
    model, beta, servers = ProcessModel.of(transition, [9.0]), 0.1, 5
    mean, var = rng.normal(20, 5, (servers, 1)), rng.uniform(1, 50, (servers, 1))
    full, cov, known = mean, var[..., None], np.ones(servers, dtype=bool)
    hears = np.ones((servers, servers)) - np.diag(np.ones(servers - 1), 1)
    for _ in range(20):
        vec, mat = rng.normal(1, 1, (servers, 1)), rng.uniform(0, 0.2, (servers, 1))
        mean, var = predict(mean, var, model)
        full, cov = predict_matrix(full, cov, model)
        count = hears.sum(1)[:, None]
        full, cov, known = fuse_matrix(full, cov, known, vec, mat[..., None], hears @ full, count, beta)
        prior, prior_var = mean, var
        mean, var = fuse(prior, prior_var, vec, mat, hears @ prior, count, 0.0)
        mean = mean + beta * var / (prior_var + 1.0) * (hears @ prior - count * prior)
        np.testing.assert_allclose(full, mean, rtol=1e-9)
        np.testing.assert_allclose(cov[..., 0], var, rtol=1e-9)
