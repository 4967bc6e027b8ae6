"""A from transition frequencies: counted from check-ins, estimated from counts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import nnls

from dpcrowd.errors import BadInput
from dpcrowd.experiments.tune.transition import (
    moves_between_regions,
    residual_var,
    transition_from_checkins,
    transition_from_counts,
)
from dpcrowd.experiments.tune.tune import _describe as describe
from dpcrowd.filters import ProcessModel
from dpcrowd.sim.configure import configure
from dpcrowd.sim.data import CheckIns, load
from dpcrowd.sim.data.span import cut
from sim_support import write_checkins


def _checkins(tmp_path: Path) -> CheckIns:
    data = load(write_checkins(tmp_path / "checkins.csv"))
    assert isinstance(data, CheckIns)
    return data


def test_moves_are_those_of_each_user_from_slot_to_slot(tmp_path: Path) -> None:
    """Against a loop over users: [k, j] is from j to k, and who pauses for a slot has not moved."""
    data = _checkins(tmp_path)
    place = {
        (int(slot), int(user)): int(region)
        for slot, user, region in zip(data.entry_slot, data.entry_user, data.entry_region, strict=True)
    }
    expected = np.zeros((3, 3), dtype=np.int64)
    for (slot, user), region in place.items():
        if (slot + 1, user) in place:
            expected[place[slot + 1, user], region] += 1
    assert (expected != expected.T).any(), "a transposed matrix would show"
    np.testing.assert_array_equal(moves_between_regions(data), expected)
    np.testing.assert_allclose(transition_from_checkins(data), expected / expected.sum(axis=0))
    assert moves_between_regions(cut(data, 0, 20)).sum() < expected.sum()  # type: ignore[arg-type]


def test_columns_sum_to_one_and_unknown_regions_keep_their_people(tmp_path: Path) -> None:
    """ProcessModel takes A as it acts on a column of counts: it has to keep the total."""
    path = tmp_path / "few.csv"
    path.write_text(
        "user,time,region\nu,2024-01-01,a\nu,2024-01-02,b\nv,2024-01-01,b\nv,2024-01-02,b\nw,2024-01-02,c\n"
    )
    data = load(path)
    assert isinstance(data, CheckIns)
    a = transition_from_checkins(data)
    np.testing.assert_array_equal(a, [[0.0, 0.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    assert ProcessModel.of(a, np.ones(3)).matrix_transition @ [2.0, 3.0, 4.0] == pytest.approx([0.0, 5.0, 4.0])


def test_without_any_move_there_is_nothing_to_count(tmp_path: Path) -> None:
    """An identity made of no observations would look like knowledge."""
    path = tmp_path / "alone.csv"
    path.write_text("user,time,region\nu,2024-01-01,a\nv,2024-01-02,b\n")
    data = load(path)
    assert isinstance(data, CheckIns)
    with pytest.raises(BadInput, match=r"nobody in .* checks in during two consecutive slots"):
        transition_from_checkins(data)


def test_flows_are_estimated_from_counts_of_very_different_regions() -> None:
    """A city of 100,000 beside a village of 500: columns sum to 1, nothing is negative, and A predicts."""
    rng = np.random.default_rng(4)
    known = np.array([[0.995, 0.02, 0.0], [0.004, 0.97, 0.01], [0.001, 0.01, 0.99]])
    counts = np.empty((600, 3))
    counts[0] = [100_000, 5_000, 500]
    for t in range(1, 600):
        counts[t] = np.abs(known @ counts[t - 1] + rng.standard_normal(3) * [900.0, 60.0, 9.0])
    series = [np.rint(counts).astype(np.int64)]
    a = transition_from_counts(series)
    assert (a >= 0).all()
    np.testing.assert_allclose(a.sum(axis=0), 1.0)
    np.testing.assert_allclose(a, known, atol=0.02)
    assert (residual_var(a, series) < 1.1 * residual_var(known, series)).all()
    assert residual_var(a, series)[2] < residual_var(np.eye(3), series)[2]


@pytest.mark.parametrize("flow", [0.003, 0.05])
def test_flows_are_those_of_non_negative_least_squares(flow: float) -> None:
    """Against Lawson and Hanson's solution of the same problem, written down as one dense system.

    A slope that does not fit its function stops the search early, at flows that look plausible.
    """
    rng = np.random.default_rng(2)
    counts = np.abs(np.array([900.0, 300.0, 80.0]) + rng.normal(0, 20, (40, 3)).cumsum(axis=0)).round()
    before, change = counts[:-1], np.diff(counts, axis=0)
    scale = np.sqrt(np.square(change).mean(axis=0))
    pairs = [(k, j) for k in range(3) for j in range(3) if k != j]
    system = np.zeros((3, len(before), len(pairs)))
    for column, (k, j) in enumerate(pairs):
        system[k, :, column] += before[:, j] / scale[k]
        system[j, :, column] -= before[:, j] / scale[j]
    rows = np.vstack([system.reshape(-1, len(pairs)), np.eye(len(pairs)) / flow])
    solution, _ = nnls(rows, np.concatenate([(change / scale).T.ravel(), np.zeros(len(pairs))]))
    expected = np.eye(3)
    for (k, j), value in zip(pairs, solution, strict=True):
        expected[k, j] += value
        expected[j, j] -= value
    assert (expected != np.eye(3)).any()
    np.testing.assert_allclose(transition_from_counts([counts.astype(np.int64)], flow), expected, atol=1e-6)


def test_a_stream_that_tells_nothing_leaves_the_identity() -> None:
    """The ridge pulls there; without it, whatever fits the noise would be taken for moves."""
    a = transition_from_counts([np.full((30, 2), 50)])
    np.testing.assert_allclose(a, np.eye(2), atol=1e-6)
    np.testing.assert_allclose(residual_var(a, [np.full((30, 2), 50)]), 1 / 12)


def test_steps_do_not_cross_from_one_stream_to_the_next() -> None:
    """The end of one run is not followed by the start of another."""
    series = [np.array([[10], [10], [10]]), np.array([[900], [900]])]
    np.testing.assert_allclose(residual_var(np.eye(1), series), 1 / 12)


@pytest.mark.parametrize(
    ("name", "told"),
    [("multi-linear", "nobody's data; A from consecutive counts (macro data)"), ("checkins.csv", "; A from the moves")],
)
def test_where_a_comes_from_is_told(name: str, told: str, tmp_path: Path) -> None:
    """Synthetic data have a past of their own seeds only, but A was looked for in it all the same."""
    data = name if name == "multi-linear" else write_checkins(tmp_path / name)
    config = configure("dpcrowd-plus", data, slots=30, window=5, runs=2, servers=4, density=0.5)
    assert told in describe(config, config.data, "evolution", "frequencies")
    assert "A from" not in describe(config, config.data, "evolution", None)
