"""Does the interval of the total of all regions cover the total? Simulated crowds whose regions go together."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import dpcrowd
from dpcrowd.filters.total import total_vars
from dpcrowd.schemes.base import half_width
from dpcrowd.sim.data.dataset import DataSet
from dpcrowd.sim.data.span import cut

REGIONS, PUBLIC, SLOTS, RHO = 12, 600, 1400, 0.35


@pytest.fixture(scope="module", params=[0.4, 0.9])
def crowd(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[DataSet, dpcrowd.Model]:
    """Counts whose deviations last with a, and have the correlation RHO between any two regions; and their model."""
    a, rng = float(request.param), np.random.default_rng(3)
    levels = 300.0 * rng.lognormal(0.0, 0.5, REGIONS)
    new = np.sqrt(RHO) * rng.normal(size=(SLOTS, 1)) + np.sqrt(1.0 - RHO) * rng.normal(size=(SLOTS, REGIONS))
    deviation = new.copy()
    for slot in range(1, SLOTS):
        deviation[slot] = a * deviation[slot - 1] + np.sqrt(1.0 - a * a) * new[slot]
    counts = np.maximum(levels * (1.0 + 0.25 * deviation), 0.0)
    path, header = tmp_path_factory.mktemp("crowd") / "crowd.csv", ",".join(f"r{k}" for k in range(REGIONS))
    np.savetxt(path, counts.round(), fmt="%d", delimiter=",", header=header, comments="")
    data = dpcrowd.load_data(path)
    model = dpcrowd.fit(cut(data, 0, PUBLIC), season="none", source="simulated")
    # What `fit` writes is below the truth, by what chance could explain.
    return cut(data, PUBLIC, SLOTS), replace(model, region_correlation=RHO)


@pytest.mark.parametrize("groups", ["off", "auto"])
@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_the_interval_of_a_total_covers_it(crowd: tuple[DataSet, dpcrowd.Model], epsilon: float, groups: str) -> None:
    """Added as if regions were independent, 95% intervals contained three of four totals, and those of regions 95%."""
    data, model = crowd
    result = dpcrowd.simulate(
        "relay", data, model=model, servers=4, window=40, epsilon=epsilon, runs=1, shares="partition", turnover=1,
        hops_per_slot="all", groups=groups, seed=1, jobs=1, keep_estimates=True,
    )  # fmt: skip
    records = result.records["relay"]
    estimates, variances = records.estimates[0, :, 0], records.variances[0, :, 0]
    error = np.abs(estimates.sum(axis=1) - data.counts.sum(axis=1))
    total = total_vars(list(variances), range(len(variances)), model.process_model(data.regions, None))
    assert (error <= half_width(variances.sum(axis=1))).mean() < 0.85, "or the test could not fail"
    assert 0.9 < (error <= half_width(total)).mean() < 0.995
