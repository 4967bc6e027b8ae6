"""What a simulation says of groups of regions: those that relay forms, and those that it does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

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
    assert sum(note.startswith("relay: ") and "region" in note for note in result.notes) == 1, "one note in any case"


SETTINGS: dict[str, Any] = {"servers": 3, "density": 1.0, "window": 10, "runs": 2, "jobs": 1}


def test_how_many_draws_records_had() -> None:
    """Nobody could see whether groups had changed anything, or how often records had the sum of all regions."""
    few = np.random.default_rng(1).poisson(0.5, (60, 6))
    result = dpcrowd.simulate("relay,uniform", few, groups="auto", samples=5, **SETTINGS)
    joined, uniform = result.summary()
    (note,) = [note for note in result.notes if "draws of noise on average for 6 regions" in note]
    assert f"a record had {joined['draws_per_record']:.3g} draws" in note
    assert 1.0 <= joined["draws_per_record"] < 6.0
    assert 0.0 < joined["sums_of_all"] <= 1.0
    assert "draws_per_record" not in uniform
    draws = result["relay"].draws
    assert draws is not None
    assert draws[:, 0].tolist() == [3 * 60 * 5 / 10] * 2, "every record is counted, in each run"
    assert "draws_per_record" not in dpcrowd.simulate("relay", few, samples=5, **SETTINGS).summary()[0]


@pytest.mark.parametrize(
    ("counts", "reason"),
    [
        (np.full((40, 3), 5000), "no regions were joined: none was small enough beside the noise"),
        (np.full((40, 1), 5), "there is one region, so groups have no effect"),
    ],
)
def test_why_no_regions_were_joined(counts: Any, reason: str) -> None:
    """Two simulations that are the same need a reason."""
    result = dpcrowd.simulate("relay", counts, groups="auto", samples=5, **SETTINGS)
    assert any(f"relay: {reason}" in note for note in result.notes)
    off = dpcrowd.simulate("relay", counts, samples=5, **SETTINGS)
    for name in ("are", "coverage95", "mse", "missing", "bytes_per_slot"):
        assert (getattr(result["relay"], name) == getattr(off["relay"], name)).all(), "as the note says"
    assert result.summary()[0]["draws_per_record"] == counts.shape[1]
    assert result.summary()[0]["sums_of_all"] == 0.0


def test_regions_that_do_not_go_together_are_said_not_to() -> None:
    """With a model, the correlation of its regions is the first thing to look at."""
    rng = np.random.default_rng(2)
    data = counts_from_array(rng.poisson(rng.uniform(300.0, 3000.0, (120, 3))))
    model = replace(dpcrowd.fit(data, source="drawn for this test"), region_correlation=0.0)
    result = dpcrowd.simulate("relay", data, model=model, groups="auto", epsilon=20.0, **SETTINGS)
    assert any("do not rise and fall together (region_correlation 0)" in note for note in result.notes)
