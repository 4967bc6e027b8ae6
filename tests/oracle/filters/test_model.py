"""The variance of a region's change in one slot against Lyapunov equations."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import solve_discrete_lyapunov

from dpcrowd.filters import ProcessModel


def settled_change(transition: np.ndarray, process_cov: np.ndarray, limit: np.ndarray) -> np.ndarray:
    """Variances of r(t+1) - r(t) = (A - I) r(t) + w(t) once the process has settled.

    limit  lim A^k: what the process never forgets (0 for a stable A); (A - I) limit = 0, so it may be taken out of r,
           and the rest is stable and solves X = B X B^T + Q' with B = A - limit
    """
    d = len(transition)
    kept = np.eye(d) - limit
    rest = solve_discrete_lyapunov(transition - limit, kept @ process_cov @ kept.T)
    step = transition - np.eye(d)
    return np.diag(step @ rest @ step.T + process_cov)


@pytest.mark.parametrize("full", [False, True])
def test_change_of_a_stable_process(full: bool) -> None:
    """Without the people who move, the diagonal form would be too sure of its prediction."""
    rng = np.random.default_rng(0)
    d = 5
    transition = rng.normal(size=(d, d))
    transition *= 0.9 / max(abs(np.linalg.eigvals(transition)))
    root = rng.normal(size=(d, d))
    process_cov = root @ root.T if full else np.diag(10.0 ** rng.uniform(-2, 4, d))
    model = ProcessModel.of(transition, process_cov if full else np.diag(process_cov))
    expected = settled_change(transition, process_cov, np.zeros((d, d)))
    np.testing.assert_allclose(model.diagonal_var, expected, rtol=1e-9)
    np.testing.assert_array_equal(model.noise_var, np.diag(process_cov))
    assert (model.diagonal_var > model.noise_var).all()


@pytest.mark.parametrize("kept", [0.0, 0.5, 0.94])
def test_change_of_people_who_move_by_a_markov_matrix(kept: float) -> None:
    """A Markov matrix keeps the total for ever, so r never settles, but its changes do."""
    rng = np.random.default_rng(1)
    d = 6
    transition = kept * np.eye(d) + (1 - kept) * rng.dirichlet(np.ones(d), d).T
    values, vectors = np.linalg.eig(transition)
    stationary = np.real(vectors[:, np.argmax(values.real)])
    limit = np.outer(stationary / stationary.sum(), np.ones(d))
    variances = 10.0 ** rng.uniform(0, 5, d)
    model = ProcessModel.of(transition, variances)
    np.testing.assert_allclose(model.diagonal_var, settled_change(transition, np.diag(variances), limit), rtol=1e-9)


def test_without_movement_only_the_noise_changes_a_region() -> None:
    """A given as a number, a vector or the identity matrix adds nothing to Q."""
    variances = np.array([4.0, 9.0])
    for transition in (1.0, [1.0, 1.0], np.eye(2)):
        np.testing.assert_allclose(ProcessModel.of(transition, variances).diagonal_var, variances, rtol=1e-12)
    covariance = np.array([[4.0, 1.0], [1.0, 9.0]])
    assert ProcessModel.of(0.9, covariance).diagonal_var.tolist() == [4.0, 9.0]
