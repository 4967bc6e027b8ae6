"""What a plan is made from: levels, data, and the same request in other slots."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpcrowd
from dpcrowd.errors import BadInput
from dpcrowd.sim.planner.request import PlanRequest, read_levels


def test_levels_come_from_numbers_names_or_public_data(tmp_path: Path) -> None:
    """Operators know names and sizes, researchers have a series."""
    assert read_levels(300, 4).regions == ("region-1",)
    assert read_levels([300, 20], [4, 5]).process_var == (4.0, 5.0)
    assert read_levels({"north": 300, "south": 20}, 4).level == (300.0, 20.0)
    file = tmp_path / "counts.csv"
    file.write_text("week,north,south\n1,10,4\n2,12,4\n3,20,8\n", encoding="utf-8")
    levels = read_levels(data=file)
    assert levels.regions == ("north", "south")
    assert levels.level == (14.0, pytest.approx(16 / 3))
    assert levels.process_var == (pytest.approx((4 + 64) / 2), pytest.approx(8.0))
    assert levels.inverse_level[0] == pytest.approx(np.mean([1 / 10, 1 / 12, 1 / 20]))
    named = read_levels({"south": 5, "north": 50}, data=file)
    assert named.level == (50.0, 5.0), "in the order of the data"
    assert read_levels(data=dpcrowd.load_data("multi-linear")).covariances is not None


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"process_var": 4}, "the expected level of each region is missing"),
        ({"level": 5}, "the process variance Q is missing"),
        ({"level": [], "process_var": 4}, "the list of expected levels is empty"),
        ({"level": {"north": -5}, "process_var": 4}, "region 'north' is -5; allowed: a number of people above 0"),
        ({"level": ["many"], "process_var": 4}, "region 'region-1' is 'many'"),
        ({"level": float("nan"), "process_var": 4}, "is nan; allowed"),
        ({"level": [5, 6], "process_var": [1, 0]}, "Q is 0; allowed in a plan: above 0"),
        ({"level": [5, 6], "process_var": [1, 2, 3]}, "3 process variances were given for 2 regions"),
        ({"level": [5, 6], "data": "linear"}, "2 levels were given for other regions"),
    ],
)
def test_wrong_levels_are_refused(settings: dict[str, Any], words: str) -> None:
    """A plan for numbers that nobody meant would be followed."""
    with pytest.raises(BadInput, match=words):
        read_levels(**settings)


def test_a_longer_slot_is_a_sum_of_short_ones() -> None:
    """The variance of the change of sums is that of a random walk, and a shorter slot undoes a longer one."""
    request = PlanRequest(levels=read_levels([300, 20], 4), window=96, slot=900)
    hourly = request.in_slots_of(3600)
    assert (hourly.window, hourly.slot, hourly.levels.level) == (24, 3600, (1200.0, 80.0))
    steps = np.random.default_rng(0).standard_normal(400_000) * 2
    sums = np.cumsum(steps).reshape(-1, 4).sum(axis=1)
    assert hourly.levels.process_var[0] == pytest.approx(np.square(np.diff(sums)).mean(), rel=0.03)
    again = hourly.in_slots_of(900)
    assert again.levels.process_var == pytest.approx(request.levels.process_var)
    assert again.window == 96


@pytest.mark.parametrize(("span", "seconds", "slots"), [(100, 28_800, 4), (96, 28_800, 3), (5, 43_200, 1)])
def test_another_slot_never_shortens_the_promise(span: int, seconds: float, slots: int) -> None:
    """Rounded down, a window of 25 h became 3 slots of 8 h: users got 24 h, and nobody was told."""
    levels = read_levels([300, 20], 4)
    assert PlanRequest(levels=levels, window=span, slot=900).in_slots_of(seconds).window == slots
    assert PlanRequest(levels=levels, horizon=span, slot=900).in_slots_of(seconds).horizon == slots


def test_shares_by_region_are_merged_with_their_regions() -> None:
    """A plan with shares by region ended with an error as soon as it tried to merge a region that is too small."""
    shares = ((0.9, 0.5, 0.1), (0.1, 0.5, 0.9))
    request = PlanRequest(levels=read_levels({"a": 10, "b": 20, "c": 30}, 4), shares=shares, servers=2)
    merged = request.merge_regions([0, 2])
    assert merged.levels.regions == ("b", "a+c")
    assert merged.shares == ((0.5, pytest.approx(0.3)), (0.5, pytest.approx(0.7)))
    result = dpcrowd.plan(
        {"a": 1, "b": 2, "c": 3000}, process_var=4, shares=shares, servers=2, window=20, graph="ring", epsilons=[1.0]
    )
    assert any("cannot be told from 0" in remark for remark in result.remarks)


def test_merged_regions_are_counted_together() -> None:
    """One draw of noise for all of them is the point of merging."""
    merged = read_levels({"a": 10, "b": 20, "c": 30}, [1, 2, 3]).merged([0, 2])
    assert merged.regions == ("b", "a+c")
    assert (merged.level, merged.process_var) == ((20.0, 40.0), (2.0, 4.0))


def test_a_slot_has_a_length() -> None:
    """A day divided by 0 seconds would be infinite traffic."""
    with pytest.raises(BadInput, match="the slot is 0 seconds long"):
        PlanRequest(levels=read_levels(5, 4), slot=0)
