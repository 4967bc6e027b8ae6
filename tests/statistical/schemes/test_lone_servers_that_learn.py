"""Filters that learn, at servers that hear nobody, where users stay: a server's own deviation is no evidence twice."""

from __future__ import annotations

import numpy as np
import pytest

import dpcrowd
from dpcrowd.sim.data.counts import counts_from_array


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["kalman-uniform", "rescuedp"])
def test_intervals_hold_where_a_server_has_the_same_users_in_every_slot(scheme: str) -> None:
    """By chance a server has a few users too many, and says so in every sample: for filters that took each of them for
    new evidence the level had moved for certain, and 95% intervals covered 0.74 and 0.83."""
    rng = np.random.default_rng(0)
    counts = rng.poisson(10_000.0, (400, 2))
    model = dpcrowd.fit(counts[:200], source="a series that is public", season="none")
    result = dpcrowd.simulate(
        scheme, counts_from_array(counts[200:]), model=model, runs=8, servers=5, shares="partition", window=20,
        epsilon=1.0, turnover=0.02, jobs=1, seed=1,
    )  # fmt: skip
    assert 0.9 < float(np.nanmean(result[scheme].coverage95)) < 0.995
