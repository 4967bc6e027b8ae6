"""Fitting on releases: the crowd is to be found, not the filter that has smoothed it."""

from __future__ import annotations

import csv
from dataclasses import astuple, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpcrowd
from dpcrowd.cli.main import main
from dpcrowd.errors import BadInput
from dpcrowd.filters import ProcessModel, predict, update
from dpcrowd.models.file import write_model
from dpcrowd.models.releases import check_growth, measurements, walk_of
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


@pytest.mark.slow
def test_the_model_is_that_of_the_crowd(tmp_path: Path) -> None:
    """The released series is far smoother than the crowd: taken for the crowd, a would be 0.9, and V too small."""
    rng = np.random.default_rng(2)
    mean, variance, _ = released(rng, crowd(rng), 400.0)
    model = fit_releases(
        write(tmp_path / "estimates.csv", mean, variance),
        season="none",
        out=tmp_path / "model.toml",
        source="our own releases",
    )
    region = model.regions[0]
    q = region.variance * (region.level if model.variance == "proportional" else 1.0)
    assert region.level == pytest.approx(LEVEL, rel=0.03)
    assert 0.25 < region.transition < 0.7
    assert q / (1 - region.transition**2) == pytest.approx(V, rel=0.5)
    assert (model.first, model.slots, model.slot) == (70, SLOTS, 3_600_000_000)
    assert "released" in model.source or "releases" in model.source
    assert (tmp_path / "model.toml").exists()


def staggered(slots: int = 200) -> tuple[Any, Any]:
    """Means and variances of a filter that hears another server in every slot, as in a relay network: Q is 400."""
    rng, model = np.random.default_rng(3), ProcessModel.of(1.0, [400.0])
    mean, var = np.zeros(1), np.full(1, np.inf)
    means, variances = [], []
    for truth in crowd(rng)[:slots]:
        noise = rng.uniform(900.0, 4e4)
        prior, prior_var = predict(mean, var, model)
        mean, var = update(prior, prior_var, (truth + rng.normal(0.0, np.sqrt(noise))) / noise, np.array([1.0 / noise]))
        means.append(mean)
        variances.append(var)
    return np.array(means), np.array(variances)


def network_file(folder: Path, scheme: str) -> Path:
    """The part of a network.toml that says with which model releases are made."""
    path = folder / "network.toml"
    path.write_text(f'[network]\nregions = ["park", "hall"]\n[scheme]\nname = "relay"\n{scheme}\n', encoding="utf-8")
    return path


def test_a_process_variance_that_the_table_does_not_show_is_not_guessed(tmp_path: Path) -> None:
    """Where every slot has a record, variances grow by a part of Q, with which models were 3000 times too wide."""
    table = write(tmp_path / "estimates.csv", *staggered())
    with pytest.raises(BadInput, match=r"in 1 of 1 regions .*--made-with network.toml.*--process-var NUMBER"):
        fit_releases(table, source="our own releases")
    model = fit_releases(table, process_var=400.0, season="none", source="our own releases")
    assert model.notes == ()
    other = fit_releases(
        table, made_with=network_file(tmp_path, "process_var = [9.0, 400.0]"), season="none", source="our own releases"
    )
    assert [astuple(region) for region in other.regions] == [astuple(region) for region in model.regions]


def test_a_schedule_that_repeats_does_not_show_the_process_variance() -> None:
    """The same weak record after the same variance gives the same growth again and again, and it is not Q."""
    noise = np.where(np.arange(300) % 3 == 0, 2500.0, 9000.0)
    variances, var = [], 700.0
    for slot in range(300):
        var = 1.0 / (1.0 / (var + 400.0) + 1.0 / noise[slot])
        variances.append([var])
    with pytest.raises(BadInput, match="do not show the process variance"):
        walk_of(np.array(variances))


