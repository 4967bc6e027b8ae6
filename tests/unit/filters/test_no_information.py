"""Before the first observation there is no estimate: nothing is made up, and nothing warns."""

from __future__ import annotations

import numpy as np
import pytest

from dpcrowd.filters import (
    ProcessModel,
    fuse,
    fuse_matrix,
    group_info,
    observation_info,
    predict,
    predict_matrix,
    update,
    update_matrix,
)

INF = np.inf
UNKNOWN = np.array([False])


@pytest.mark.parametrize("transition", [1.0, 0.5, [0.9, 1.1], [0.0, 1.0]])
def test_prediction_adds_no_knowledge(transition: object) -> None:
    """Unknown stays unknown, also where A = 0 (0 times infinity is not a number)."""
    model = ProcessModel.of(transition, [1.0, 1.0])
    mean, var = predict(np.zeros((3, 2)), np.full((3, 2), INF), model)
    assert (mean == 0).all()
    assert (var == INF).all()
    _, var = predict(np.zeros((1, 2)), np.array([[INF, 4.0]]), model)
    assert var[0, 0] == INF
    assert np.isfinite(var[0, 1])


def test_nothing_heard_is_nothing_known() -> None:
    """0 times infinity again: the mean stays a placeholder and the variance infinite, beside known regions."""
    prior, prior_var = np.array([[0.0, 8.0]]), np.array([[INF, 2.0]])
    mean, var = update(prior, prior_var, np.zeros((1, 2)), np.zeros((1, 2)))
    assert mean.tolist() == [[0.0, 8.0]]
    assert var.tolist() == [[INF, 2.0]]


@pytest.mark.parametrize("placeholder", [0.0, 1e6])
def test_first_estimate_comes_from_the_first_observation_alone(placeholder: float) -> None:
    """x = z/H with variance R/H^2 (the paper prints its inverse), whatever the placeholder was."""
    info = observation_info(np.array([[30.0]]), np.array([[0.25]]), np.array([[2.0]]), np.array([[True]]))
    mean, var = update(np.array([[placeholder]]), np.array([[INF]]), *info)
    assert mean[0, 0] == pytest.approx(120.0, rel=1e-9)
    assert var[0, 0] == pytest.approx(32.0, rel=1e-12)


def test_consensus_does_not_move_a_server_that_knows_nothing() -> None:
    """Its placeholder is no opinion: the neighbours' priors must not be averaged with it."""
    args = np.array([[500.0]]), np.array([[1.0]])
    mean, var = fuse(np.zeros((1, 1)), np.full((1, 1), INF), np.zeros((1, 1)), np.zeros((1, 1)), *args, 0.5)
    assert mean.tolist() == [[0.0]]
    assert var.tolist() == [[INF]]
    heard = np.array([[40.0]]), np.array([[0.5]])
    mean, _ = fuse(np.zeros((1, 1)), np.full((1, 1), INF), *heard, *args, 0.5)
    assert mean.tolist() == [[80.0]]
    cov = np.eye(2)[None]
    many = np.array([[500.0, 500.0]]), np.ones((1, 1))
    mean2, cov2, known = fuse_matrix(np.zeros((1, 2)), cov, UNKNOWN, np.zeros((1, 2)), np.zeros((1, 2, 2)), *many, 0.5)
    assert mean2.tolist() == [[0.0, 0.0]]
    assert not known.any()
    assert (cov2 == cov).all()
    mean2, _, known = fuse_matrix(np.zeros((1, 2)), cov, UNKNOWN, np.array([[4.0, 6.0]]), 2 * cov, *many, 0.5)
    np.testing.assert_allclose(mean2, [[2.0, 3.0]], rtol=1e-12)
    assert known.all()


def members_of(*groups: tuple[int, ...], regions: int = 3) -> np.ndarray:
    members = np.zeros((1, regions, regions))
    for group in groups:
        members[0, group[0], list(group)] = 1.0
    return members


def grouped(members: np.ndarray, truth: np.ndarray, share: float = 0.5) -> tuple[np.ndarray, np.ndarray]:
    """Noise-free measurements of groups with variance 2."""
    obs_var = np.where(members.any(axis=2), 2.0, INF)
    return group_info(share * np.einsum("ngk,k->ng", members, truth), np.array([[share]]), obs_var, members)


