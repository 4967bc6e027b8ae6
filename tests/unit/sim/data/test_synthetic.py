"""Linear and Multi-Linear are what the design says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dpcrowd.errors import BadInput
from dpcrowd.sim.data import load
from dpcrowd.sim.data.synthetic import linear, markov_matrix, multi_linear


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_linear_has_the_papers_parameters() -> None:
    """Without this, figures would be drawn with another Q, r(0), T or tuning than the paper's table."""
    data = load("linear")
    assert (data.slots, data.regions) == (1000, ("crowd",))
    assert data.model.diagonal_var.tolist() == [1e5]
    assert data.model.diagonal_transition == 1.0
    assert (data.tuning.theta, data.tuning.xi, data.tuning.sample_fraction) == (2.5, 0.05, 0.3)
    truth = data.truth(rng())
    assert truth.shape == (1000, 1)
    assert truth.dtype == np.int64
    assert truth[0, 0] == 20_000


def test_multi_linear_has_the_designs_parameters() -> None:
    """Without this, A could lose people, or Q be scaled by something else than r(0)."""
    data = load("multi-linear")
    start = np.array([20000, 8000, 3000, 1000, 300, 100])
    assert data.truth(rng())[0].tolist() == start.tolist()
    np.testing.assert_allclose(data.model.noise_var, (0.016 * start) ** 2)
    a = data.model.matrix_transition
    np.testing.assert_allclose(a.sum(axis=0), 1.0)
    assert (np.diag(a) >= 0.94).all()
    assert (a >= 0).all()
    assert abs(a - a.T).max() > 1e-3  # a row-stochastic mix-up would keep no total
    assert data.tuning.rescue_theta == 1.0


def test_the_matrix_keeps_the_total_without_noise() -> None:
    """Without this, 'totals are kept' could hold for row vectors instead of r(t+1) = A r(t)."""
    a = multi_linear().model.matrix_transition
    r = np.array([20000.0, 8000, 3000, 1000, 300, 100])
    for _ in range(50):
        r = a @ r
    assert r.sum() == pytest.approx(32400)
    assert r[5] > 1000  # people did move


def test_the_markov_matrix_is_the_same_for_ever() -> None:
    """Without this, a change of the seed or the recipe would silently change every Multi-Linear figure."""
    np.testing.assert_allclose(markov_matrix(2, 6), [[0.626506, 0.472622], [0.373494, 0.527378]], atol=1e-6)


def test_the_state_is_not_rounded_inside() -> None:
    """Without this, rounding would feed back: small regions of Multi-Linear would drift in steps."""
    data = multi_linear(slots=3)
    truth = data.truth(rng(1))
    steps = rng(1).standard_normal((2, 6)) * np.sqrt(data.change_var)
    a = data.model.matrix_transition
    first = np.abs(a @ data.start + steps[0])
    second = np.abs(a @ first + steps[1])
    assert truth[2].tolist() == np.rint(second).astype(int).tolist()


def test_streams_are_reflected_at_zero() -> None:
    """Without this, a walk that comes near 0 would yield negative crowds."""
    low = replace(linear(slots=500), start=np.array([100.0]))
    truth = low.truth(rng(3))
    free = np.rint(100 + np.concatenate([[0], np.cumsum(rng(3).standard_normal(499) * np.sqrt(1e5))]))
    assert free.min() < 0  # the walk would have crossed
    assert truth.min() >= 0


def test_slots_can_be_shortened_and_not_below_one() -> None:
    """Without this, tests and demos could not use short streams, or would get an empty one."""
    assert load("linear", slots=1).truth(rng()).shape == (1, 1)
    with pytest.raises(BadInput, match=r"slots=0 .* 1 or more"):
        load("linear", slots=0)


def test_another_q_changes_the_belief_not_the_truth() -> None:
    """Without this, tuning a filter's Q would change the data it is judged on."""
    plain, tuned = load("linear"), load("linear", process_var=7.0)
    assert tuned.model.diagonal_var.tolist() == [7.0]
    assert tuned.change_var.tolist() == [1e5]
    assert (plain.truth(rng()) == tuned.truth(rng())).all()
    with pytest.raises(BadInput, match="2 process variances were given for 1 region"):
        load("linear", process_var=[1.0, 2.0])
    with pytest.raises(BadInput, match="must be >= 0"):
        load("linear", process_var=-1.0)
    with pytest.raises(BadInput, match="must be numbers"):
        load("linear", process_var="much")


def test_some_regions_show_the_same_columns() -> None:
    """Without this, choosing regions would draw another stream, and comparisons would not be paired."""
    whole, some = load("multi-linear"), load("multi-linear", regions=["region-3", "region-1"])
    assert some.regions == ("region-3", "region-1")
    assert (some.truth(rng()) == whole.truth(rng())[:, [2, 0]]).all()
    assert some.model.diagonal_var.tolist() == whole.model.diagonal_var[[2, 0]].tolist()
    assert some.model.matrix_transition.tolist() == np.eye(2).tolist()
    with pytest.raises(BadInput, match=r"unknown region 'region-7'.*region-1"):
        load("multi-linear", regions=["region-7"])
    with pytest.raises(BadInput, match="twice"):
        load("multi-linear", regions=["region-1", "region-1"])
    with pytest.raises(BadInput, match="empty list"):
        load("multi-linear", regions=[])
