"""Filters that learn, at servers that hear few others, where users stay: a server's own deviation is no evidence twice,
and a crowd that leaves its model is followed as soon as if it were."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dpcrowd
from dpcrowd.arrays import Truth
from dpcrowd.sim.data.counts import counts_from_array
from dpcrowd.sim.recorder import RunRecords

SCHEMES = ["kalman-uniform", "rescuedp"]
PAST, SLOTS, LEVEL = 200, 200, 10_000.0


def crowd(kind: str) -> Truth:
    """Return counts of two regions that are calm in the past, and then calm, livelier, or larger by 40%."""
    rng = np.random.default_rng(0)
    past, level = rng.poisson(LEVEL, (PAST, 2)), np.full((SLOTS, 2), LEVEL)
    if kind == "jumps":
        level[50:] *= 1.4
    if kind == "livelier":
        deviation = np.zeros(2)
        for slot in range(SLOTS):
            deviation = 0.9 * deviation + 0.15 * np.sqrt(1.0 - 0.9**2) * rng.normal(size=2)
            level[slot] *= np.maximum(1.0 + deviation, 0.0)
    return np.concatenate([past, rng.poisson(level)])


def simulated(scheme: str, kind: str, turnover: float, **more: Any) -> RunRecords:
    """Return records of a scheme that knows a model of the past."""
    counts = crowd(kind)
    model = dpcrowd.fit(counts[:PAST], source="a series that is public", season="none")
    settings: dict[str, Any] = {"servers": 5, "window": 20, "runs": 4, **more}
    return dpcrowd.simulate(
        scheme, counts_from_array(counts[PAST:]), model=model, shares="partition", epsilon=1.0, turnover=turnover,
        jobs=1, seed=1, **settings,
    )[scheme]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("turnover", [0.05, 0.005])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_intervals_hold_where_a_server_has_the_same_users_in_every_slot(scheme: str, turnover: float) -> None:
    """By chance a server has a few users too many, and says so in every sample: for filters that took each of them for
    new evidence the level had moved for certain, and 95% intervals covered 0.81 and 0.84 at a turnover of 0.005."""
    record = simulated(scheme, "calm", turnover, runs=8)
    assert 0.93 < float(np.nanmean(record.coverage95)) < 0.995


@pytest.mark.slow
@pytest.mark.parametrize("turnover", [0.05, 0.005])
@pytest.mark.parametrize("kind", ["livelier", "jumps"])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_crowd_that_leaves_its_model_is_followed(
    scheme: str, kind: str, turnover: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Evidence that counted as correlations of innovations, and not of their squares, next to vanished where users
    stay: a livelier crowd was followed with twice the error of filters that take every sample for new."""
    error = float(simulated(scheme, kind, turnover).total_error.mean())
    monkeypatch.setattr("dpcrowd.schemes.filtering.fresh_evidence", lambda *repeated, considered: 1.0)
    assert error < 1.04 * float(simulated(scheme, kind, turnover).total_error.mean())


@pytest.mark.slow
@pytest.mark.parametrize("turnover", [0.05, 0.005])
def test_relay_that_hears_few_servers_follows_a_crowd_that_leaves_its_model(
    turnover: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its records are filtered with what deviations have in common, but its beliefs were weighed by the same rule."""
    few: dict[str, Any] = {"servers": 20, "window": 40, "graph": "ring", "reach": 1, "hops_per_slot": "all", "runs": 2}
    record = simulated("relay", "livelier", turnover, **few)
    assert float(np.nanmean(simulated("relay", "calm", turnover, **few).coverage95)) > 0.93
    monkeypatch.setattr("dpcrowd.schemes.relay_filter.fresh_evidence", lambda *repeated, considered: 1.0)
    every = simulated("relay", "livelier", turnover, **few)
    assert float(record.total_error.mean()) < 1.2 * float(every.total_error.mean()), (
        "1.44 if all innovations counted alike"
    )
