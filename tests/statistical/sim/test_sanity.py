"""What must come out of any simulation that is right, on small fixed seeds with wide margins.

In each comparison the smaller error was smaller in all 20 runs when the thresholds were set, and by a third or so; the
limits below leave more than ten standard errors of the paired differences.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from dpcrowd.sim.result import SimulationResult
from dpcrowd.sim.simulate import simulate

SETTING: dict[str, Any] = {"servers": 20, "density": 0.3, "slots": 300, "runs": 20, "seed": 1, "jobs": 1}


@pytest.fixture(scope="module")
def linear() -> SimulationResult:
    return simulate("non-private,central,dpcrowd,fast,dfast", epsilon=1.0, **SETTING)


def test_whoever_hears_more_errs_less(linear: SimulationResult) -> None:
    """Exact counts beat noise, a filter that hears all beats neighbours, neighbours beat nobody."""
    order = ["non-private", "central", "dpcrowd", "fast"]
    for better, worse in itertools.pairwise(order):
        found = linear.compare(better, worse)
        assert found.ratio < 0.85, str(found)
        assert found.wins >= 0.9
        assert found.decided


def test_less_privacy_budget_means_more_error(linear: SimulationResult) -> None:
    """A tenth of epsilon is ten times the noise; if the error did not grow, the noise would not be there."""
    tight = simulate("dpcrowd,fast", epsilon=0.1, **SETTING)
    loose = simulate("dpcrowd", epsilon=100.0, **SETTING)
    for scheme in ("dpcrowd", "fast"):
        assert tight[scheme].are.mean() > 1.4 * linear[scheme].are.mean()
    assert loose["dpcrowd"].are.mean() < 0.98 * linear["dpcrowd"].are.mean()


def test_servers_of_a_connected_network_that_floods_agree() -> None:
    """All average the same numbers: what remains is rounding. Neighbours alone cannot agree so far."""
    result = simulate("dfast,dpcrowd,fast", graph="ring", **{**SETTING, "density": None, "runs": 3, "slots": 100})
    assert (result["dfast"].ace < 1e-8).all()
    assert (result["dpcrowd"].ace > 1.0).all()
    assert (result["dpcrowd"].ace < result["fast"].ace).all()


def test_one_central_filter_agrees_with_itself(linear: SimulationResult) -> None:
    """Every server is told the same estimate."""
    assert (linear["central"].ace < 1e-8).all()


@pytest.mark.parametrize("scheme", ["non-private", "central", "dpcrowd", "fast"])
def test_intervals_of_filters_hold_the_truth_as_often_as_they_say(scheme: str, linear: SimulationResult) -> None:
    """Linear follows the filters' model exactly, so 95% intervals cover about 95%; a wrong variance would show."""
    assert 0.9 < linear[scheme].coverage95.mean() < 0.99


def test_a_flooded_average_of_filters_is_at_least_as_wide_as_it_says(linear: SimulationResult) -> None:
    """Filters miss the same move of the truth; intervals that took their errors for independent covered 56%."""
    assert linear["dfast"].coverage95.mean() > 0.95


def test_fixed_intervals_of_one_slot_are_calibrated_in_every_direction() -> None:
    """Uniform has no filter: its interval is that of noise and observation alone."""
    result = simulate("uniform,duniform", window=50, **{**SETTING, "slots": 200})
    for record in result.records.values():
        assert 0.92 < record.coverage95.mean() < 0.975


def test_runs_are_independent(linear: SimulationResult) -> None:
    """Neighbouring runs on one stream of random numbers would be alike; the errors of 20 runs are all different."""
    by_slot = linear["non-private"].are_by_slot[:, 20:]
    between = np.corrcoef(by_slot)[np.triu_indices(20, 1)]
    assert abs(between.mean()) < 0.1
    assert between.max() < 0.5
