"""A fitted model in a simulation: all filters know it, and a result says what it has seen."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import dpcrowd
from dpcrowd.cli.main import main
from dpcrowd.errors import BadInput
from dpcrowd.models.file import write_model
from dpcrowd.models.text import _persistence
from dpcrowd.sim.configure import configure
from dpcrowd.sim.data.counts import counts_from_array, counts_from_table, write_counts
from dpcrowd.sim.data.span import cut
from dpcrowd.sim.data.tables import read_table
from dpcrowd.sim.data.times import slot_times
from dpcrowd.sim.fit_notes import with_remarks
from dpcrowd.sim.fitted import apply_model, in_sample_note, overlap, timing_notes

SLOTS = 240
SMALL: dict[str, Any] = {"servers": 6, "density": 0.6, "runs": 2, "window": 20, "jobs": 1, "shares": "partition"}
ONE_RUN: dict[str, Any] = {**SMALL, "runs": 1}


@pytest.fixture(scope="module")
def series(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small counts with a week: 240 days from a Monday on."""
    rng = np.random.default_rng(0)
    days = np.arange(SLOTS) % 7
    counts = rng.poisson(np.stack([60.0 - 30 * (days > 4), 9.0 + 6 * (days > 4), 0.3 + 0 * days], axis=1))
    labels = [str(np.datetime64("2024-01-01") + day) for day in range(SLOTS)]
    path = tmp_path_factory.mktemp("series") / "town.csv"
    write_counts(path, counts, ["hall", "park", "tower"], labels, "date")
    return path


@pytest.fixture(scope="module")
def model(series: Path) -> dpcrowd.Model:
    """A model of the first half of the series."""
    return dpcrowd.fit(series, source="made up", span="0:0.5")


def total_error(record: Any, truth: Any) -> float:
    """Return the error of what is estimated; without a model nothing is known of the first slots."""
    errors = np.abs(record.estimates - truth[None, :, None, :])
    return float(np.nanmean(errors) / truth.mean())


@pytest.mark.slow
def test_every_filter_knows_the_model(series: Path, model: dpcrowd.Model) -> None:
    """Where counts are small beside the noise, what was known before decides; a filter that ignores it shows here."""
    data = dpcrowd.load_data(series)
    half = SLOTS // 2
    assert (model.season, model.slots) == ("week", half)
    later = cut(data, half, half + 84)
    truth = later.truth(np.random.default_rng(0))
    settings = {**SMALL, "epsilon": 1.0, "keep_estimates": True}
    schemes = "dpcrowd-w,dpcrowd-plus,rescuedp,drescuedp,central,relay"
    plain = dpcrowd.simulate(schemes, later, **settings)
    known = dpcrowd.simulate(f"{schemes},past", later, model=model, **settings)
    for name in schemes.split(","):
        assert total_error(known[name], truth) < 0.8 * total_error(plain[name], truth), name
    assert total_error(known["relay"], truth) < 1.02 * total_error(known["past"], truth)
    assert 0.9 < known["past"].coverage95.mean() < 0.99
    assert 0.9 < known["relay"].coverage95.mean() <= 0.995