def test_a_wrong_process_variance_is_refused(tmp_path: Path) -> None:
    """With a Q that the variances contradict, every measurement would be wrong, and nobody would notice."""
    _, variance = staggered()
    with pytest.raises(BadInput, match="'hall' grows by more than the given process variance allows"):
        check_growth(variance, ProcessModel.of(1.0, [100.0]), ("hall",))
    rng = np.random.default_rng(1)
    _, shown, _ = released(rng, crowd(rng), 2500.0)
    with pytest.raises(BadInput, match=r"process variance 800 of region 'hall': .* grows by 400"):
        check_growth(shown, ProcessModel.of(1.0, [800.0]), ("hall",))
    check_growth(shown, ProcessModel.of(1.0, [400.0]), ("hall",))


@pytest.mark.parametrize(
    ("scheme", "why"),
    [
        ("", "neither process_var nor model in \\[scheme\\]"),
        ("process_var = [1.0, 2.0, 3.0]", "allowed here: a number from 0, or 2 numbers"),
        ("process_var = 400\ntransition = [[1.0, 0.0], [0.0, 1.0]]", "scheme.transition of .*allowed here"),
        ('model = "missing.toml"', "cannot read model file"),
    ],
)
def test_a_network_file_that_does_not_help_is_refused(tmp_path: Path, scheme: str, why: str) -> None:
    """A setting that was passed over would be a wrong Q."""
    table = write(tmp_path / "estimates.csv", *staggered(20))
    with pytest.raises(BadInput, match=why):
        fit_releases(table, made_with=network_file(tmp_path, scheme), source="our own releases")


@pytest.mark.slow
def test_what_filters_learned_is_said_not_to_be_undone(tmp_path: Path) -> None:
    """Filters that learn are several: the user has to know that only one of them is undone."""
    table = write(tmp_path / "estimates.csv", *staggered())
    old = fit_releases(table, process_var=400.0, season="none", source="our own releases")
    wide = replace(old, regions=tuple(replace(region, variance=1200.0) for region in old.regions), variance="fixed")
    write_model(wide, tmp_path / "old.toml")
    again = fit_releases(table, made_with=tmp_path / "old.toml", season="none", source="our own releases")
    assert again.notes[0].startswith("filters may have learned how")
    network = network_file(tmp_path, 'model = "old.toml"')
    network.write_text(network.read_text(encoding="utf-8").replace('"park", ', ""), encoding="utf-8")
    assert (
        "filters have learned"
        in fit_releases(table, made_with=network, season="none", source="our own releases").notes[0]
    )
    assert old.notes == ()
    network.write_text(network.read_text(encoding="utf-8") + "learn = false\n", encoding="utf-8")
    with pytest.raises(BadInput, match="grows by more than the given process variance allows"):
        fit_releases(
            table, made_with=network, season="none", source="our own releases"
        )  # this table was not made with that model


