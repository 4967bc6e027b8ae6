"""The process model: what it refuses, and A and Q in the shapes that the filters ask for."""

from __future__ import annotations

import numpy as np
import pytest

from dpcrowd.errors import BadInput
from dpcrowd.filters import ProcessModel, predict, predict_matrix


@pytest.mark.parametrize(
    ("transition", "process_var", "said"),
    [
        (1.0, np.ones((2, 3)), r"process variance has shape \(2, 3\)"),
        (1.0, np.ones((2, 2, 2)), r"process variance has shape \(2, 2, 2\)"),
        ([1.0, 1.0, 1.0], [1.0, 1.0], r"transition has shape \(3,\); allowed for 2 regions"),
        (np.eye(3), [1.0, 1.0], r"transition has shape \(3, 3\)"),
        (np.ones((1, 2)), [1.0, 1.0], r"transition has shape \(1, 2\)"),
        (np.ones((1, 1, 1)), [1.0], r"transition has shape \(1, 1, 1\)"),
        (np.nan, [1.0], "must be finite"),
        (1.0, [np.inf], "must be finite"),
        (1.0, [np.nan, 1.0], "must be finite"),
        (1.0, [4.0, -1.0], r"process variance must be >= 0; given -1\.0"),
        (1.0, [[1.0, 0.0], [0.0, -2.0]], r"process variance must be >= 0; given -2\.0"),
        (1.0, [[1.0, 0.5], [0.0, 1.0]], "symmetric"),
        (1.0, [[1.0, 2.0], [2.0, 1.0]], "positive semi-definite"),
        (1.0, [], "at least one region"),
    ],
)
def test_impossible_models_are_refused(transition: object, process_var: object, said: str) -> None:
    """A bad A or Q would surface slots later as NaN or as a failing factorisation."""
    with pytest.raises(BadInput, match=said):
        ProcessModel.of(transition, process_var)


def test_every_shape_of_a_and_q_has_both_forms() -> None:
    """The matrix form of a scalar A is A I; the diagonal form of a covariance is its diagonal."""
    model = ProcessModel.of(0.5, [1.0, 4.0])
    assert model.regions == 2
    assert model.diagonal_transition.shape == ()
    assert model.matrix_transition.tolist() == [[0.5, 0.0], [0.0, 0.5]]
    assert model.matrix_var.tolist() == [[1.0, 0.0], [0.0, 4.0]]
    assert model.noise_var.tolist() == model.diagonal_var.tolist() == [1.0, 4.0]

    model = ProcessModel.of([0.5, 2.0], [[1.0, 0.5], [0.5, 4.0]])
    assert model.diagonal_transition.tolist() == [0.5, 2.0]
    assert model.matrix_transition.tolist() == [[0.5, 0.0], [0.0, 2.0]]
    assert model.matrix_var.tolist() == [[1.0, 0.5], [0.5, 4.0]]
    assert model.noise_var.tolist() == [1.0, 4.0]

    assert ProcessModel.of(1.0, 9.0).regions == 1


def test_diagonal_form_of_a_full_matrix_predicts_no_movement() -> None:
    """Its diagonal alone would lose everybody who moves: 10% of the crowd in each slot here."""
    model = ProcessModel.of([[0.9, 0.1], [0.1, 0.9]], [1.0, 1.0])
    mean, var = predict(np.array([[100.0, 50.0]]), np.array([[4.0, 4.0]]), model)
    assert mean.tolist() == [[100.0, 50.0]]
    assert (var > 5.0).all()


def test_matrix_form_moves_people_by_a_and_not_by_its_transpose() -> None:
    """r(t+1) = A r(t): column j of A says where the people of region j go."""
    model = ProcessModel.of([[0.8, 0.0], [0.2, 1.0]], [1.0, 2.0])
    mean, cov = predict_matrix(np.array([[100.0, 50.0]]), np.eye(2)[None], model)
    np.testing.assert_allclose(mean, [[80.0, 70.0]])
    np.testing.assert_allclose(cov, [[[1.64, 0.16], [0.16, 3.04]]])


def test_predicted_covariance_is_symmetric_to_the_last_bit() -> None:
    """Rounding of A P A^T is not symmetric; what is saved, sent and factorised must be."""
    rng = np.random.default_rng(0)
    root = rng.normal(size=(7, 7))
    model = ProcessModel.of(rng.normal(size=(7, 7)), root @ root.T)
    _, cov = predict_matrix(np.zeros((50, 7)), np.tile(root.T @ root, (50, 1, 1)) * rng.random((50, 1, 1)), model)
    assert (cov == cov.swapaxes(1, 2)).all()


def test_diagonal_prediction_takes_the_square_of_a() -> None:
    """prior_var = A^2 posterior_var + Q, with A a number or one number a region."""
    mean, var = np.array([[10.0, 20.0]]), np.array([[4.0, 9.0]])
    for transition in (0.5, [0.5, 0.5]):
        prior, prior_var = predict(mean, var, ProcessModel.of(transition, [1.0, 2.0]))
        assert prior.tolist() == [[5.0, 10.0]]
        assert prior_var.tolist() == [[2.0, 4.25]]
    prior, prior_var = predict(mean, var, ProcessModel.of(1.0, [1.0, 2.0]))
    assert prior.tolist() == [[10.0, 20.0]]
    assert prior_var.tolist() == [[5.0, 11.0]]
