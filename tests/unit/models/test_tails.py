"""Which series have deviations that are mostly small, and what their model files say of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dpcrowd.errors import BadInput
from dpcrowd.filters.tails import HEAVY
from dpcrowd.models.file import model_digest, model_text, parse_model, read_model
from dpcrowd.models.model import Model
from dpcrowd.models.tails import tails_in_common
from dpcrowd.sim.fit import fit
from dpcrowd.sim.simulate import simulate

SLOTS = 300


def bursts(seed: int = 0, regions: int = 4) -> np.ndarray:
    """Forty people, and in 3% of the slots four hundred more."""
    rng = np.random.default_rng(seed)
    shape = (SLOTS, regions)
    return rng.poisson(40.0, shape) + (rng.random(shape) < 0.03) * rng.poisson(400.0, shape)


def fitted(counts: np.ndarray) -> Model:
    return fit(counts, source="drawn")


def test_bursts_are_found() -> None:
    """Who takes their variance for that of every slot follows noise in all of them."""
    for region in fitted(bursts()).regions:
        assert region.tails is not None
        usual, unusual = region.tails
        assert usual * region.variance * region.level == pytest.approx(40.0, rel=0.6)  # a Poisson count, in people
        assert 0.005 < unusual < 0.08


@pytest.mark.parametrize("kind", ["normal", "poisson", "small", "laplace", "walk"])
def test_other_deviations_are_usual(kind: str) -> None:
    """A model that sees bursts everywhere would follow nothing: small Poisson counts are skewed, and have none."""
    rng = np.random.default_rng(1)
    shape = (SLOTS, 5)
    level = {
        "normal": 500.0 + 50.0 * rng.normal(size=shape),
        "poisson": np.full(shape, 80.0),
        "small": np.full(shape, 0.3),
        "laplace": 500.0 + 40.0 * rng.laplace(size=shape),
        "walk": 1000.0 + np.cumsum(10.0 * rng.normal(size=shape), axis=0),
    }[kind]
    counts = rng.poisson(np.maximum(level, 0.0))
    assert all(region.tails is None for region in fitted(counts).regions)


def test_a_timetable_with_storms_is_mostly_small() -> None:
    """Scheduled counts vary less than Poisson counts, and that is no reason to take a storm for a usual day."""
    rng = np.random.default_rng(1)
    storm = np.where(rng.random((SLOTS, 1)) < 0.04, rng.uniform(0.5, 0.9, (SLOTS, 1)), 1.0)
    counts = np.rint(80.0 * storm * np.ones(5) + rng.normal(0.0, 1.5, (SLOTS, 5))).astype(np.int64)
    for region in fitted(counts).regions:
        assert region.tails is not None
        assert region.tails[0] < 0.3
        assert 0.01 < region.tails[1] < 0.1


@pytest.mark.parametrize("people", [0.0, 0.005])
def test_where_next_to_nobody_is_expected_deviations_are_mostly_small(people: float) -> None:
    """The variance of such a model is that of rounding, many times that of the counts: filters would follow noise."""
    counts = np.random.default_rng(1).poisson(people, (SLOTS, 5))
    for region in fitted(counts).regions:
        assert region.tails is not None
        assert region.tails[0] < 0.4


def test_counts_in_tens_are_usual() -> None:
    """Their median deviation is 0, and every other slot would be called unusual."""
    counts = 10 * np.rint(np.random.default_rng(1).poisson(60.0, (SLOTS, 6)) / 10.0).astype(np.int64)
    assert all(region.tails is None for region in fitted(counts).regions)


def test_few_slots_show_nothing_rare() -> None:
    """Two of fifty slots are no distribution."""
    assert all(region.tails is None for region in fitted(bursts()[:50]).regions)


def test_a_file_keeps_them_and_older_files_stay_what_they_were(tmp_path: Path) -> None:
    """The digest of a model is part of a network's: a key that is written without need would refuse old neighbours."""
    model = fit(bursts(), source="drawn", out=tmp_path / "model.toml")
    again = read_model(tmp_path / "model.toml")
    assert [region.tails for region in again.regions] == [region.tails for region in model.regions]
    assert model_digest(again) == model_digest(model)
    process = again.process_model(again.names, None)
    assert process.course is not None
    assert process.course.tails is not None
    assert (process.course.tails.usual < HEAVY).all()
    plain = model_text(fitted(np.random.default_rng(2).poisson(50.0, (60, 2))))
    assert "usual" not in plain.split("[[region]]", 1)[1]