def test_levels_that_contradict_the_releases_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Undone by a filter that did not make them, releases of 400 people gave a model of 13, and exit code 0."""
    mean, var = np.full((60, 1), 400.0), np.full((60, 1), 100.0)
    mean[:20] = 5.0
    mean[::4] += 0.5
    old = fit_releases(
        write(tmp_path / "first.csv", *staggered()), process_var=400.0, season="none", source="our own releases"
    )
    low = tuple(replace(region, level=5.0, variance=99.0, transition=0.1) for region in old.regions)
    write_model(replace(old, regions=low, variance="fixed"), tmp_path / "low.toml")
    var[::4] = 99.5
    table = write(tmp_path / "estimates.csv", mean, var)
    with pytest.raises(BadInput, match=r"would expect .* people of 'hall' .* where the releases say"):
        fit_releases(table, made_with=tmp_path / "low.toml", season="none", source="our own releases")
    options = ["--releases", "--source", "ours", "--made-with", str(tmp_path / "low.toml"), "--season", "none"]
    assert main(["fit", str(table), *options]) == 2
    assert "with measurements, which need not be undone" in capsys.readouterr().err


def test_a_table_without_measurements_in_its_end_has_no_scores(tmp_path: Path) -> None:
    """A coverage of 0 of nothing would say that the intervals are wrong."""
    means, variances = staggered()
    variances, means = variances.copy(), means.copy()
    grown = np.arange(1, len(means) - 40)[:, None]
    means[41:], variances[41:] = means[40], variances[40] + 400.0 * grown
    fitted = fit_releases(
        write(tmp_path / "estimates.csv", means, variances), process_var=400.0, season="none", source="our own releases"
    )
    assert np.isnan(fitted.scores.coverage)
    assert fitted.scores.slots == 0
    assert any("no measurement of any region" in note for note in fitted.notes)


def test_what_a_table_lacks_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A table with holes would otherwise pass for a complete one; records of missing slots are in the next release."""
    path = write(tmp_path / "estimates.csv", *staggered())
    lines = path.read_text(encoding="utf-8").splitlines()
    cells = lines[20].split(",")
    lines[20] = ",".join([*cells[:3], "NaN", *cells[4:]])
    path.write_text("\n".join(lines[:50] + lines[53:] + lines[-1:]) + "\n", encoding="utf-8")
    assert main(["fit", str(path), "--releases", "--source", "ours", "--season", "none", "--process-var", "400"]) == 0
    shown = capsys.readouterr().out
    for text in (
        "3 of 200 slots are missing",
        "1 of 197 rows have no number",
        "1 row replaced an earlier one of the same slot",
    ):
        assert f"note: {text}" in shown
    assert "(smallest log score on held-out blocks; --json has the others)" in shown
    assert "errors are what the model expects of itself" in shown


def test_measurements_in_every_other_slot_are_enough(tmp_path: Path) -> None:
    """A server that samples every third slot never has two measurements in a row; 0 / 0 would be in its model."""
    rng, model = np.random.default_rng(4), ProcessModel.of(1.0, [400.0])
    truth, mean, var = crowd(rng), np.zeros(1), np.full(1, np.inf)
    means, variances = [], []
    for slot in range(150):
        information = np.array([0.0 if slot % 3 else 1.0 / 400.0])
        prior, prior_var = predict(mean, var, model)
        mean, var = update(prior, prior_var, information * (truth[slot] + rng.normal(0.0, 20.0)), information)
        means.append(mean)
        variances.append(var)
    fitted = fit_releases(
        write(tmp_path / "estimates.csv", np.array(means), np.array(variances)),
        season="none",
        source="our own releases",
    )
    region = fitted.regions[0]
    settled = region.variance * (region.level if fitted.variance == "proportional" else 1.0)
    assert region.level == pytest.approx(LEVEL, rel=0.05)
    assert settled / (1 - region.transition**2) == pytest.approx(V, rel=0.6)


