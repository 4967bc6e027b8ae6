"""Intervals where users stay: relay's variances say how wrong it is, whoever is heard and however long users stay.

Fixed seeds; 30 regions of 60 to 6,000 people that wander slowly, 20 servers, epsilon 10 per window of 40 slots, so that
deviations and not the noise decide. Filters that take deviations for fresh cover 0.66 to 0.98 here.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpcrowd.filters.origins import SUSPECT, OriginScores
from dpcrowd.sim.data import DataSet
from dpcrowd.sim.data.counts import counts_from_array
from dpcrowd.sim.fit import fit
from dpcrowd.sim.simulate import simulate

HEARD: dict[str, dict[str, Any]] = {
    "30% heard": {"reach": 1, "density": 0.3},
    "all heard": {"reach": "all", "density": 0.3, "hops_per_slot": "all"},
    "all heard late": {"reach": "all", "density": 0.3},
}


@cache
def crowd(slots: int = 140, regions: int = 30) -> DataSet:
    rng = np.random.default_rng(0)
    level = np.geomspace(60.0, 6000.0, regions)
    deviation = np.maximum(0.003 * level, 0.6)
    truth = level + np.cumsum(rng.normal(0.0, deviation, (slots, regions)), axis=0)
    variance = np.square(deviation) + 1.0 / 6.0  # of rounding, in two slots
    return counts_from_array(np.rint(np.abs(truth)).astype(int).tolist(), process_var=variance.tolist())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("turnover", "heard"),
    [*((0.02, heard) for heard in HEARD), (0.3, "all heard late"), (1.0, "all heard"), (1.0, "all heard late")],
)
@pytest.mark.parametrize("shares", ["partition", "uniform"])
def test_coverage(turnover: float, shares: str, heard: str) -> None:
    """Without the memory of deviations, intervals are too narrow where few servers are heard and users stay."""
    result = simulate(
        "relay",
        crowd(),
        servers=20,
        epsilon=10.0,
        window=40,
        samples=8,
        runs=1,
        shares=shares,
        observation="binomial",
        turnover=turnover,
        dynamic=False,
        burn_in=40,
        jobs=1,
        **HEARD[heard],
    )
    assert 0.90 <= result["relay"].coverage95.mean() <= 0.985


@pytest.mark.slow
@pytest.mark.parametrize("shares", ["partition", "uniform"])
def test_honest_servers_whose_users_stay_are_not_suspected(shares: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one large region a deviation of two standard deviations lasts for years, and 4% of all servers were named."""
    suspected: list[float] = []
    judge = OriginScores.judge

    def judged(self: OriginScores, *args: Any) -> None:
        judge(self, *args)
        suspected.append(float((self.score > SUSPECT).mean()))

    monkeypatch.setattr(OriginScores, "judge", judged)
    truth = 1e6 * np.exp(np.cumsum(np.random.default_rng(1).normal(0.0, 0.002, (200, 1)), axis=0))
    setting: dict[str, Any] = {"servers": 20, "shares": shares, "window": 40, "epsilon": 10.0, "samples": 20, "runs": 4}
    simulate(
        "relay", counts_from_array(np.rint(truth).astype(int).tolist()), turnover=0.02, density=0.15, jobs=1,
        observation="binomial", hops_per_slot="all", **setting,
    )  # fmt: skip
    assert len(suspected) > 100
    assert np.mean(suspected) < 0.01


@pytest.mark.slow
def test_deviations_that_stay_are_no_level_that_has_moved(tmp_path: Path) -> None:
    """A server of a ring hears 3 of 20: filters that learn had 1.75 times the error of those that do not, and more than
    the model alone.
    """
    rng = np.random.default_rng(3)
    level, deviation, crowd = rng.uniform(500.0, 6000.0, 20), np.zeros(20), []
    for _ in range(300):
        deviation = 0.9 * deviation + 0.02 * np.sqrt(1.0 - 0.81) * rng.normal(size=20)
        crowd.append(level * (1.0 + deviation))
    counts = np.rint(crowd).astype(int)
    fit(counts, source="drawn", span="0:0.5", out=tmp_path / "model.toml")
    error = {
        learn: simulate(
            "relay",
            counts,
            servers=20,
            graph="ring",
            reach=1,
            epsilon=1.0,
            window=40,
            samples=8,
            shares="partition",
            turnover=0.02,
            burn_in=170,
            runs=1,
            jobs=1,
            model=tmp_path / "model.toml",
            learn=learn,
        )["relay"].total_error[0]
        for learn in (True, False)
    }
    assert error[True] < 1.25 * error[False]