@pytest.mark.parametrize(
    "line",
    [
        "usual = 0.0",
        "usual = 1.5",
        'usual = "small"',
        "unusual = 1.0",
        "unusual = 0",
        "unusual = true",
        "usual = 1e-300",
    ],
)
def test_impossible_numbers_are_refused(line: str) -> None:
    """Who edits a file gets a message that names the region, and no NaN."""
    key = line.split(" ", 1)[0]
    lines = model_text(fitted(bursts())).splitlines()
    place = next(number for number, text in enumerate(lines) if text.startswith(f"{key} = "))
    lines[place] = line
    with pytest.raises(BadInput, match=r"usual and unusual of 'region \d' in edited.toml are"):
        parse_model("\n".join(lines), "edited.toml")


def test_one_number_alone_is_refused() -> None:
    """Half of a distribution says nothing."""
    text = "\n".join(line for line in model_text(fitted(bursts())).splitlines() if not line.startswith("unusual"))
    with pytest.raises(BadInput, match="and None; allowed: both"):
        parse_model(text, "edited.toml")


@pytest.mark.slow
def test_bursts_are_followed_where_records_show_them_and_noise_is_not() -> None:
    """With one variance for all slots, relay had 1.00 to 1.02 times the error of the model alone."""
    ratios = []
    for seed in (5, 6):
        counts = bursts(seed, regions=6)
        half = SLOTS // 2
        model = fit(counts[:half], source="drawn")
        records = simulate(
            ["relay", "past"], counts[half:], model=model, servers=20, window=40, epsilon=1.0, runs=2,
            shares="partition", observation="binomial", hops_per_slot="all", jobs=1,
        ).records  # fmt: skip
        ratios.append((records["relay"].total_error / records["past"].total_error).mean())
        assert 0.9 < records["relay"].coverage95.mean() <= 0.995
    assert np.mean(ratios) < 0.97


def test_storms_in_all_regions_are_seen_in_what_they_have_in_common() -> None:
    """What all regions have in common is mostly small, too, where storms and holidays are rare."""
    rng = np.random.default_rng(4)
    normal = rng.normal(0.0, 1.0, 300)
    for transition in (0.0, 0.7):
        course = np.zeros(300)
        for slot in range(1, 300):
            course[slot] = transition * course[slot - 1] + normal[slot] - 12.0 * (rng.random() < 0.03)
        usual, unusual = tails_in_common(course, transition)
        assert 0.1 < usual < 0.4
        assert 0.01 < unusual < 0.08
    assert tails_in_common(normal, 0.0) == (1.0, 0.05), "chance alone is normal"
    assert tails_in_common(np.zeros(300), 0.5) == tails_in_common(course[:50], 0.7) == (1.0, 0.05), "too little to see"


def test_waves_that_last_are_mostly_small_where_usual_slots_are_the_level() -> None:
    """What each slot of a wave adds is normal, and the wave is not: filters would follow noise between the waves."""
    rng = np.random.default_rng(301)
    begins, slots = rng.uniform(0.0, 75.0, 15), np.arange(180)[:, None]
    wave = np.exp(-np.square(((slots - begins) % 75.0 - 37.5) / 8.0))
    model = fitted(rng.poisson(rng.uniform(15.0, 120.0, 15) * (0.3 + 2.0 * wave)))
    assert "of usual slots" in model.reason.partition(":")[0]
    for region in model.regions:
        assert region.tails is not None
        assert region.transition > 0.8
        assert region.tails[0] < 0.4
        assert 0.1 < region.tails[1] < 0.3


def test_bursts_of_the_past_have_a_variance_for_whoever_looks_for_faults() -> None:
    """It follows from the mean and the level, which the file has; without it, a record of a burst looks broken."""
    counts = bursts(regions=2)
    model = fitted(counts)
    tails = model.process_model(model.names, None).course.tails
    assert tails is not None
    assert tails.burst_var is not None
    deviation = np.sqrt(tails.burst_var)
    expected = counts.std(axis=0)
    assert (0.4 * expected < deviation).all()
    assert (deviation < 1.5 * expected).all()
    older = replace(model, regions=tuple(replace(region, mean=None) for region in model.regions))
    assert older.process_model(older.names, None).course.tails.burst_var is None, (
        "files of earlier builds lack the mean"
    )
