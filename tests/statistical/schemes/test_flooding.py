"""Flooded averages of filters: intervals that are as wide as the errors which all filters share."""

from __future__ import annotations

import numpy as np

import dpcrowd
from dpcrowd.sim.data.counts import counts_from_array


def test_an_average_of_filters_covers_what_it_says() -> None:
    """The mean standard deviation bounds any correlation, and intervals of it covered more than 99%."""
    rng = np.random.default_rng(6)
    walk = 2000.0 + np.cumsum(rng.normal(0.0, 12.0, (160, 6)), axis=0)
    data = counts_from_array(np.rint(walk).astype(np.int64))
    result = dpcrowd.simulate(
        "dkalman-uniform", data, servers=12, window=20, epsilon=1.0, runs=4, shares="partition", observation="binomial",
        turnover=1.0, burn_in=40, jobs=1, seed=3,
    )  # fmt: skip
    assert 0.92 < float(np.nanmean(result["dkalman-uniform"].coverage95)) < 0.985
