"""A fit on releases keeps of the model that made them what the measurements do not contradict."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpcrowd import counts_from_array, fit, fit_releases
from dpcrowd.cli.main import main
from dpcrowd.errors import BadInput
from dpcrowd.filters.model import InCommon
from dpcrowd.models.file import read_model, write_model
from dpcrowd.models.model import Model
from dpcrowd.models.season import DAY
from dpcrowd.sim.earlier import season_notes
from dpcrowd.sim.fitted import model_note

LEVEL = np.array([300.0, 90.0])
NAMES = ("r0", "r1")
MONDAY = datetime(2026, 1, 5, tzinfo=UTC)


def week_of_hours(slots: Any) -> Any:
    """What is expected in hours since Monday: busy days and calm nights, and weekends with a third of the people."""
    busy = np.where(slots // 24 % 7 < 5, 1.2, 0.4) * (1.0 + 0.6 * np.sin(slots % 24 / 24 * 2 * np.pi))
    return busy[:, None] * LEVEL


def days_of_seven(slots: Any) -> Any:
    """What is expected of slots with a season of seven: the last two are calm."""
    return np.where(slots % 7 < 5, 1.2, 0.5)[:, None] * LEVEL


def earlier(expected: Any, slots: int, season: str | int, *, timed: bool = True, **change: Any) -> Model:
    """The model of counts from slot 0 on."""
    counts = np.random.default_rng(1).poisson(expected(np.arange(slots)))
    data = counts_from_array(counts, regions=NAMES)
    if timed:
        data = replace(data, slot_labels=tuple(stamp(slot) for slot in range(slots)))
    return replace(fit(data, source="published", season=season), file="old.toml", **change)


def stamp(slot: int) -> str:
    return (MONDAY + timedelta(hours=slot)).isoformat()


def table(
    path: Path,
    expected: Any,
    first: int,
    slots: int,
    *,
    noise: float = 400.0,
    timed: bool = True,
    measured: bool = True,
) -> Path:
    """Releases with measurements of slots from `first` on."""
    rng = np.random.default_rng(2)
    numbers = np.arange(first, first + slots)
    counts = rng.poisson(expected(numbers))
    values = counts + rng.laplace(0.0, np.sqrt(noise / 2.0), counts.shape)
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        header = ["slot", "region", "estimate", "variance"]
        header += ["measurement", "measurement_variance"] * measured + ["start"] * timed
        rows.writerow(header)
        for slot, row in zip(numbers.tolist(), values, strict=True):
            for name, value in zip(NAMES, row, strict=True):
                rows.writerow([slot, name, value, noise, *[value, noise] * measured, *[stamp(slot)] * timed])
    return path


def test_a_season_of_n_slots_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of releases without times no season is looked for: a fit would take weekdays and weekends for one level."""
    old = earlier(days_of_seven, 210, 7, timed=False)
    write_model(old, tmp_path / "old.toml")
    network = tmp_path / "network.toml"
    network.write_text('[network]\nregions = ["r0", "r1"]\n[scheme]\nname = "relay"\nmodel = "old.toml"\n')
    releases = table(tmp_path / "table.csv", days_of_seven, 213, 60, timed=False)
    for made_with in (old, network):
        model = fit_releases(releases, made_with=made_with, source="ours")
        assert model.season == 7
        for region, level in zip(model.regions, LEVEL, strict=True):
            assert region.profile == pytest.approx(days_of_seven(np.arange(7))[:, 0] / 300.0 * level, rel=0.15)
    assert fit_releases(releases, source="ours").season == "none"
    arguments = ["fit", str(releases), "--releases", "--source", "ours", "--made-with", str(network)]
    assert main(arguments) == 0
    assert "beside a constant level, only the season of the model of --made-with was tried" in capsys.readouterr().out


def test_the_correlation_of_regions_is_kept(tmp_path: Path) -> None:
    """A network with groups = "auto" would join nothing any more after its first fit on its own releases."""
    old = earlier(days_of_seven, 210, 7, timed=False, region_correlation=0.31, in_common=InCommon(0.7, 0.2, 0.1))
    releases = table(tmp_path / "table.csv", days_of_seven, 210, 60, timed=False)
    model = fit_releases(releases, made_with=old, out=tmp_path / "new.toml", source="ours")
    assert model.region_correlation == read_model(tmp_path / "new.toml").region_correlation == 0.31
    assert model.in_common == read_model(tmp_path / "new.toml").in_common == InCommon(0.7, 0.2, 0.1)
    assert [note for note in model.notes if "the correlation of two regions (0.31) was taken from old.toml" in note]
    undone = table(tmp_path / "undone.csv", days_of_seven, 210, 60, noise=30.0, timed=False, measured=False)
    assert fit_releases(undone, made_with=old, source="ours").region_correlation == 0.31
    assert (
        fit_releases(releases, made_with=replace(old, region_correlation=None), source="ours").region_correlation
        is None
    )
    assert fit_releases(releases, source="ours").region_correlation is None
    one = tmp_path / "one.csv"
    one.write_text("\n".join(line for line in releases.read_text().splitlines() if "r1" not in line))
    assert fit_releases(one, made_with=old, source="ours").region_correlation is None, "there are no two regions"


