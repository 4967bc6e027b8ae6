"""Does the filter's variance say how wrong it is? Simulated streams, fixed seeds, thresholds of five or more sigmas."""

from __future__ import annotations

import numpy as np
import pytest

from dpcrowd.filters import (
    Observation,
    ProcessModel,
    fuse,
    group_info,
    observation_info,
    observation_var,
    predict,
    predict_matrix,
    update_matrix,
)

CHAINS = 4000


def within_sigmas(squares: np.ndarray, expected: float, sigmas: float = 5.0) -> bool:
    """Whether the mean of independent squares lies within so many standard errors of what it should be."""
    return bool(abs(squares.mean() - expected) < sigmas * squares.std() / np.sqrt(squares.size))


def test_variance_of_the_diagonal_filter_is_that_of_its_error() -> None:
    """Intervals are made of this variance. Start without information, random slots without a sample."""
    rng = np.random.default_rng(0)
    transition, process_var, share, obs_var = 0.98, 25.0, 0.3, 40.0
    model = ProcessModel.of(transition, [process_var])
    truth = rng.normal(500, 200, (CHAINS, 1))
    mean, var = np.zeros((CHAINS, 1)), np.full((CHAINS, 1), np.inf)
    for slot in range(40):
        if slot:
            truth = transition * truth + rng.normal(0, process_var**0.5, (CHAINS, 1))
        noisy = share * truth + rng.normal(0, obs_var**0.5, (CHAINS, 1))
        sampled = rng.random((CHAINS, 1)) < 0.4
        prior, prior_var = predict(mean, var, model)
        info = observation_info(noisy, np.full((CHAINS, 1), share), np.full((CHAINS, 1), obs_var), sampled)
        nobody = np.zeros((CHAINS, 1))
        mean, var = fuse(prior, prior_var, *info, nobody, nobody, 0.1)
        known = np.isfinite(var)
        if slot in (0, 1, 5, 39):
            assert within_sigmas((mean - truth)[known] ** 2 / var[known], 1.0)
    assert known.all()


def test_covariance_of_the_matrix_filter_is_that_of_its_error() -> None:
    """e^T P^-1 e must be chi-square with d degrees of freedom, with people who move and grouped regions."""
    rng = np.random.default_rng(1)
    d, share = 3, 0.5
    transition = 0.7 * np.eye(d) + 0.3 * rng.dirichlet(np.ones(d), d).T
    root = rng.normal(0, 3, (d, d))
    model = ProcessModel.of(transition, root @ root.T)
    truth = rng.normal(0, 500, (CHAINS, d))
    mean, cov = np.zeros((CHAINS, d)), np.tile(np.eye(d), (CHAINS, 1, 1))
    known = np.zeros(CHAINS, dtype=bool)
    groupings = [
        np.eye(d),
        np.array([[1.0, 0, 1], [0, 1, 0], [0, 0, 0]]),
        np.array([[0.0, 0, 0], [1, 1, 1], [0, 0, 0]]),
    ]
    for slot in range(12):
        if slot:
            truth = truth @ transition.T + rng.normal(size=(CHAINS, d)) @ root.T
            mean, cov = predict_matrix(mean, cov, model)
        members = groupings[slot % 3]
        obs_var = np.where(members.any(axis=1), [6.0, 15.0, 30.0], np.inf)
        spread = np.sqrt(np.where(np.isfinite(obs_var), obs_var, 0.0))
        noisy = share * truth @ members.T + rng.normal(size=(CHAINS, d)) * spread
        everyone = np.ones((CHAINS, 1))
        info = group_info(noisy, share * everyone, obs_var * everyone, np.tile(members, (CHAINS, 1, 1)))
        mean, cov, known = update_matrix(mean, cov, known, *info)
        assert known.all()
        error = truth - mean
        distance = np.einsum("nk,nk->n", error, np.linalg.solve(cov, error[..., None])[..., 0])
        assert within_sigmas(distance, d)
        assert within_sigmas(error[:, 0] * error[:, 1], cov[0, 0, 1])


def test_diagonal_form_of_a_markov_process_knows_how_far_people_move() -> None:
    """Monte Carlo of one slot's change, once settled: the diagonal form must expect all of it."""
    rng = np.random.default_rng(2)
    d, chains = 4, 20_000
    transition = 0.6 * np.eye(d) + 0.4 * rng.dirichlet(np.ones(d), d).T
    variances = np.array([100.0, 40.0, 9.0, 1.0])
    population = np.zeros((chains, d))
    for _ in range(25):
        before = population
        population = population @ transition.T + rng.normal(size=(chains, d)) * np.sqrt(variances)
    seen = np.mean((population - before) ** 2, axis=0)  # relative standard error 1%
    model = ProcessModel.of(transition, variances)
    np.testing.assert_allclose(seen, model.diagonal_var, rtol=0.07)
    assert (seen > 1.2 * model.noise_var).any()  # so that forgetting the movement would show


@pytest.mark.parametrize(("kind", "share"), [("binomial", 0.1), ("binomial", 0.7), ("paper", 0.1), ("paper", 0.7)])
def test_observation_variance_is_that_of_the_counts(kind: Observation, share: float) -> None:
    """What a server counts around H r: a share of a crowd (binomial), or H^2 Q as the paper draws it."""
    rng = np.random.default_rng(3)
    truth, process_var, draws = 5000, 400.0, 200_000
    if kind == "binomial":
        counts = rng.binomial(truth, share, draws).astype(float)
    else:
        counts = share * truth + rng.normal(0, share * process_var**0.5, draws)
    said = observation_var(kind, np.array([[share]]), np.array([process_var]), np.array([[float(truth)]]))
    assert counts.var() == pytest.approx(float(said[0, 0]), rel=0.03)  # relative standard error 0.3%
    assert counts.mean() == pytest.approx(share * truth, rel=0.01)
