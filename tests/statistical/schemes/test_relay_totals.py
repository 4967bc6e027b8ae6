"""Records that have the complete crowd as one sum: what they gain where it has grown, and cost where it has not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import dpcrowd
from dpcrowd.sim.data.span import cut

REGIONS, PUBLIC, SLOTS = 30, 120, 280


def ratios(path: Path, growth: float, seed: int) -> tuple[dict[str, float], float]:
    """Return the error of relay over that of the model alone, with groups and without, and the coverage with groups."""
    rng = np.random.default_rng(seed)
    levels = rng.gamma(0.5, 6.0, REGIONS)
    crowd = np.where(np.arange(SLOTS) < PUBLIC, 1.0, growth) * rng.gamma(40.0, 1.0 / 40.0, SLOTS)
    counts = rng.poisson(levels * crowd[:, None])
    header = ",".join(f"r{k}" for k in range(REGIONS))
    np.savetxt(path, counts, fmt="%d", delimiter=",", header=header, comments="")
    data = dpcrowd.load_data(path)
    model = dpcrowd.fit(cut(data, 0, PUBLIC), source="simulated")
    errors, coverage = {}, 0.0
    for groups in ("auto", "off"):
        result = dpcrowd.simulate(
            ["relay", "past"], cut(data, PUBLIC, SLOTS), model=model, servers=20, window=40, epsilon=0.4, runs=2,
            shares="partition", hops_per_slot="all", groups=groups, seed=seed, jobs=1,
        )  # fmt: skip
        ours, past = (result.records[name] for name in ("relay", "past"))
        errors[groups] = float(ours.total_error.mean() / past.total_error.mean())
        if groups == "auto":
            coverage = float(np.nanmean(ours.coverage95))
    return errors, coverage


@pytest.mark.parametrize("seed", [3, 4])
def test_a_crowd_that_has_grown_is_followed_by_sums(tmp_path: Path, seed: int) -> None:
    """Thirty small regions: records of single ones do not show that the crowd is two and a half times as large."""
    errors, coverage = ratios(tmp_path / "crowd.csv", 2.5, seed)
    assert errors["auto"] < 0.75 * errors["off"]
    assert coverage > 0.88


def test_a_crowd_that_has_stayed_loses_nothing(tmp_path: Path) -> None:
    """Sums that move the estimate by their noise would make it worse than the model alone."""
    errors, coverage = ratios(tmp_path / "crowd.csv", 1.0, 5)
    assert errors["auto"] < 1.01
    assert 0.9 < coverage < 0.995