def test_deviations_that_are_mostly_small_are_kept(tmp_path: Path) -> None:
    """A refit, which is what doctor recommends, would follow noise again, as if every slot were an unusual one."""
    old = earlier(days_of_seven, 210, 7, timed=False)
    old = replace(old, regions=(replace(old.regions[0], tails=(0.1, 0.04)), *old.regions[1:]))
    releases = table(tmp_path / "table.csv", days_of_seven, 210, 60, timed=False)
    model = fit_releases(releases, made_with=old, out=tmp_path / "new.toml", source="ours")
    tails = [region.tails for region in read_model(tmp_path / "new.toml").regions]
    assert tails == [region.tails for region in model.regions] == [(0.1, 0.04)] + [None] * (len(tails) - 1)
    assert [note for note in model.notes if "mostly small (usual and unusual) is what old.toml says" in note]
    hours = table(tmp_path / "hours.csv", days_of_seven, 210, 60)
    daily = replace(old, slot=DAY, season="none")
    assert all(region.tails is None for region in fit_releases(hours, made_with=daily, source="ours").regions), (
        "days are not hours"
    )
    plain = fit_releases(releases, source="ours")
    assert all(region.tails is None for region in plain.regions)
    assert not [note for note in plain.notes if "mostly small" in note]


def test_rows_that_are_missing_are_not_taken_for_groups(tmp_path: Path) -> None:
    """A note that blames groups sends operators to a setting that has nothing to do with their table."""
    path = table(tmp_path / "table.csv", days_of_seven, 0, 60)
    lines = path.read_text().splitlines()
    kept = [(number, line) for number, line in enumerate(lines) if number == 0 or number % 7]
    path.write_text("\n".join(line for _, line in kept))
    (note,) = fit_releases(path, season="none", source="ours").notes
    assert note == "17 more rows are missing: a slot has some regions only."
    path.write_text("\n".join(drop(line) if number in (20, 30) else line for number, line in kept))
    _, note = fit_releases(path, season="none", source="ours").notes
    assert note.startswith("some measurements are missing: in 2 of 120 slots x regions")


def test_what_groups_cost_is_said(tmp_path: Path) -> None:
    """A model of 12 measured slots out of 60 would pass for one of all of them."""
    path = table(tmp_path / "table.csv", days_of_seven, 0, 60)
    lines = path.read_text().splitlines()
    kept = [line if int(line.split(",")[0]) < 12 or "r0" in line else drop(line) for line in lines[1:]]
    kept = [line if int(line.split(",")[0]) < 40 else drop(line) for line in kept]
    path.write_text("\n".join([lines[0], *kept]))
    (note,) = fit_releases(path, season="none", source="ours").notes
    assert "in 28 of 120 slots x regions, a region has no measurement of its own" in note
    assert "in 20 of 60 slots, which are 40 slots x regions, no region has one" in note
    sums = [line if int(line.split(",")[0]) % 5 == 0 else drop(line) for line in lines[1:]]
    path.write_text("\n".join([lines[0], *sums]))
    assert fit_releases(path, season="none", source="ours").notes == (), "slots without any record are usual"
    network = tmp_path / "network.toml"
    text = '[network]\nregions = ["r0", "r1"]\n[scheme]\nname = "relay"\nprocess_var = 9.0\n'
    network.write_text(f'{text}groups = "auto"\n')
    notes = fit_releases(path, made_with=network, season="none", source="ours").notes
    assert [note for note in notes if "read in groups: in 48 of 60 slots, which are 96 slots x regions" in note]
    network.write_text(text)
    assert len(fit_releases(path, made_with=network, season="none", source="ours").notes) == 1


