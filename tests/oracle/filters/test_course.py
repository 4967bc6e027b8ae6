"""Filter and smoother around an expected course, against the joint Gaussian of all slots, without any recursion."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcrowd.filters import Course, ProcessModel, predict, predict_matrix, update, update_matrix
from dpcrowd.filters.ahead import predict_ahead, predict_ahead_matrix
from dpcrowd.filters.smoothing import smooth, smooth_matrix, smooth_steps
from relay_worlds import draw_course

SLOTS = 8
cases = given(
    st.integers(0, 10**6),
    st.integers(1, 4),
    st.tuples(st.sampled_from([0.0, 0.4, 0.95]), st.booleans()),
    st.integers(-30, 30),
)


def joint(model: ProcessModel, region: int, first: int, info_vec: Any, info_mat: Any) -> tuple[Any, Any]:
    """Mean and covariance of one region's slots first .. first + T - 1, given measurements with this information.

    e(t) is the sum of a^k w(t-k) over all k, so cov(t, s) = sum over u <= min(t, s) of a^(t-u) a^(s-u) q(u). If
    deviations are in proportion to a scale, this holds for deviations divided by it.
    """
    course, slots = model.course, len(info_vec)
    assert course is not None
    a = float(np.broadcast_to(model.transition, (model.regions,))[region])
    past = np.arange(first - 900, first + slots)
    q = np.array([course.noise_var(int(slot))[region] for slot in past])
    times = np.arange(first, first + slots)
    scale = np.ones(len(course.profile)) if course.scale is None else course.scale[:, region]
    before, now = (np.array([scale[course.row(int(slot))] for slot in part]) for part in (past, times))
    lags = times[:, None] - past[None, :]
    loadings = np.where(lags >= 0, a ** np.maximum(lags, 0), 0.0)
    cov = (loadings * q / np.square(before)) @ loadings.T * np.outer(now, now)
    mean = np.array([course.mean(int(slot))[region] for slot in times])
    precision = np.linalg.inv(cov) + np.diag(info_mat)
    posterior_cov = np.linalg.inv(precision)
    return mean + posterior_cov @ (info_vec - info_mat * mean), posterior_cov


def draw(seed: int, rows: int, kind: tuple[float, bool]) -> tuple[ProcessModel, Any, Any]:
    rng = np.random.default_rng(seed)
    model = draw_course(rng, 2, rows, kind[0], relative=kind[1])
    info = rng.uniform(0.001, 0.1, (SLOTS, 1, 2)) * (rng.random((SLOTS, 1, 1)) < 0.6)
    return model, info * rng.uniform(50, 900, info.shape), info


@settings(max_examples=40)
@cases
def test_diagonal_filter_and_smoother(seed: int, rows: int, kind: tuple[float, bool], first: int) -> None:
    """An offset of the wrong slot, or a start that is too sure, shows in the digits."""
    model, info_vec, info = draw(seed, rows, kind)
    mean, var = (part[None] for part in model.start(first - 1))
    means, variances = np.zeros(info.shape), np.zeros(info.shape)
    for t in range(SLOTS):
        prior, prior_var = predict(mean, var, model, first + t)
        mean, var = means[t], variances[t] = update(prior, prior_var, info_vec[t], info[t])
    smoothed, smoothed_var = smooth(means, variances, np.ones((SLOTS, 1)), model, first)
    for region in range(2):
        expected, cov = joint(model, region, first, info_vec[:, 0, region], info[:, 0, region])
        assert means[-1, 0, region] == pytest.approx(expected[-1], rel=1e-8)
        assert variances[-1, 0, region] == pytest.approx(cov[-1, -1], rel=1e-8)
        assert smoothed[:, 0, region] == pytest.approx(expected, rel=1e-8)
        assert smoothed_var[:, 0, region] == pytest.approx(np.diag(cov), rel=1e-7)


@settings(max_examples=40)
@cases
def test_smoothing_with_given_steps(seed: int, rows: int, kind: tuple[float, bool], first: int) -> None:
    """The smoother of filters that learn is the usual one where all of them believe the same."""
    model, info_vec, info = draw(seed, rows, kind)
    mean, var = (part[None] for part in model.start(first - 1))
    means, variances, steps = np.zeros(info.shape), np.zeros(info.shape), np.zeros((SLOTS, 3, 1, 2))
    doubt = np.where(np.random.default_rng(seed).random((SLOTS, 1)) < 0.3, 5.0, 1.0)
    for t in range(SLOTS):
        prior, prior_var = predict(mean, var, model, first + t)
        mean, var = means[t], variances[t] = update(prior, prior_var * doubt[t][:, None], info_vec[t], info[t])
        steps[t] = *predict(mean, var, model, first + t + 1), model.carried(first + t + 1) * var
    expected = smooth(means, variances, doubt, model, first)
    for one, other in zip(smooth_steps(means, variances, doubt, steps), expected, strict=True):
        assert one == pytest.approx(other, rel=1e-8)


@pytest.mark.slow
@settings(max_examples=40)
@cases
def test_matrix_filter_and_smoother(seed: int, rows: int, kind: tuple[float, bool], first: int) -> None:
    """The matrix form must know the same course, slot for slot."""
    model, info_vec, info = draw(seed, rows, kind)
    start, start_var = model.start(first - 1)
    mean, cov, known = start[None], np.diag(start_var)[None], np.ones(1, dtype=np.bool_)
    means, covs = np.zeros(info.shape), np.zeros((SLOTS, 1, 2, 2))
    for t in range(SLOTS):
        prior, prior_cov = predict_matrix(mean, cov, model, first + t)
        matrices = np.diag(info[t, 0])[None]
        mean, cov, known = update_matrix(prior, prior_cov, known, info_vec[t], matrices)
        means[t], covs[t] = mean, cov
    everything = np.ones((SLOTS, 1), dtype=np.bool_)
    smoothed, smoothed_cov, _ = smooth_matrix(means, covs, everything, np.ones((SLOTS, 1)), model, first)
    for region in range(2):
        expected, joint_cov = joint(model, region, first, info_vec[:, 0, region], info[:, 0, region])
        assert smoothed[:, 0, region] == pytest.approx(expected, rel=1e-7)
        assert smoothed_cov[:, 0, region, region] == pytest.approx(np.diag(joint_cov), rel=1e-7)


@settings(max_examples=40)
@cases
def test_many_slots_at_once(seed: int, rows: int, kind: tuple[float, bool], first: int) -> None:
    """A server that was away for a week must come back with the estimate that a week of predictions would give."""
    model, *_ = draw(seed, rows, kind)
    rng = np.random.default_rng(seed)
    mean, var = rng.uniform(50, 900, (3, 2)), rng.uniform(1.0, 400.0, (3, 2))
    steps = int(rng.integers(1, 60))
    one, one_var = mean, var
    for slot in range(first + 1, first + steps + 1):
        one, one_var = predict(one, one_var, model, slot)
    ahead, ahead_var = predict_ahead(mean, var, model, steps, first + steps)
    assert ahead == pytest.approx(one, rel=1e-9)
    assert ahead_var == pytest.approx(one_var, rel=1e-9)
    covs = np.array([np.diag(row) for row in var])
    matrix, matrix_cov = predict_ahead_matrix(mean, covs, model, steps, first + steps)
    assert matrix == pytest.approx(one, rel=1e-9)
    assert np.einsum("nkk->nk", matrix_cov) == pytest.approx(one_var, rel=1e-9)


@settings(max_examples=40)
@cases
def test_relative_deviations_are_those_of_a_plain_filter(
    seed: int, rows: int, kind: tuple[float, bool], first: int
) -> None:
    """With r = mu + s u, a Kalman filter of u in its usual form must say the same, also where s grows tenfold."""
    rng = np.random.default_rng(seed)
    scale, a, v = np.exp(rng.uniform(0.0, 6.0, (rows, 1))), kind[0], float(rng.uniform(0.01, 0.2))
    course = Course(rng.uniform(0.0, 900.0, (rows, 1)), v * scale**2, 17, int(rng.integers(17)), 3, scale)
    model = ProcessModel.around(course, a)
    mean, var = (part[None] for part in model.start(first - 1))
    u, u_var = 0.0, v / (1.0 - a * a)
    for slot in range(first, first + SLOTS):
        here, expected = float(scale[course.row(slot), 0]), float(course.mean(slot)[0])
        mean, var = predict(mean, var, model, slot)
        u, u_var = a * u, a * a * u_var + v
        if rng.random() < 0.6:
            z, noise = rng.uniform(0.0, 900.0), rng.uniform(1.0, 1e5)
            mean, var = update(mean, var, np.array([[z / noise]]), np.array([[1.0 / noise]]))
            gain = u_var * here / (here * here * u_var + noise)
            u, u_var = u + gain * (z - expected - here * u), (1.0 - gain * here) * u_var
        assert mean[0, 0] == pytest.approx(expected + here * u, rel=1e-8, abs=1e-8)
        assert var[0, 0] == pytest.approx(here * here * u_var, rel=1e-8)
