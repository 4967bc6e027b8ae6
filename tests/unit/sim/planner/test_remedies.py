"""What a plan advises where a region cannot be told from 0."""

from __future__ import annotations

import pytest

from dpcrowd.sim.planner.predict import predict
from dpcrowd.sim.planner.remedies import advice_on_hidden, merged_regions
from dpcrowd.sim.planner.request import EQUAL, PlanRequest, read_levels


def _request(level: list[float]) -> PlanRequest:
    network = {"servers": 4, "density": 1.0, "window": 20, "dynamic": False}
    levels = read_levels(level, 9.0)
    return PlanRequest(levels=levels, epsilon=0.1, shares=EQUAL, observation="binomial", **network)  # type: ignore[arg-type]


def test_a_region_is_merged_with_those_that_add_people() -> None:
    """The smallest regions came first: a region of 30 was to be merged with 20 empty ones, which shows nothing more."""
    request = _request([0.05] * 6 + [30.0, 25.0, 900.0])
    prediction = predict(request, 1)
    assert prediction.hidden == tuple(range(8))
    assert merged_regions(request, prediction, 6) in (
        "merge 2 regions (region-7, region-8)",
        "merge 3 regions (region-7, region-8, region-9)",
    )


@pytest.mark.slow
def test_nearly_empty_regions_are_not_merged_with_one_another() -> None:
    """Merging empty regions leaves an empty one; a plan recommended it."""
    request = _request([0.05] * 6)
    prediction = predict(request, 1)
    assert merged_regions(request, prediction, 0) is None
    advice = advice_on_hidden(request, prediction)
    assert advice is not None
    assert "region 'region-1' of 0.05 people" in advice
    assert "6 regions (region-1, region-2, region-3, region-4, …) have less than one person per slot" in advice
    assert "Merge" not in advice
    assert "raise ε" not in advice


def test_a_nearly_empty_region_is_neither_merged_nor_shown_by_a_huge_epsilon() -> None:
    """A region of 0.005 people was to be merged with one of 40, or to get an ε of 430, and the same sentence said that
    merging such regions leaves an empty one."""
    request = _request([0.005, 4000.0, 5000.0, 6000.0])
    prediction = predict(request, 1)
    assert prediction.hidden == (0,)
    advice = advice_on_hidden(request, prediction)
    assert advice is not None
    assert "Merge" not in advice
    assert "ε to" not in advice
    assert "Region region-1 has less than one person per slot: make it a part of a larger region" in advice


def test_an_epsilon_that_protects_nobody_is_no_remedy() -> None:
    """A plan advised an ε of 160."""
    request = _request([2.0, 5000.0])
    advice = advice_on_hidden(request, predict(request, 1))
    assert advice is not None
    assert "ε" not in advice.split("people")[1].replace("an ε up to 10", "")
