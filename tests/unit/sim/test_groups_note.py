"""What a simulation says of groups that relay does not form."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import dpcrowd
from dpcrowd.sim.data.counts import counts_from_array


@pytest.mark.parametrize(("correlation", "number"), [(None, 1), (0.0, 0), (0.3, 0)])
def test_a_model_that_does_not_say_whether_regions_go_together(correlation: float | None, number: int) -> None:
    """Whoever asks for groups would compare two simulations that are the same, and look for the difference."""
    data = counts_from_array(np.random.default_rng(1).poisson(3.0, (60, 4)))
    model = replace(dpcrowd.fit(data, source="drawn for this test"), region_correlation=correlation)
    result = dpcrowd.simulate(
        "relay", data, model=model, groups="auto", servers=3, density=1.0, window=10, runs=1, jobs=1
    )
    assert sum("no regions are joined" in note for note in result.notes) == number
