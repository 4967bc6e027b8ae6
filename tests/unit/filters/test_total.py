"""The variance of a total of regions that rise and fall together."""

from __future__ import annotations

import numpy as np
import pytest

from dpcrowd.filters import Course, ProcessModel
from dpcrowd.filters.total import common_part, total_vars

RHO = 0.35


def filters(a: np.ndarray, q: np.ndarray, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the covariance of the errors of one filter per region, and that of the deviations, after many slots."""
    together = RHO + (1.0 - RHO) * np.eye(len(a))
    added = together * np.sqrt(np.outer(q, q))
    errors = deviations = added / (1.0 - np.outer(a, a))
    for _ in range(500):
        prior = np.outer(a, a) * errors + added
        kept = noise / (np.diag(prior) + noise)
        errors = np.outer(kept, kept) * prior + np.diag(np.square(1.0 - kept) * noise)
    return errors, np.diag(deviations)


@pytest.mark.parametrize("a", [0.0, 0.5, 0.95])
@pytest.mark.parametrize("noise", [0.1, 3.0, 100.0])
def test_it_is_that_of_filters_whose_regions_go_together(a: float, noise: float) -> None:
    """A total whose regions all miss the same change is wrong by the sum of what they miss, not by its root."""
    every, q = np.full(4, a), np.array([1.0, 2.0, 4.0, 8.0])
    errors, settled = filters(every, q, noise * q)
    model = ProcessModel.around(Course(np.full((1, 4), 50.0), q[None]), every, region_correlation=RHO)
    assert model.course is not None
    assert model.course.settled_var(7, model.transition) == pytest.approx(settled)
    (found,) = total_vars([np.diag(errors).copy()], [7], model)
    assert found == pytest.approx(errors.sum())


def test_regions_that_are_measured_differently() -> None:
    """The covariance of two of them is then a little below what is claimed; it must not be above."""
    a, q = np.array([0.95, 0.6, 0.0]), np.array([1.0, 9.0, 4.0])
    errors, _ = filters(a, q, np.array([0.5, 100.0, 4.0]))
    model = ProcessModel.around(Course(np.full((1, 3), 50.0), q[None]), a, region_correlation=RHO)
    (found,) = total_vars([np.diag(errors).copy()], [0], model)
    assert np.trace(errors) < errors.sum() < found < 1.1 * errors.sum()


def test_a_crowd_that_has_left_its_past_is_shared_completely() -> None:
    """Filters that learn claim more than the model; taken by the same formula, a part would be above the whole."""
    course = Course(np.full((1, 3), 50.0), np.full((1, 3), 4.0))
    wide = np.array([9.0, 25.0, 1.0])
    parts = common_part(wide, course.settled_var(0, np.full(3, 0.5)), np.full(3, 0.5))
    assert parts[:2].tolist() == [9.0, 25.0]
    assert 0.0 < parts[2] < 1.0


def test_nobody_who_could_deviate() -> None:
    """A region whose model has no variance must not make the total unknown."""
    course = Course(np.full((1, 2), 50.0), np.array([[0.0, 4.0]]))
    model = ProcessModel.around(course, 0.0, region_correlation=RHO)
    assert total_vars([np.array([0.0, 4.0])], [3], model).tolist() == [4.0]


def test_without_a_model_or_a_correlation_errors_are_independent() -> None:
    """Nothing else is known then, and intervals are those of earlier versions."""
    course = Course(np.full((1, 2), 50.0), np.full((1, 2), 4.0))
    variances = [np.array([1.0, 3.0]), np.array([2.0, np.nan]), np.array([2.0, np.inf])]
    for model in (
        None,
        ProcessModel.of(1.0, [4.0, 4.0]),
        ProcessModel.around(course, 0.5),
        ProcessModel.around(course, 0.5, region_correlation=0.0),
    ):
        assert total_vars(variances, [0, 1, 2], model) == pytest.approx([4.0, np.nan, np.inf], nan_ok=True)
    known = total_vars(variances, [0, 1, 2], ProcessModel.around(course, 0.5, region_correlation=RHO))
    assert known[0] > 4.0
    assert known[1:] == pytest.approx([np.nan, np.inf], nan_ok=True), "where a region is unknown, so is the total"


def test_slots_of_a_season_one_after_another_and_each_for_itself() -> None:
    """A history computes one slot from the one before, a stream each alone; both must show the same interval."""
    rows = np.array([[1.0, 2.0], [40.0, 90.0], [9.0, 5.0]])
    course = Course(rows, 0.5 * rows, season=3, offset=1, step=1, scale=rows)
    model = ProcessModel.around(course, np.array([0.9, 0.4]), region_correlation=RHO)
    slots = [4, 5, 6, 11, 12, 12, 3]
    variances = [0.3 * rows[course.row(slot)] for slot in slots]
    alone = [total_vars([variance], [slot], model)[0] for variance, slot in zip(variances, slots, strict=True)]
    assert total_vars(variances, slots, model) == pytest.approx(alone)
