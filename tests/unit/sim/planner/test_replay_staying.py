"""Plans where users stay: what is predicted against simulations of people, and against the fresh case."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

import dpcrowd
from dpcrowd.filters import ProcessModel
from dpcrowd.privacy import Guarantee
from dpcrowd.schemes.prediction import PublicFacts
from dpcrowd.sim.data import DataSet
from dpcrowd.sim.data.counts import counts_from_array
from dpcrowd.sim.planner.predict import predict
from dpcrowd.sim.planner.replay import errors_on_run
from dpcrowd.sim.planner.replay_staying import errors_on_staying_run
from dpcrowd.sim.planner.request import PlanRequest, read_levels

SHARES = (0.02, 0.18, 0.05, 0.15, 0.1, 0.1, 0.04, 0.16, 0.08, 0.12)
NETWORK: dict[str, Any] = {
    **{"servers": 10, "graph": "ring", "shares": SHARES, "epsilon": 10.0, "window": 20, "observation": "binomial"},
    "turnover": 0.02,
}


@cache
def crowd() -> DataSet:
    """Four regions that wander slowly, so that deviations and not the noise decide."""
    level, rng = np.geomspace(200.0, 6000.0, 4), np.random.default_rng(0)
    deviation = 0.003 * level + 0.3
    truth = level + np.cumsum(rng.normal(0.0, deviation, (160, 4)), axis=0)
    return counts_from_array(np.rint(truth).astype(np.int64), process_var=(np.square(deviation) + 1.0 / 6.0).tolist())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reach", "hops"), [(1, 1), ("all", "all"), ("all", 1)], ids=["neighbours", "all at once", "all late"]
)
def test_the_error_is_that_of_a_simulation(reach: Any, hops: Any) -> None:
    """Deviations that are taken for fresh promise half the error where few servers are heard."""
    request = PlanRequest(levels=read_levels(data=crowd()), hops_per_slot=hops, **NETWORK)
    series = predict(request, reach, 5)
    steady = predict(PlanRequest(levels=_without_series(), hops_per_slot=hops, **NETWORK), reach, 5)
    result = dpcrowd.simulate(
        "relay", crowd(), samples=5, reach=reach, hops_per_slot=hops, runs=6, jobs=1, keep_estimates=True, **NETWORK
    )["relay"]
    assert series.error == pytest.approx(result.are.mean(), rel=0.15)
    assert result.variances is not None
    claimed = np.sqrt(np.asarray(result.variances)[:, 40:]).mean(axis=(0, 1, 2))
    np.testing.assert_allclose(steady.deviation, claimed, rtol=0.1)
    if reach == 1:
        fresh = predict(PlanRequest(levels=request.levels, hops_per_slot=hops, **{**NETWORK, "turnover": 1.0}), 1, 5)
        assert fresh.error < 0.7 * result.are.mean(), "the example has to matter"


def _without_series() -> Any:
    levels = read_levels(data=crowd())
    return read_levels(list(levels.level), list(levels.process_var))


def test_users_of_whom_nearly_all_are_replaced_are_fresh() -> None:
    """Both recursions describe one filter; with one server that counts a part of the people they must meet."""
    levels = 1000.0 + 300.0 * np.sin(np.arange(120.0) / 9.0)[:, None]
    fresh = PublicFacts(
        guarantee=Guarantee.window(1, 1.0),
        model=ProcessModel.of(1.0, [25.0]),
        shares=np.full(1, 0.5),
        delays=np.zeros((1, 1), dtype=np.int64),
        phases=lambda _samples: np.zeros(1, dtype=np.int64),
        observation="binomial",
        level=np.array([1000.0]),
    )
    staying = replace(fresh, turnover=1.0 - 1e-9)
    np.testing.assert_allclose(errors_on_staying_run(staying, 1, levels), errors_on_run(fresh, 1, levels), rtol=0.05)


@pytest.mark.parametrize("samples", [4, 12])
def test_fresh_users_who_are_divided_among_servers(samples: int) -> None:
    """Both recursions know that the deviations of all servers sum to 0, whoever is heard."""
    levels = 1000.0 + 30.0 * np.sin(np.arange(120.0) / 9.0)[:, None]
    fresh = PublicFacts(
        guarantee=Guarantee.window(12, 60.0),
        model=ProcessModel.of(1.0, [25.0]),
        shares=np.array([0.3, 0.6, 0.1]),
        delays=np.array([[0, 0, 1], [0, 0, -1], [1, 1, 0]]),
        phases=lambda _samples: np.array([0, 0, 5]),
        observation="binomial",
        level=np.array([1000.0]),
    )
    staying = replace(fresh, turnover=1.0 - 1e-9)
    expected = errors_on_staying_run(staying, samples, levels)
    np.testing.assert_allclose(errors_on_run(fresh, samples, levels), expected, rtol=0.05)
    assert (errors_on_run(replace(fresh, cancellation=False), samples, levels) > 1.05 * expected).any()


def test_longer_slots_replace_more_users() -> None:
    """A solver that tries other slots would take the users of a day for those of an hour."""
    request = PlanRequest(levels=_without_series(), slot=3600.0, **NETWORK)
    assert request.in_slots_of(7200.0).turnover == pytest.approx(1.0 - 0.98**2)
