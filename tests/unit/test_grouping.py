"""The rules of dynamic grouping, one at a time: which regions share a draw, and when nobody does."""

from __future__ import annotations

import numpy as np
import pytest

from dpcrowd.grouping import group_regions

RISING = np.array([-1.0, 0.0, 1.0])
FALLING = -RISING
STILL = np.zeros(3)
APART = np.array([1.0, -2.0, 1.0])  # correlation 0 with both


def pivots(
    *regions: tuple[float, np.ndarray],
    allowed: list[bool] | None = None,
    filled: int = 3,
    tau1: float = 30.0,
    tau2: float = 0.5,
    tau3: float = 25.0,
) -> list[int]:
    """Pivots of one server whose regions have a size and a movement each."""
    history = np.stack([size + movement for size, movement in regions], axis=1)[None]
    may = np.array([[True] * len(regions) if allowed is None else allowed])
    return group_regions(history, np.array([filled]), may, tau1, tau2, tau3)[0].tolist()


def test_small_regions_that_move_alike_share_one_draw() -> None:
    """The point of grouping: one noise for several small counts."""
    assert pivots((5.0, RISING), (4.0, RISING), (6.0, RISING)) == [1, 1, 1]


def test_regions_from_tau1_on_stand_alone() -> None:
    """Their counts bear their own noise; joined they would lose their detail."""
    assert pivots((30.0, RISING), (40.0, RISING), (3.0, RISING), (4.0, RISING)) == [0, 1, 2, 2]
    assert pivots((29.0, RISING), (0.5, RISING), tau3=50.0) == [1, 1]


def test_sum_of_a_group_stays_below_tau1() -> None:
    """10 + 10 fit under 30, a third would reach it; the third is a group of its own."""
    assert pivots((10.0, RISING), (10.0, RISING), (10.0, RISING)) == [0, 0, 2]
    assert pivots((9.0, RISING), (10.0, RISING), (10.5, RISING)) == [0, 0, 0]


def test_difference_to_the_pivot_stays_below_tau3() -> None:
    """Measured from the pivot, not from the member before: 1, 5, 9 with tau3 = 5 are not a chain."""
    assert pivots((1.0, RISING), (5.0, RISING), (9.0, RISING), tau3=5.0) == [0, 0, 2]
    assert pivots((1.0, RISING), (6.0, RISING), tau3=5.0) == [0, 1]


def test_correlation_is_with_the_pivot_and_above_tau2() -> None:
    """Regions that move against each other are different crowds."""
    assert pivots((5.0, RISING), (6.0, FALLING)) == [0, 1]
    assert pivots((5.0, RISING), (6.0, APART)) == [0, 1]
    assert pivots((5.0, RISING), (6.0, APART), tau2=-0.1) == [0, 0]
    assert pivots((5.0, RISING), (6.0, FALLING), (7.0, RISING), (8.0, FALLING)) == [0, 1, 0, 1]
    assert pivots((5.0, RISING), (6.0, RISING), tau2=1.0) == [0, 1]


@pytest.mark.parametrize(("low", "high"), [(5.0, 6.0), (0.1, 0.25), (0.1, 0.7), (0.0, 0.3), (1 / 3, 1.1)])
def test_regions_that_both_stood_still_are_alike(low: float, high: float) -> None:
    """Also where the mean of three equal numbers is not that number in floating point (0.1, 0.7)."""
    assert pivots((low, STILL), (high, STILL)) == [0, 0]
    assert pivots((low, STILL), (high, RISING)) == [0, 1]
    assert pivots((low, RISING), (high, STILL)) == [0, 1]
    assert pivots((low, STILL), (high, STILL), tau2=1.0) == [0, 1]


def test_regions_that_are_not_sampled_take_no_part() -> None:
    """A region that is not due has no pivot, is no pivot, and does not count in any sum."""
    assert pivots((4.0, RISING), (5.0, RISING), (6.0, RISING), allowed=[False, True, True]) == [-1, 1, 1]
    assert pivots((14.0, RISING), (14.5, RISING), (15.0, RISING), allowed=[True, False, True]) == [0, -1, 0]
    assert pivots((4.0, RISING), (5.0, RISING), allowed=[False, False]) == [-1, -1]


@pytest.mark.parametrize("filled", [0, 1, 2])
def test_before_kappa_releases_every_region_stands_alone(filled: int) -> None:
    """There is no correlation yet; placeholders in the history must not be taken for releases."""
    assert pivots((4.0, RISING), (5.0, RISING), (6.0, RISING), filled=filled) == [0, 1, 2]
    assert pivots((4.0, RISING), (5.0, RISING), allowed=[True, False], filled=filled) == [0, -1]


def test_more_releases_than_kappa_do_group() -> None:
    """`filled` goes on counting."""
    assert pivots((4.0, RISING), (5.0, RISING), filled=100) == [0, 0]


def test_negative_releases_are_small() -> None:
    """Noise makes small counts negative; they may join, and take room from nobody."""
    assert pivots((-3.0, RISING), (2.0, RISING), (28.0, RISING), tau3=40.0) == [0, 0, 0]
    assert pivots((-3.0, RISING), (31.0, RISING), tau3=40.0) == [0, 1]  # though the sum is below tau1


def test_equal_sizes_are_taken_in_order_of_the_regions() -> None:
    """Ties must not depend on how a sort happens to work: every server has to find the same groups."""
    assert pivots((4.0, RISING), (4.0, RISING), (4.0, RISING), tau1=9.0) == [0, 0, 2]
    # Sorts treat longer arrays differently. Regions of 4 and of 3, in turns: pairs in ascending order of the regions.
    many = pivots(*[(4.0, RISING), (3.0, RISING)] * 50, tau1=9.0, tau3=1.0)
    assert many == [region - region % 4 + region % 2 for region in range(100)]


def test_inputs_stay_as_they_were() -> None:
    """History and plan are used again after the grouping."""
    history = np.arange(12.0).reshape(1, 3, 4)
    allowed, filled = np.array([[True, True, False, True]]), np.array([3])
    copies = history.copy(), allowed.copy(), filled.copy()
    group_regions(history, filled, allowed, 30.0, 0.5, 25.0)
    for each, copy in zip((history, allowed, filled), copies, strict=True):
        assert (each == copy).all()