def test_groups_are_blamed_only_where_the_network_has_them(tmp_path: Path) -> None:
    """An operator whose network has no groups would look for a setting that is not there."""
    path = table(tmp_path / "table.csv", days_of_seven, 0, 60)
    lines = path.read_text().splitlines()
    path.write_text("\n".join(drop(line) if number == 21 else line for number, line in enumerate(lines)))
    network = tmp_path / "network.toml"
    text = '[network]\nregions = ["r0", "r1"]\n[scheme]\nname = "relay"\nprocess_var = 9.0\n'
    found = {}
    for groups in ("", 'groups = "off"\n', 'groups = "auto"\n'):
        network.write_text(text + groups)
        notes = fit_releases(path, made_with=network, season="none", source="ours").notes
        found[groups] = [note for note in notes if "slots x regions" in note]
    (known,) = found.pop('groups = "auto"\n')
    assert known.startswith("regions were read in groups: in 1 of 120 slots x regions")
    assert list(found.values()) == [[], []]
    (unknown,) = fit_releases(path, season="none", source="ours").notes
    assert "whose records say too little of it, or in which all of them have read it in a group" in unknown
    assert "were read in groups" not in unknown


def drop(line: str) -> str:
    """The row of a region without a measurement."""
    cells = line.split(",")
    return ",".join([*cells[:4], "", "", *cells[6:]])


def test_a_season_of_n_slots_goes_on_where_the_earlier_model_has_it(tmp_path: Path) -> None:
    """Slots of a network are numbered from its epoch, and those of public counts from their own beginning."""
    old = earlier(days_of_seven, 210, 7)

    def in_the_network(slots: Any) -> Any:
        return days_of_seven(slots + 220)

    path = table(tmp_path / "table.csv", in_the_network, 4, 40, timed=False)
    lines = path.read_text().splitlines()
    starts = [stamp(int(line.split(",")[0]) + 220) for line in lines[1:]]
    path.write_text("\n".join([f"{lines[0]},start", *(f"{a},{b}" for a, b in zip(lines[1:], starts, strict=True))]))
    model = fit_releases(path, made_with=old, source="ours")
    assert model.season == 7
    assert model.regions[0].profile == pytest.approx(in_the_network(np.arange(7))[:, 0], rel=0.15)


def test_a_season_that_the_releases_do_not_complete_is_kept(tmp_path: Path) -> None:
    """A week of hours needs two weeks to be found, but only a level to be adjusted: weekends would become working days.

    116 hours end on Friday, and the crowd has grown by half.
    """

    def grown(slots: Any) -> Any:
        return 1.5 * week_of_hours(slots)

    old = earlier(week_of_hours, 504, "hour-of-week")
    releases = table(tmp_path / "table.csv", grown, 504, 116)
    model = fit_releases(releases, made_with=old, source="ours")
    assert model.season == "hour-of-week"
    for region, truth in zip(model.regions, grown(np.arange(168)).T, strict=True):
        assert region.level == pytest.approx(truth.mean(), rel=0.1)
        weekend = slice(5 * 24, None)
        error = np.abs(np.array(region.profile) - truth)[weekend].sum() / truth[weekend].sum()
        assert error < 0.25, "the shape that the public counts have shown, and the new level"
    assert [note for note in model.notes if "season 'hour-of-week' fits 0.69 times" in note]
    assert (
        fit_releases(releases, made_with=old, season="hour-of-week", source="ours").regions[0].level
        == model.regions[0].level
    )
    with pytest.raises(BadInput, match=r"season 'hour-of-week' fits 0.69 times"):
        fit_releases(releases, season="hour-of-week", source="ours")


def test_a_shape_that_has_changed_is_not_kept(tmp_path: Path) -> None:
    """Measurements that contradict the earlier shape must win, or a model could never be corrected."""

    def turned(slots: Any) -> Any:
        return days_of_seven(slots + 3)

    old = earlier(days_of_seven, 210, 7, timed=False)
    model = fit_releases(table(tmp_path / "table.csv", turned, 210, 140, timed=False), made_with=old, source="ours")
    assert model.season == 7
    assert model.regions[0].profile == pytest.approx(turned(np.arange(7))[:, 0], rel=0.15)


def test_a_season_that_is_dropped_is_named(tmp_path: Path) -> None:
    """Whoever fits again would not notice that the new model knows no season any more."""

    def flat(slots: Any) -> Any:
        return np.ones((len(slots), 1)) * LEVEL

    old = earlier(week_of_hours, 210, "day")
    model = fit_releases(table(tmp_path / "table.csv", flat, 210, 200, noise=25.0), made_with=old, source="ours")
    assert model.season == "none"
    better = "was dropped: a constant level predicts the measurements clearly better."
    assert model.notes[0] == f"the season 'day' of old.toml {better}"
    assert season_notes(replace(old, season=7), "none", None, 200) == [f"the season of 7 slots of old.toml {better}"]


