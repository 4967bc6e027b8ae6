"""Central: one filter that hears every sample, and reads sums of groups with what it expects itself."""

from __future__ import annotations

import numpy as np
import pytest

import dpcrowd
from dpcrowd.sim.data.span import cut


@pytest.mark.parametrize("seed", [1, 2])
def test_sums_of_small_regions_are_no_count_of_each_of_them(seed: int) -> None:
    """What a server expects of the other regions is not what the centre expects of them: each of 40 regions would take
    the people of all for its own, and no later sum would correct it.
    """
    rng = np.random.default_rng(seed)
    expected = np.tile(rng.gamma(0.4, 3.0, 40), (160, 1))
    expected[80:] *= 3.0
    data = dpcrowd.counts_from_array(rng.poisson(expected), process_var=1.0)
    model = dpcrowd.fit(cut(data, 0, 80), source="drawn", season="none")
    central = dpcrowd.simulate(
        "central",
        cut(data, 80, 160),
        model=model,
        servers=20,
        shares="partition",
        window=40,
        runs=2,
        seed=seed,
        jobs=1,
        observation="binomial",
        keep_estimates=True,
    ).records["central"]
    truth = expected[80:].sum(axis=1).mean()
    assert central.estimates is not None
    assert central.estimates.sum(axis=-1).max() < 2.5 * truth