def test_a_span_of_a_table_is_fitted_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a span, no slots of a table could be kept for scoring; a span has to be what a shorter table is."""
    path = write(tmp_path / "all.csv", *staggered())  # slots 70 to 269
    lines = path.read_text(encoding="utf-8").splitlines()
    (tmp_path / "part").mkdir()
    part = tmp_path / "part" / "all.csv"
    part.write_text("\n".join([lines[0], *lines[31:131]]) + "\n", encoding="utf-8")
    expected = fit_releases(part, process_var=400.0, season="day", source="our own releases")
    assert (expected.first, expected.slots) == (100, 100)
    for span in ("100:200", (100, 200), "0.15:0.65"):
        fitted = fit_releases(path, process_var=400.0, season="day", span=span, source="our own releases")
        assert [astuple(region) for region in fitted.regions] == [astuple(region) for region in expected.regions]
        assert (fitted.digest, fitted.begins, fitted.first) == (expected.digest, expected.begins, expected.first)
        assert astuple(fitted.scores) == astuple(expected.scores)
    assert fit_releases(path, process_var=400.0, span="200:", source="our own releases").slots == 70
    measured = measured_table(tmp_path / "m.csv", np.full((120, 2), 50), 100.0)
    assert fit_releases(measured, span=":60", source="our own releases").slots == 60
    words = ["fit", str(path), "--releases", "--source", "ours", "--process-var", "400", "--span"]
    assert main([*words, "100:200"]) == 0
    assert "fitted on slots 100 to 199" in capsys.readouterr().out
    assert main([*words, "0:70"]) == 2
    assert "span '0:70' contains none of the slots of all.csv, 70 to 269" in capsys.readouterr().err
    assert main([*words, "100:300"]) == 2
    assert "span '100:300' ends at slot 300, but the data have slots 70 to 269; allowed: 70:270" in (
        capsys.readouterr().err
    )
    assert main([*words, "0.5:1.5"]) == 2
    assert "or slots (70:270)" in capsys.readouterr().err
    assert main([*words, "70:71"]) == 2
    assert (
        "has releases of 1 slot in span 70:71 (0:1 is slot 0 alone; fractions have a point" in capsys.readouterr().err
    )


def measured_table(path: Path, counts: Any, noise: float, estimate: Any = None, hidden: tuple[int, ...] = ()) -> Path:
    """A table with measurements of this noise in every other slot; regions in `hidden` have estimates only."""
    rng = np.random.default_rng(5)
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["slot", "region", "estimate", "low", "high", "measurement", "measurement_variance"])
        for slot, row in enumerate(counts):
            for region, count in enumerate(row):
                value = count if estimate is None else estimate[region]
                measured = slot % 2 == 0 and region not in hidden
                numbers = [count + rng.laplace(0.0, np.sqrt(noise / 2.0)), noise] if measured else ["", ""]
                rows.writerow([slot, f"r{region}", value, value - 40.0, value + 40.0, *numbers])
    return path


def test_measurements_of_a_table_need_nothing_to_be_undone(tmp_path: Path) -> None:
    """Estimates of filters that learn cannot be undone: a network that runs with a model could never fit again."""
    rng = np.random.default_rng(6)
    level = np.array([400.0, 150.0, 60.0])
    deviation = np.zeros((300, 3))
    for slot in range(1, 300):
        deviation[slot] = 0.7 * deviation[slot - 1] + rng.normal(0.0, 0.1 * level)
    counts = rng.poisson(np.maximum(level + deviation, 0.0))
    model = fit_releases(
        measured_table(tmp_path / "table.csv", counts, 100.0, level), season="none", source="our own releases"
    )
    assert model.notes == ()
    for region, truth, people in zip(model.regions, (level + deviation).T, level, strict=True):
        settled = region.variance * (region.level if model.variance == "proportional" else 1.0)
        assert region.level == pytest.approx(truth.mean(), rel=0.1)
        assert 0.4 < settled / (1 - region.transition**2) / (np.var(truth) + people) < 2.5
    assert 0.5 < model.scores.past / 0.14 < 2.0, "of counts, and not of the noise of their measurements"


@pytest.mark.parametrize("measured", [True, False])
def test_a_wrong_argument_is_refused_with_and_without_measurements(
    measured: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where a table has measurements, a process variance was not even looked at."""
    counts = np.full((60, 2), 50)
    path = measured_table(tmp_path / "releases.csv", counts, 100.0, hidden=() if measured else (0, 1))
    arguments: list[tuple[dict[str, Any], str]] = [
        ({"process_var": "x"}, "process_var is 'x'; allowed here: a number from 0"),
        ({"process_var": -1}, "process_var is -1; allowed here: a number from 0"),
        ({"process_var": 4.0, "made_with": "network.toml"}, "are both given; leave one out"),
        ({"made_with": 5}, "made_with=5 is not the path of a file"),
        ({"out": 5}, "out=5 is not the path of a file"),
        ({"span": 5}, "span=5 is not allowed"),
    ]
    if measured:
        arguments.append(({"season": 2.5}, "or a whole number of slots of at least 2"))
    for argument, words in arguments:
        with pytest.raises(BadInput, match=words):
            fit_releases(path, source="our own releases", **argument)
    assert main(["fit", str(path), "--releases", "--source", "ours", "--process-var", "-1"]) == 2
    assert "--process-var is -1.0; allowed here" in capsys.readouterr().err