@pytest.mark.slow
def test_the_smoothed_history_of_filters_that_learn(series: Path, model: dpcrowd.Model) -> None:
    """No single A and Q leads from one mixture to the next: a pass back that pretends so grows without bound."""
    later = cut(dpcrowd.load_data(series), SLOTS // 2, SLOTS)
    result = dpcrowd.simulate("relay", later, model=model, smoothed=True, epsilon=20.0, **SMALL)
    smoothed = result.smoothed["relay"]
    assert smoothed.mse.mean() < 1.02 * result["relay"].mse.mean()
    assert 0.9 < smoothed.coverage95.mean() < 0.995


def test_past_reads_nothing_and_costs_nothing(series: Path, model: dpcrowd.Model) -> None:
    """The baseline must not profit from the counts: other counts with the same labels give the same estimates."""
    counts = cut(counts_from_table(read_table(series), "other"), 0, 40)
    result = dpcrowd.simulate("past", counts, model=model, keep_estimates=True, **ONE_RUN)
    shuffled = replace(counts, counts=counts.counts[::-1].copy())
    again = dpcrowd.simulate("past", shuffled, model=model, keep_estimates=True, **ONE_RUN)
    assert np.array_equal(result["past"].estimates, again["past"].estimates)
    (row,) = result.summary()
    assert row["epsilon_paid"] == {"server": None, "moving": None, "roaming": None}
    assert (row["frequency"], row["packets_per_slot"]) == (0.0, 0.0)
    assert "no count is read" in (result.guarantees["past"] or "")
    with pytest.raises(
        BadInput, match="scheme 'past' needs a process model; fit one on public counts or your own releases"
    ):
        dpcrowd.simulate("past", counts, **SMALL)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("span", "first", "burn_in", "seen"),
    [("0:120", 0, 20, 100), ("0:120", 0, 120, 0), ("0:120", 120, 0, 0), ("100:140", 120, 5, 15), ("0:240", 50, 0, 90)],
)
def test_a_model_that_has_seen_the_scored_slots_is_in_sample(
    series: Path, span: str, first: int, burn_in: int, seen: int
) -> None:
    """An error on slots that a model was fitted on is no evidence; the reader has to be told."""
    data = dpcrowd.load_data(series)
    model = dpcrowd.fit(data, source="made up", span=span, season="none")
    result = dpcrowd.simulate("past", cut(data, first, 140), model=model, burn_in=burn_in, **ONE_RUN)
    assert result.summary()[0]["in_sample_slots"] == seen
    assert any(note.startswith("in-sample") and f" {seen} of the slots" in note for note in result.notes) == (seen > 0)
    assert any('asserted by whoever fitted it: "made up"' in note for note in result.notes)


def test_without_labels_the_numbers_of_slots_count() -> None:
    """Data in memory have no times: the same series is known by its name, and slots by their numbers."""
    data = counts_from_array(np.random.default_rng(0).poisson(30, (120, 2)))
    model = dpcrowd.fit(data, source="made up", span="0:60")
    assert configure("past", data, model=model, servers=4, burn_in=50).in_sample == 10
    assert configure("past", cut(data, 60, 120), model=model, servers=4, burn_in=0).in_sample == 0


def test_learning_is_on_with_a_model_and_can_be_switched_off(series: Path, model: dpcrowd.Model) -> None:
    """With a model, learning is what intervals need."""
    assert configure("relay", series, model=model, servers=6, window=20).learn
    assert not configure("relay", series, model=model, learn=False, servers=6, window=20).learn
    matrix = dpcrowd.simulate("relay", cut(dpcrowd.load_data(series), 0, 30), model=model, form="matrix", **ONE_RUN)
    assert any("matrix form do not learn" in note for note in matrix.notes)
    with pytest.raises(BadInput, match="a process variance was given, and the model has one"):
        configure("relay", series, model=model, process_var=5.0, servers=6, window=20)


