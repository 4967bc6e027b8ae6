"""Fitting on releases: the crowd is to be found, not the filter that has smoothed it."""

from __future__ import annotations

import csv
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpcrowd.errors import BadInput
from dpcrowd.filters import ProcessModel, predict, update
from dpcrowd.models.releases import measurements, walk_of
from dpcrowd.sim.fit_releases import fit_releases

SLOTS, LEVEL, A, V = 900, 400.0, 0.5, 900.0


def crowd(rng: np.random.Generator) -> Any:
    """A crowd that deviates from its level by a standard deviation of 30, and half as much a slot later."""
    deviation, values = 0.0, []
    for _ in range(SLOTS):
        deviation = A * deviation + rng.normal(0.0, np.sqrt(V * (1 - A * A)))
        values.append(LEVEL + deviation)
    return np.array(values)[:, None]


def released(rng: np.random.Generator, truth: Any, noise: float) -> tuple[Any, Any, Any]:
    """Means and variances of a random-walk filter with samples in two of three slots; and the samples."""
    model = ProcessModel.of(1.0, [400.0])
    mean, var = np.zeros(1), np.full(1, np.inf)
    means, variances, samples = [], [], []
    for slot in range(SLOTS):
        sample = truth[slot] + rng.normal(0.0, np.sqrt(noise))
        info = np.array([0.0 if slot % 3 == 1 else 1.0 / noise])
        prior, prior_var = predict(mean, var, model)
        mean, var = update(prior, prior_var, info * sample, info)
        means.append(mean)
        variances.append(var)
        samples.append(np.where(info > 0, sample, 0.0))
    return np.array(means), np.array(variances), np.array(samples)


def write(path: Path, mean: Any, variance: Any) -> Path:
    """The table that the client exports."""
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["slot", "start", "region", "estimate", "low", "high", "sampled"])
        for slot in range(len(mean)):
            start = datetime(2026, 1, 5, tzinfo=UTC) + timedelta(hours=slot)
            half = 1.959963984540054 * np.sqrt(variance[slot, 0])
            row = [mean[slot, 0], mean[slot, 0] - half, mean[slot, 0] + half]
            rows.writerow([slot + 70, start.isoformat(), "hall", *row, True])
    return path


def test_the_filter_is_undone() -> None:
    """Measurements that still contained earlier slots would count the same record many times."""
    rng = np.random.default_rng(1)
    mean, variance, samples = released(rng, crowd(rng), 2500.0)
    model = walk_of(variance)
    assert model.process_var == pytest.approx([400.0], rel=1e-6)
    value, noise = measurements(mean, variance, model)
    sampled = np.arange(SLOTS) % 3 != 1
    sampled[0] = False  # of the first slot, nothing before it is known
    assert np.isinf(noise[~sampled]).all()
    assert noise[sampled] == pytest.approx(2500.0, rel=1e-6)
    assert value[sampled] == pytest.approx(samples[sampled], rel=1e-6)


def test_the_model_is_that_of_the_crowd(tmp_path: Path) -> None:
    """The released series is far smoother than the crowd: taken for the crowd, a would be 0.9, and V too small."""
    rng = np.random.default_rng(2)
    mean, variance, _ = released(rng, crowd(rng), 400.0)
    model = fit_releases(write(tmp_path / "estimates.csv", mean, variance), season="none", out=tmp_path / "model.toml")
    region = model.regions[0]
    q = region.variance * (region.level if model.variance == "proportional" else 1.0)
    assert region.level == pytest.approx(LEVEL, rel=0.03)
    assert 0.25 < region.transition < 0.7
    assert q / (1 - region.transition**2) == pytest.approx(V, rel=0.5)
    assert (model.first, model.slots, model.slot) == (70, SLOTS, 3_600_000_000)
    assert "released" in model.source or "releases" in model.source
    assert (tmp_path / "model.toml").exists()


@pytest.mark.parametrize(
    ("header", "why"),
    [
        ("slot,region,value", "has no column 'estimate'"),
        ("slot,region,estimate", "neither 'variance' nor 'low' and 'high'"),
    ],
)
def test_a_table_that_does_not_help_is_refused(tmp_path: Path, header: str, why: str) -> None:
    """Without variances nobody can tell noise from the crowd."""
    path = tmp_path / "estimates.csv"
    path.write_text(f"{header}\n0,hall,5\n1,hall,6\n")
    with pytest.raises(BadInput, match=why):
        fit_releases(path)