@pytest.mark.parametrize("part", [0.002, 0.01, 0.1])
def test_large_crowds_that_hardly_change_are_fitted(tmp_path: Path, part: float) -> None:
    """A grid that is too coarse would make the variance of a large region too large by orders of magnitude."""
    rng = np.random.default_rng(10)
    counts = 1e5 * (1.0 + part * rng.standard_normal((200, 1)))
    model = fit_releases(
        measured_table(tmp_path / "table.csv", counts, 100.0, [1e5]), season="none", source="our own releases"
    )
    (region,) = model.regions
    settled = region.variance * (region.level if model.variance == "proportional" else 1.0)
    assert 0.4 < settled / (1 - region.transition**2) / np.var(counts) < 2.5


@pytest.mark.parametrize(("noise", "calmer"), [(640.0, False), (30.0, True)])
def test_noisy_measurements_do_not_show_that_a_crowd_is_calmer_than_persons(
    tmp_path: Path, noise: float, calmer: bool
) -> None:
    """Users who stay at their servers look like a part of the level: a Poisson crowd looked up to 25 times calmer than
    it is, and intervals of the next model covered as little as 0.40. Precise measurements may say so."""
    table = measured_table(tmp_path / "table.csv", np.full((240, 3), 300.0), noise)
    model = fit_releases(table, season="none", source="our own releases")
    for region in model.regions:
        unit = region.level if model.variance == "proportional" else 1.0
        settled = region.variance * unit / (1.0 - region.transition**2)
        assert (settled < 0.9 * region.level) == calmer


def test_an_empty_region_and_one_in_groups_do_not_block_a_fit(tmp_path: Path) -> None:
    """One region that nobody visits would keep all others from a model."""
    rng = np.random.default_rng(7)
    counts = rng.poisson([0.0, 300.0, 150.0, 8.0], (240, 4))
    table = measured_table(tmp_path / "table.csv", counts, 900.0, [0.4, 290.0, 155.0, 8.5], hidden=(3,))
    model = fit_releases(table, season="none", source="our own releases")
    empty, large, _, grouped = model.regions
    assert 0.0 < empty.level < 3.0
    assert large.level == pytest.approx(300.0, rel=0.05)
    assert grouped.level == pytest.approx(8.5, rel=0.2)
    assert all(np.isfinite([region.variance, region.transition]).all() for region in model.regions)
    assert model.notes[0].startswith("some measurements are missing: in 120 of 960 slots x regions, a region has no")
    assert "'r3' of 4 regions: measured by themselves in fewer than 3" in model.notes[1]
    nothing = measured_table(tmp_path / "short.csv", counts[:4], 900.0)
    with pytest.raises(BadInput, match="at most 2 slots in which anything was learned"):
        fit_releases(nothing, source="our own releases")


def test_a_span_that_begins_without_any_measurement_is_fitted(tmp_path: Path) -> None:
    """Slots that were final before servers stored measurements have none: a median of nothing is a warning, and NaN."""
    counts = np.random.default_rng(9).poisson([80.0, 30.0], (160, 2))
    lines = measured_table(tmp_path / "table.csv", counts, 400.0).read_text(encoding="utf-8").splitlines()
    empty = [line.rsplit(",", 2)[0] + ",," for line in lines[1:161]]
    (tmp_path / "late.csv").write_text("\n".join([lines[0], *empty, *lines[161:]]) + "\n", encoding="utf-8")
    model = fit_releases(tmp_path / "late.csv", season="none", source="our own releases")
    assert [region.level for region in model.regions] == pytest.approx([80.0, 30.0], rel=0.15)


