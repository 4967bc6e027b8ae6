"""The note on learned shares that take long where links change."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dpcrowd.sim.configure import configure
from dpcrowd.sim.data.counts import counts_from_array
from dpcrowd.sim.late_notes import late_notes

SETTINGS: dict[str, Any] = {
    **{"servers": 30, "density": 0.08, "window": 10, "shares": "partition", "observation": "binomial"},
    **{"hops_per_slot": "all", "share_width": 0.1},
}


@pytest.mark.parametrize(
    ("other", "said"),
    [({}, True), ({"dynamic": False}, False), ({"density": 0.5}, False), ({"share_width": 0.0}, False)],
    ids=str,
)
def test_learned_shares_over_links_that_fall_apart_are_slow(other: dict[str, Any], said: bool) -> None:
    """A simulation took 66 s instead of 4 s, and nobody knew that it was the graph."""
    data = counts_from_array(np.random.default_rng(0).poisson(50, (20, 2)))
    notes = late_notes(configure("relay", data, **{**SETTINGS, **other}))
    assert bool(notes) == said
    assert all("the links do not connect all servers" in note for note in notes)