@pytest.mark.slow
def test_the_command_line(series: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """fit, then simulate --model: the two commands that a user types."""
    out = tmp_path / "model.toml"
    words = ["fit", str(series), "--span", "0:0.5", "--source", "published by the town", "--out", str(out)]
    assert main(words) == 0
    printed = capsys.readouterr().out
    for text in ("season", "week", "expected error, one slot ahead", "coverage of 95% intervals", "slots 0 to 119"):
        assert text in printed
    assert "It costs no ε only if it was fitted on published data" in printed
    words = ["simulate", "--scheme", "relay,past", "--data", str(series), "--model", str(out), "--servers", "6"]
    assert main([*words, "--runs", "1", "--window", "20", "--burn-in", "120", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["results"]
    assert [(row["scheme"], row["model"], row["learn"], row["in_sample_slots"]) for row in rows] == [
        ("relay", "model.toml", True, 0),
        ("past", "model.toml", False, 0),
    ]
    facts = {"model_source": "published by the town", "model_season": "week"}
    assert rows[0].items() >= {**facts, "model_span": "slots 0 to 119 of 'town.csv'"}.items()
    assert "model_earlier_sources" not in rows[0]
    text = out.read_text(encoding="utf-8").replace("\ndata = ", '\nearlier_sources = ["a census"]\ndata = ', 1)
    out.write_text(text, encoding="utf-8")
    assert main([*words, "--runs", "1", "--window", "20", "--burn-in", "120", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["results"][0]["model_earlier_sources"] == ["a census"]
    assert 'of which it keeps a part: "a census"' in " ".join(answer["notes"])
    assert main([*words[:-4], "--model", str(tmp_path / "none.toml")]) == 2
    assert main(["fit", str(series), "--source", " "]) == 2
    assert "say why fitting on these data costs no privacy budget" in capsys.readouterr().err
    assert main(["fit", str(series)]) == 2
    assert main(["fit", str(series), "--source", "x", "--json", "--season", "7"]) == 0
    assert json.loads(capsys.readouterr().out)["model"]["season"] == 7


def test_fit_refuses_a_season_that_was_not_seen_twice(series: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A profile of one season is its noise; its intervals covered 73% of a series, and nothing was said."""
    assert main(["fit", str(series), "--source", "x", "--season", "230"]) == 2
    problem = capsys.readouterr().err
    assert "a season of 230 slots fits once into the 240 slots to be fitted" in problem
    assert "allowed: auto, none, week, or a number of slots from 2 to 120." in problem
    assert main(["fit", str(series), "--source", "x", "--season", "week", "--span", "0:10"]) == 2
    assert "season 'week' fits 1.4 times into the 10 slots to be fitted" in capsys.readouterr().err
    assert main(["fit", str(series), "--source", "x", "--season", "week"]) == 0
    out = capsys.readouterr().out
    assert "note:" not in out
    assert "chosen: season week, " in out
    assert "(smallest CRPS on held-out blocks; --json has the others)" in out, "errors in the table did not decide"
    assert "held out: what was expected of them follows from the slots before them" in out
    model = dpcrowd.fit(series, source="x", season="week")
    (note,) = with_remarks(replace(model, notes=(), scores=replace(model.scores, coverage=0.734)), "week").notes
    assert "only 73% of the 95% intervals contained the counts that were held out" in note
    assert main(["fit", str(series), "--source", "x", "--span", "0:2"]) == 2
    assert "contains 2 slots; a model needs at least 3" in capsys.readouterr().err
    assert main(["fit", str(series), "--source", "x", "--span", "0:1"]) == 2
    problem = capsys.readouterr().err
    assert "contains 1 slot; a model needs at least 3. 0:1 is slot 0 alone" in problem, "not: give two or more"
    single = series.with_name("single.csv")
    single.write_text("hall\n5\n", encoding="utf-8")
    assert main(["fit", str(single), "--source", "x"]) == 2
    assert "single.csv' has 1 slot; a model needs at least 3" in capsys.readouterr().err, "fit has no process_var"


def test_python_and_the_command_line_have_the_same_notes(series: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever fits in Python would not be told that a season lacks times, or that intervals are too narrow."""
    rows = series.read_text(encoding="utf-8").splitlines()
    plain = series.with_name("plain.csv")
    plain.write_text("\n".join(row.partition(",")[2] for row in rows) + "\n", encoding="utf-8")
    assert main(["fit", str(plain), "--source", "x", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["notes"]
    assert any("no times" in note for note in shown)
    assert list(dpcrowd.fit(plain, source="x").notes) == shown


def test_one_slot_is_enough_with_a_model(series: Path) -> None:
    """Without a model one slot asks for a process variance, which a model then refuses: nothing could be given."""
    level = dpcrowd.fit(series, source="x", season="none")
    result = dpcrowd.simulate("past", str(series), slots=1, model=level, runs=1, servers=2, burn_in=0)
    assert np.isfinite(result["past"].total_error).all()
    with pytest.raises(BadInput, match=r"--process-var \(process_var in Python\)"):
        dpcrowd.simulate("uniform", str(series), slots=1, window=1, runs=1, servers=2, burn_in=0)


def test_a_plan_with_a_model(series: Path, model: dpcrowd.Model) -> None:
    """What servers know beforehand makes the predicted error smaller, most of all where epsilon is small."""
    network = {"servers": 4, "graph": "ring", "window": 20, "shares": "partition", "advice": False, "epsilons": [1.0]}
    known = dpcrowd.plan(model=model, epsilon=0.1, **network)
    plain = dpcrowd.plan(data=str(series), epsilon=0.1, **network)
    assert known.error < 0.5 * plain.error
    assert [region.region for region in known.regions] == ["hall", "park", "tower"]
    assert any("A model is public" in remark for remark in known.remarks)
    with pytest.raises(BadInput, match="given beside data, and has levels and variances of its own; leave data out"):
        dpcrowd.plan(model=model, data=str(series), **network)


@pytest.mark.slow
def test_a_plan_says_what_records_gain_over_the_model(
    model: dpcrowd.Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever pays for records that tell nothing new would never learn it from the error with them."""
    network = {"servers": 4, "graph": "ring", "window": 20, "shares": "partition", "advice": False, "epsilons": [1.0]}
    weak, strong = (dpcrowd.plan(model=model, epsilon=epsilon, **network) for epsilon in (1e-4, 10.0))
    assert weak.model_error is not None
    assert weak.total_error == pytest.approx(weak.model_error, rel=0.02)
    assert strong.model_error == weak.model_error, "the model does not depend on the budget"
    assert strong.total_error < 0.9 * weak.model_error
    (remark,) = (remark for remark in weak.remarks if "not expected to be better than the model alone" in remark)
    assert f"a total error of {100 * weak.model_error:.3g}%" in remark
    assert "Of the table, ε = 1 is the least that does better" in remark
    assert not any("model alone" in remark for remark in strong.remarks)
    assert weak.model_error == pytest.approx(model.scores.past), "as the file of the model says"
    plain = dpcrowd.plan(500, process_var=9, **network)
    assert plain.model_error is None
    assert plain.summary()["model_error"] is None
    write_model(model, tmp_path / "model.toml")
    words = ["plan", "--model", str(tmp_path / "model.toml"), "--servers", "4", "--graph", "ring", "--window", "20"]
    assert main([*words, "--epsilons", "1"]) == 0
    assert "the model alone, without any record: a total error of " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("labels", "start", "seconds"),
    [
        (["2024-01-01", "2024-01-02", "2024-01-03"], "2024-01-01T00:00:00", 86400),
        (["2024-01-01T05:00:00Z", "2024-01-01T06:00:00Z"], "2024-01-01T05:00:00", 3600),
        (["2009w40", "2009w41", "2009w42"], "2009-09-28T00:00:00", 7 * 86400),
        (["2009-10", "2009-11", "2009-12"], None, 2629746),
        (["2000-01-01", "2000-04-01", "2000-07-01", "2000-10-01"], "2000-01-01T00:00:00", 3 * 2629746),
        (["2000-Q1", "2000-Q2", "2000-Q3"], "2000-01-01T00:00:00", 3 * 2629746),
        (["2000 Q3", "2000 Q4", "2001 Q1"], None, 3 * 2629746),
        (["2000-01-31", "2000-02-29", "2000-03-31"], "2000-01-01T00:00:00", 2629746),
        (["2000-03-31 00:00:00", "2000-06-30 00:00:00", "2000-09-30 00:00:00"], None, 3 * 2629746),
        (["2000-12-31", "2001-12-31", "2002-12-31"], None, 12 * 2629746),
    ],
)
def test_times_of_labels(labels: list[str], start: str | None, seconds: int) -> None:
    """A season is counted from the labels; one that is read wrongly shifts every profile."""
    times = slot_times(labels)
    assert times is not None
    assert times.length == seconds * 1_000_000
    if start is not None:
        assert np.datetime64(times.start, "us") == np.datetime64(start)
    assert slot_times(["0", "1", "2"]) is None
    assert slot_times(["2009-01", "2009-02", "2009-04"]) is None, "these are not equally long"
    assert slot_times(None) is None


def test_a_model_is_written_to_toml_alone(series: Path, tmp_path: Path) -> None:
    """A TOML text under the name of a table would be refused, or misread, by whatever opens it; and only at the end."""
    for name in ("model.csv", "model"):
        with pytest.raises(BadInput, match=rf"cannot write a model to '{name}'; allowed ending: \.toml"):
            dpcrowd.fit(series, source="published", out=tmp_path / name)
    words = ["fit", str(tmp_path / "no.csv"), "--releases", "--source", "ours", "--out", str(tmp_path / "model.txt")]
    assert main(words) == 2
    assert not list(tmp_path.iterdir())


def test_deviations_that_do_not_persist_are_said_in_words() -> None:
    """A row that reads "0 to 0" looks like a mistake."""
    assert _persistence([0.0, 2e-7]) == "0: deviations do not persist"
    assert _persistence([2e-7, 0.5]) == "0 to 0.5"
    assert _persistence([0.25]) == "0.25"


def without_times(seed: int = 0, slots: int = 96) -> Any:
    """Return counts with a season of 8 slots, in memory, so that they have no times."""
    expected = 40.0 + 30.0 * np.sin(np.arange(slots) * np.pi / 4)
    return counts_from_array(np.random.default_rng(seed).poisson(np.stack([expected, 0.5 * expected], axis=1)))


@pytest.mark.slow
def test_a_season_of_slots_says_where_it_is_taken_to_begin() -> None:
    """On data that begin elsewhere in the season everything was off by half a day, and nothing said so."""
    data = without_times()
    model = dpcrowd.fit(data, source="made up", season=8, span="0:48")
    for part, where in ((data, "begin there"), (cut(data, 52, 96), "begin 52 slots later")):
        (note,) = timing_notes(model, part)
        assert f"its season of 8 slots is counted from slot 0 of '{model.data}'" in note
        assert where in note
    plan = dpcrowd.plan(model=model, servers=4, graph="ring", window=20, slot="15m", advice=False)
    assert any("live servers take it to begin at the network's epoch" in remark for remark in plan.remarks)
    assert any("has no slot length" in remark and "slots of 15m" in remark for remark in plan.remarks)


def test_a_season_of_slots_follows_the_times_where_there_are_any(series: Path) -> None:
    """Rows that are cut off the beginning of a file must not shift the season of a model that knows its times."""
    complete = dpcrowd.load_data(series)
    model = dpcrowd.fit(complete, source="made up", season=7)
    later = replace(cut(complete, 3, SLOTS), first=0)  # as if a file began there
    assert timing_notes(model, later) == []
    profile, shifted = (apply_model(model, data).model.course for data in (complete, later))
    assert profile is not None
    assert shifted is not None
    assert np.array_equal(profile.mean(3), shifted.mean(0))


def test_fit_stores_a_slot_length_of_counts_without_times(
    tmp_path: Path, series: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A model without a slot length is accepted for slots of any length; whoever knows it has to be able to say it."""
    counts, out = tmp_path / "plain.csv", tmp_path / "model.toml"
    write_counts(counts, without_times().counts, ["hall", "park"], [str(slot) for slot in range(96)])
    assert main(["fit", str(counts), "--source", "x", "--slot-length", "1h", "--out", str(out)]) == 0
    assert "these data have no times: beside a constant level, only seasons that repeat" in capsys.readouterr().out
    assert dpcrowd.read_model(out).slot == 3_600_000_000
    with pytest.raises(BadInput, match="fitted on slots of 1h, but slots are 15m long"):
        dpcrowd.plan(model=out, servers=4, graph="ring", window=20, slot="15m")
    assert main(["fit", str(counts), "--source", "x", "--season", "8"]) == 0
    printed = capsys.readouterr().out
    assert "these data have no times" not in printed
    assert "note: the season of 8 slots is counted from slot 0 of 'plain.csv'" in printed
    assert main(["fit", str(counts), "--source", "x", "--season", "8", "--json"]) == 0
    notes = json.loads(capsys.readouterr().out)["model"]["notes"]
    assert any(note.startswith("the season of 8 slots is counted from slot 0") for note in notes), "as in the table"
    assert main(["fit", str(series), "--source", "x", "--slot-length", "1h"]) == 2
    assert "has times, which say that its slots are 1d long; leave it out" in capsys.readouterr().err


def test_the_counts_say_whether_a_model_is_in_sample() -> None:
    """A renamed copy of the fitted file, or some of its columns, passed for data that the model had not seen."""
    counts = np.random.default_rng(0).poisson(30, (60, 4))
    names = ["hall", "park", "pool", "tower"]
    model = dpcrowd.fit(counts_from_array(counts, regions=names), source="made up", span="10:50")

    def seen(rows: Any, regions: list[str], burn_in: int = 0) -> int | None:
        return overlap(model, replace(counts_from_array(rows, regions=regions), name="renamed.csv"), burn_in)

    assert seen(counts, names) == 40
    assert seen(counts, names, 15) == 35
    assert seen(counts[5:], names) == 40  # 5 slots before the span, not 10
    assert seen(counts[:, ::-1], names[::-1]) == 40
    assert seen(counts[:, 1:], names[1:]) == 40
    assert seen(counts[:, :1], names[:1]) is None  # one region may agree by chance
    assert seen(counts[:30], names) is None  # a part of the span
    assert seen(counts + (np.arange(60) == 30)[:, None], names) is None
    note = in_sample_note(model, None)
    assert note is not None
    assert note.startswith("it is unknown whether the model was fitted on slots that are scored here")
    assert in_sample_note(model, 0) is None


def test_other_counts_under_the_same_name_are_not_the_fitted_ones() -> None:
    """Two arrays in memory have one name: all of the second were said to be in-sample."""
    rng = np.random.default_rng(0)
    model = dpcrowd.fit(counts_from_array(rng.poisson(30, (60, 2))), source="made up")
    assert overlap(model, counts_from_array(rng.poisson(30, (60, 2))), 0) is None


@pytest.mark.slow
def test_narrow_intervals_have_two_possible_causes() -> None:
    """The model was blamed where a scheme only samples too rarely to follow the crowd; past takes no samples at all."""
    data = without_times()
    model = dpcrowd.fit(data, source="made up", season=8)
    shifted = counts_from_array(data.counts[4:] * 3)
    result = dpcrowd.simulate("dpcrowd-w,relay,past", shifted, model=model, learn=False, **ONE_RUN)
    causes = {note.partition(":")[0]: note for note in result.notes if "They are too narrow" in note}
    assert causes["past"].endswith("the model does not fit these data.")
    assert causes["dpcrowd-w"].endswith("the model does not fit these data, or samples are too rare to follow them.")
    assert causes["relay"].endswith("With learn=True it learns how far it is off.")
    assert any("given graph, shares, process model and guarantee" in note for note in result.notes)


def test_fit_says_that_too_few_slots_leave_none_to_judge_by(series: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A model of three slots looked like any other, apart from scores that were "unknown"."""
    assert main(["fit", str(series), "--source", "x", "--span", "0:12"]) == 0
    printed = capsys.readouterr().out
    assert "note: 12 slots are too few to hold some of them out" in printed
    assert "give 29 slots or more" in printed
    assert "on 0 slots" not in printed
    assert main(["fit", str(series), "--source", "x", "--span", "0:29"]) == 0
    assert "too few" not in capsys.readouterr().out


def test_an_array_is_fitted_as_the_data_set_of_it() -> None:
    """`simulate` takes arrays; a traceback of a path that is none would be the answer of `fit`."""
    counts = np.random.default_rng(5).poisson(30.0, (120, 2))
    one = dpcrowd.fit(counts, source="drawn", span="0:0.5", regions=["hall", "garden"])
    other = dpcrowd.fit(dpcrowd.counts_from_array(counts, regions=["hall", "garden"]), source="drawn", span="0:0.5")
    assert (one.names, one.digest, one.slots) == (other.names, other.digest, 60)
    assert [region.level for region in one.regions] == [region.level for region in other.regions]
    wrong: list[tuple[Any, dict[str, Any], str]] = [
        (counts, {"gaps": "zero"}, "gaps is for files; of an array of counts"),
        (5, {}, "an object of type int; allowed: the path of a file"),
        (pl.DataFrame({"hall": [1, 2]}), {}, "'DataFrame' has 2 slots; a model needs at least 3"),
        (counts, {"seson": 7}, "unknown option of dpcrowd.fit 'seson'. Did you mean 'season'"),
        ("counts.csv", {"seson": 7}, "unknown option of dpcrowd.fit 'seson'. Did you mean 'season'"),
    ]
    for data, options, why in wrong:
        with pytest.raises(BadInput, match=why):
            dpcrowd.fit(data, source="drawn", **options)


@pytest.mark.parametrize(("months", "rows"), [(1, 12), (3, 4)])
def test_a_month_is_not_like_its_neighbours(months: int, rows: int, tmp_path: Path) -> None:
    """Weeks of a year are smoothed; months that were, too, had half of a December, and quarters no season at all."""
    number = np.arange(10 * rows)
    expected = np.where(number % rows == rows - 1, 2000.0, 800.0)
    counts = np.random.default_rng(3).poisson(expected)[:, None]
    labels = [f"{2010 + months * place // 12}-{months * place % 12 + 1:02d}" for place in number]
    path = tmp_path / "shop.csv"
    write_counts(path, counts, ["shop"], labels, "date")
    fitted = dpcrowd.fit(path, source="drawn")
    assert fitted.season == "year"
    assert fitted.regions[0].profile == pytest.approx([800.0] * (rows - 1) + [2000.0], rel=0.05)


@pytest.mark.parametrize("options", [{}, {"source": None}, {"out": "not TOML"}], ids=str)
def test_without_a_source_nothing_is_read_and_the_error_says_what_to_write(options: Any) -> None:
    """It was a TypeError that named an argument, and neither what it is for nor what it may say."""
    with pytest.raises(BadInput, match=r"dpcrowd\.fit was given no source\. A model is public: .* source='CDC, p"):
        dpcrowd.fit("no such file.csv", **options)


@pytest.mark.parametrize("source", [123, b"x", "", "  "])
def test_a_source_is_a_text(series: Path, source: Any) -> None:
    """`source=None` was written as "None", and every node took it for an assertion."""
    problem = "empty" if isinstance(source, str) else f"{source!r}, which is not a text"
    with pytest.raises(BadInput, match=f"the source is {problem}; say why fitting on these data costs no privacy bud"):
        dpcrowd.fit(series, source=source)


@pytest.mark.parametrize("source", ["ours\nand: more", "red \x1b[31m", "a\tb", "a\u2028b", "a\u202eb"])
def test_a_source_is_one_line(series: Path, source: str) -> None:
    """Every node prints it: a line break would forge a line of a log, and an escape sequence moves a cursor."""
    with pytest.raises(BadInput, match=r"the source has '\\.*', a (line break|control .*), as .*; write it as one"):
        dpcrowd.fit(series, source=source)
    assert dpcrowd.fit(series, source=" Statistik Köln, 2026 – «offen»\n").source == "Statistik Köln, 2026 – «offen»"


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        *(
            ({"season": season}, "or a whole number of slots of at least 2")
            for season in (3.5, 7.0, None, ["day"], True)
        ),
        *(({"span": span}, "give FIRST:LAST as a text") for span in (5, slice(0, 100), (0, 10, 20))),
        ({"out": 5}, "out=5 is not the path of a file"),
        ({"header": "no"}, "header='no' is neither True nor False"),
        ({"round_counts": "no"}, "round_counts='no' is neither True nor False"),
    ],
)
def test_an_argument_of_a_wrong_type_is_refused_in_one_line(series: Path, argument: Any, words: str) -> None:
    """A library user would see a KeyError or TypeError, or a switch that "no" switches on."""
    with pytest.raises(BadInput, match=words):
        dpcrowd.fit(series, source="made up", **argument)


def test_numbers_of_numpy_are_numbers(series: Path) -> None:
    """A season or a span that somebody computed would be refused."""
    span: Any = np.array([0, 100])
    fitted = dpcrowd.fit(series, source="made up", season=np.int64(7), span=span, round_counts=np.bool_(True))  # type: ignore[arg-type]
    assert (fitted.season, fitted.slots) == (7, 100)


def test_levels_far_below_the_mean_are_said() -> None:
    """Sums of estimates are as much too small, where the docs say that estimates can be added up."""
    rng = np.random.default_rng(4)
    bursts = rng.poisson(2.0, (200, 8)) + 100 * (rng.random((200, 8)) < 0.05)
    (note,) = dpcrowd.fit(bursts, source="drawn", season="none").notes
    assert "sums and averages of estimates are too small" in note
    assert f"the span had {bursts.sum(axis=1).mean():.4g} on average" in note
    assert dpcrowd.fit(rng.poisson(5.0, (200, 8)), source="drawn", season="none").notes == ()


def test_a_season_of_labels_that_are_not_understood_says_so(tmp_path: Path) -> None:
    """ "The data have no times" is no help to somebody who sees times in the file."""
    path = tmp_path / "us.csv"
    labels = [f"{1 + day % 12}/1/{2000 + day // 12}" for day in range(60)]
    write_counts(path, np.full((60, 1), 5), ["shop"], labels, "date")
    with pytest.raises(
        BadInput, match=r"season 'year' needs the time of each slot, but labels such as '1/1/2000' are not"
    ):
        dpcrowd.fit(path, source="drawn", season="year")


def test_schemes_without_a_filter_are_named(series: Path, model: dpcrowd.Model) -> None:
    """ "All filters know the model" is true of none of them."""
    result = dpcrowd.simulate(["bd", "duniform", "kalman-uniform"], series, model=model, **ONE_RUN)
    assert any(note.endswith("same estimates with and without the model: bd, duniform.") for note in result.notes)


def test_a_region_that_has_opened_at_the_end_of_the_span_is_named() -> None:
    """Its level is that of the closed days, and nobody sees it in the sum of all regions."""
    rng, slots = np.random.default_rng(0), np.arange(210)
    week = 1.0 + 0.5 * np.sin(2.0 * np.pi * slots / 7.0)
    holidays = np.where(rng.random(210) < 0.05, 0.1, 1.0)
    expected = np.tile(500.0 * (week * holidays)[:, None], (1, 6))
    counts = rng.poisson(expected)
    counts[:190, 2] = 0
    model = dpcrowd.fit(dpcrowd.counts_from_array(counts, regions=list("abcdef")), source="drawn", season=7)
    (note,) = (note for note in model.notes if "less than half as many" in note)
    assert note.startswith("of 1 region the model expects less than half as many people as the span had on average")
    assert "('c' 0." in note
    steady = dpcrowd.fit(dpcrowd.counts_from_array(rng.poisson(expected)), source="drawn", season=7)
    assert not any("less than half" in note for note in steady.notes)


@pytest.mark.slow
def test_a_plan_for_bursts_does_not_promise_more_error_for_more_budget() -> None:
    """Levels of usual slots were taken for means: 206% at epsilon 1 and 521% at 10, where simulations find 110%."""
    rng = np.random.default_rng(10)
    counts = (rng.random((200, 6)) < 0.08) * rng.negative_binomial(1, 0.02, (200, 6))
    model = dpcrowd.fit(counts, source="drawn for this test")
    network = {"servers": 4, "graph": "ring", "window": 20, "shares": "partition", "advice": False}
    planned = dpcrowd.plan(model=model, epsilon=0.3, **network)
    errors = [row.total_error for row in planned.by_epsilon]
    assert (np.diff(errors) <= 0.002).all()
    assert planned.model_error == pytest.approx(model.scores.past)
    assert all(error <= model.scores.past * 1.001 for error in errors)