TRUTH = np.array([7.0, 11.0, 30.0])


@pytest.mark.parametrize("groups", [((0, 1), (2,)), ((0, 1, 2),), ((0,), (1,)), ()])
def test_grouped_information_that_leaves_a_region_open_gives_no_estimate(groups: tuple[tuple[int, ...], ...]) -> None:
    """A sum of two regions says nothing about their difference: an estimate of each would be invented."""
    info = grouped(members_of(*groups), TRUTH)
    mean, cov, known = update_matrix(np.zeros((1, 3)), np.eye(3)[None], UNKNOWN, *info)
    assert not known.any()
    assert (mean == 0).all()
    assert (cov == np.eye(3)).all()


def test_two_servers_groupings_can_determine_what_each_alone_leaves_open() -> None:
    """r0 + r1, r2 of one server and r0, r1 + r2 of another: together every region is known."""
    one = grouped(members_of((0, 1), (2,)), TRUTH)
    other = grouped(members_of((0,), (1, 2)), TRUTH)
    info = one[0] + other[0], one[1] + other[1]
    mean, cov, known = update_matrix(np.zeros((1, 3)), np.eye(3)[None], UNKNOWN, *info)
    assert known.all()
    np.testing.assert_allclose(mean[0], TRUTH, rtol=1e-9)
    np.testing.assert_allclose(cov[0] @ info[1][0], np.eye(3), atol=1e-9)


def test_regions_of_very_different_precision_are_all_determined() -> None:
    """Whether a region is seen does not depend on how well the others are."""
    info_mat = np.diag([1e-13, 1.0, 1e9])[None]
    info_vec = info_mat @ TRUTH
    mean, _, known = update_matrix(np.zeros((1, 3)), np.eye(3)[None], UNKNOWN, info_vec, info_mat)
    assert known.all()
    np.testing.assert_allclose(mean[0], TRUTH, rtol=1e-9)


def test_those_who_know_are_updated_as_if_alone() -> None:
    """In a batch, servers without an estimate must not disturb the others; inputs stay as they were."""
    rng = np.random.default_rng(0)
    prior, cov = rng.normal(size=(4, 2)), np.tile(np.array([[2.0, 0.5], [0.5, 1.0]]), (4, 1, 1))
    known = np.array([True, False, True, False])
    vec, mat = rng.normal(size=(4, 2)), np.tile(np.array([[1.0, 0.2], [0.2, 3.0]]), (4, 1, 1))
    mat[3] = 0.0
    before = prior.copy(), cov.copy()
    mean, after, knows = update_matrix(prior, cov, known, vec, mat)
    assert knows.tolist() == [True, True, True, False]
    for row in (0, 2):
        alone = update_matrix(prior[[row]], cov[[row]], np.array([True]), vec[[row]], mat[[row]])
        assert (mean[row] == alone[0][0]).all()
        assert (after[row] == alone[1][0]).all()
    np.testing.assert_allclose(mean[1], np.linalg.solve(mat[1], vec[1]))
    assert (mean[3] == prior[3]).all()
    assert (prior == before[0]).all()
    assert (cov == before[1]).all()
    assert known.tolist() == [True, False, True, False]


def test_a_process_without_noise_stays_positive_definite() -> None:
    """Q = 0 and an A that merges regions make the prior singular, and a factorisation would fail slots later."""
    merge = np.full((3, 3), 1 / 3)
    for transition, variances in ((merge, [0.0, 0.0, 0.0]), (np.zeros((3, 3)), [0.0, 1.0, 1.0]), (0.5, [0.0] * 3)):
        model = ProcessModel.of(transition, variances)
        mean, cov, known = np.zeros((1, 3)), 1e4 * np.eye(3)[None], np.array([True])
        for _ in range(800):
            mean, cov = predict_matrix(mean, cov, model)
            mean, cov, known = update_matrix(mean, cov, known, np.ones((1, 3)), np.eye(3)[None])
        assert (np.diag(cov[0]) > 0).all()
        assert np.isfinite(mean).all()