def test_a_season_that_cannot_be_tried_is_named(tmp_path: Path) -> None:
    """Without times nobody knows which hour a slot is, and slots of another length have another profile."""
    old = earlier(week_of_hours, 504, "day")
    without = fit_releases(
        table(tmp_path / "table.csv", week_of_hours, 504, 60, timed=False), made_with=old, source="ours"
    )
    assert without.season == "none"
    assert "the season 'day' of old.toml was dropped: the releases have no times" in without.notes[0]
    longer = replace(old, slot=7_200_000_000)
    other = fit_releases(table(tmp_path / "table.csv", week_of_hours, 504, 40), made_with=longer, source="ours")
    assert "was dropped: its slots are 2h long, and those of the releases 1h" in other.notes[0]


def test_few_slots_start_from_the_earlier_model(tmp_path: Path) -> None:
    """Twelve weak measurements would otherwise decide on a and variance, and the season would be gone."""
    old = earlier(days_of_seven, 210, 7, timed=False)
    old = replace(
        old, variance="fixed", regions=tuple(replace(one, transition=0.9, variance=40.0) for one in old.regions)
    )
    model = fit_releases(
        table(tmp_path / "table.csv", days_of_seven, 210, 12, noise=1e4, timed=False), made_with=old, source="ours"
    )
    assert model.season == 7
    assert all(region.transition > 0.6 for region in model.regions)
    assert all(region.profile[0] > 1.5 * region.profile[6] for region in model.regions)


def test_the_season_is_kept_where_filters_are_undone(tmp_path: Path) -> None:
    """Tables without measurements come from networks with a model, too."""
    old = earlier(days_of_seven, 210, 7, timed=False)
    releases = table(tmp_path / "table.csv", days_of_seven, 210, 60, noise=30.0, timed=False, measured=False)
    assert fit_releases(releases, made_with=old, source="ours").season == 7


def test_the_sources_of_earlier_models_are_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A fit on releases washed the source of the model whose numbers it kept out of every promise."""
    old = replace(earlier(days_of_seven, 210, 7, timed=False), source="RAW CHECK-INS")
    releases = table(tmp_path / "table.csv", days_of_seven, 210, 60, timed=False)
    first = fit_releases(releases, made_with=old, source="ours", out=tmp_path / "first.toml")
    assert read_model(tmp_path / "first.toml").sources == first.sources == ("ours", "RAW CHECK-INS")
    second = fit_releases(releases, made_with=tmp_path / "first.toml", source="ours again")
    assert second.sources == ("ours again", "ours", "RAW CHECK-INS")
    assert fit_releases(releases, made_with=first, source="ours").sources == ("ours", "RAW CHECK-INS")
    undone = table(tmp_path / "undone.csv", days_of_seven, 210, 60, noise=30.0, timed=False, measured=False)
    assert fit_releases(undone, made_with=old, source="ours").sources == ("ours", "RAW CHECK-INS")
    assert fit_releases(releases, source="ours").sources == ("ours",), "nothing of it is kept"
    words = ["fit", str(releases), "--releases", "--source", "ours again", "--made-with", str(tmp_path / "first.toml")]
    quoted = '"ours again"; and of earlier models, of which it keeps a part: "ours", "RAW CHECK-INS"'
    assert main(words) == 0
    assert f"Your assertion: {quoted}." in " ".join(capsys.readouterr().out.split())
    assert quoted in model_note(second)
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["model"]["earlier_sources"] == ["ours", "RAW CHECK-INS"]
    many = replace(old, earlier_sources=tuple("abcdefgh"))
    with pytest.raises(BadInput, match=r"parts of models with 9 different sources .* a promise names 8 at most"):
        fit_releases(releases, made_with=many, source="ours")
    assert len(fit_releases(releases, made_with=many, source="c").sources) == 9


def test_a_fit_on_releases_needs_a_source(tmp_path: Path) -> None:
    """In Python it claimed to be on releases of "this network", whoever's they were; the command refused."""
    releases = table(tmp_path / "table.csv", days_of_seven, 210, 60, timed=False)
    with pytest.raises(BadInput, match=r"dpcrowd\.fit_releases was given no source"):
        fit_releases(releases, out=tmp_path / "model.toml")
