"""Regions that rise and fall together: what all have in common is followed where each alone shows next to nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import dpcrowd
from dpcrowd.arrays import Ints
from dpcrowd.sim.data.counts import counts_from_array
from dpcrowd.sim.data.span import cut

SLOTS, REGIONS = 360, 15


def crowd(rng: np.random.Generator) -> Ints:
    """Counts of regions with one factor that lasts, and chance of each region's own that does not."""
    together = np.zeros(SLOTS)
    for slot in range(1, SLOTS):
        together[slot] = 0.8 * together[slot - 1] + rng.normal(0.0, 0.1)
    own = rng.normal(0.0, 0.08, (SLOTS, REGIONS))
    return rng.poisson(rng.uniform(30.0, 600.0, REGIONS) * np.exp(together[:, None] + own))


def test_a_fitted_model_follows_what_regions_have_in_common() -> None:
    """Without the belief, weak records are compared with every region alone, and say little of any."""
    data = counts_from_array(crowd(np.random.default_rng(11)))
    public, scored = cut(data, 0, SLOTS // 2), cut(data, SLOTS // 2, SLOTS)
    model = dpcrowd.fit(public, source="drawn for this test")
    assert model.in_common is not None
    assert 0.6 < model.in_common.transition < 0.95, "and not that of chance, which is new in every slot"
    errors, coverage = [], []
    for known in (model, replace(model, in_common=None)):
        result = dpcrowd.simulate(
            ["relay"],
            scored,
            model=known,
            servers=20,
            window=40,
            epsilon=0.1,
            runs=2,
            shares="partition",
            observation="binomial",
            hops_per_slot="all",
            groups="auto",
            seed=3,
            jobs=1,
        ).records["relay"]
        errors.append(result.total_error)
        coverage.append(np.nanmean(result.coverage95))
    assert np.exp(np.log(errors[0] / errors[1]).mean()) < 0.97
    assert 0.9 <= coverage[0] <= 0.99