def test_regions_that_say_little_start_from_the_model_before(tmp_path: Path) -> None:
    """A network at a small epsilon would forget with every fit what it knew from public data."""
    rng = np.random.default_rng(8)
    counts = rng.poisson(np.where(np.arange(210)[:, None] % 7 < 5, 1.2, 0.5) * np.array([60.0, 25.0]))
    before = dpcrowd.fit(dpcrowd.counts_from_array(counts, regions=["r0", "r1"]), source="our own releases", season=7)
    table = measured_table(tmp_path / "table.csv", counts, 1e5)
    after = fit_releases(table, made_with=before, season=7, source="our own releases")
    for one, other in zip(before.regions, after.regions, strict=True):
        assert other.level == pytest.approx(one.level, rel=0.2)
        assert 0.2 < other.variance / one.variance < 5.0
        assert other.profile[0] > 1.5 * other.profile[6]
    elsewhere = replace(before, regions=(before.regions[0], replace(before.regions[1], name="harbour")))
    with pytest.raises(
        BadInput, match=r"the model lacks 'r1' of 2 regions of the releases, so they were not made with"
    ):
        fit_releases(table, made_with=elsewhere, season=7, source="our own releases")
    plain = fit_releases(table, process_var=3.0, season=7, source="our own releases")
    assert "the process variance that was given was not used" in plain.notes[0]
    network = tmp_path / "network.toml"
    text = '[network]\nregions = ["r0", "r1"]\n[scheme]\nname = "relay"\nprocess_var = 9.0\n'
    network.write_text(text, encoding="utf-8")
    walk = fit_releases(table, made_with=network, season=7, source="our own releases")
    assert f"the process variance of '{network}' was not used" in walk.notes[0], "none was given"
    bare = fit_releases(table, season=7, source="our own releases")
    assert not any("was not used" in note for note in bare.notes)


def test_a_gap_is_crossed_by_prediction() -> None:
    """A release after a gap would count as new what it has kept from before the gap."""
    model = ProcessModel.of(1.0, [400.0])
    mean, variance = np.array([[50.0], [0.0], [50.0]]), np.array([[100.0], [np.inf], [900.0]])
    assert np.isinf(measurements(mean, variance, model)[1]).all()  # 100 + 2 Q: nothing new


def test_the_function_for_counts_names_that_for_releases(tmp_path: Path) -> None:
    """The option of the command is a function of its own in Python."""
    with pytest.raises(BadInput, match=r"give releases to dpcrowd.fit_releases"):
        dpcrowd.fit(tmp_path / "estimates.csv", source="our own releases", releases=True)
    assert dpcrowd.fit_releases is fit_releases


@pytest.mark.parametrize(
    ("header", "why"),
    [
        ("slot,region,value", "has no column 'estimate'"),
        ("slot,region,estimate", "neither 'variance' nor 'low' and 'high'"),
        ("slot,region,estimate,variance,measurement", "only one of the columns measurement and measurement_variance"),
    ],
)
def test_a_table_that_does_not_help_is_refused(tmp_path: Path, header: str, why: str) -> None:
    """Without variances nobody can tell noise from the crowd."""
    path = tmp_path / "estimates.csv"
    more = ",5" * (header.count(",") - 2)
    path.write_text(f"{header}\n0,hall,5{more}\n1,hall,6{more}\n")
    with pytest.raises(BadInput, match=why):
        fit_releases(path, source="our own releases")


def test_what_is_no_table_of_releases_is_told_how_to_get_one(tmp_path: Path) -> None:
    """Whoever has counts, or a path with a typing error, has to learn what can be given."""
    counts = tmp_path / "hours.csv"
    counts.write_text("time,hall\n2026-01-01T00:00Z,5\n2026-01-01T01:00Z,6\n", encoding="utf-8")
    with pytest.raises(BadInput, match=r"no column 'slot', .*without --releases.*client\.estimates.*curl"):
        fit_releases(counts, source="our own releases")
    measured = measured_table(tmp_path / "m.csv", np.full((20, 2), 50), 100.0)
    with pytest.raises(BadInput, match=r"'nofile.toml' \(--made-with\) is not a file that .*; give the network.toml"):
        fit_releases(measured, made_with="nofile.toml", source="our own releases")
