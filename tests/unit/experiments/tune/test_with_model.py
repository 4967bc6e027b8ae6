"""`dpcrowd tune --model`: filters know the model while sampling is searched, and the file says which one it was."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpcrowd
from dpcrowd.cli.main import main
from dpcrowd.errors import BadInput
from dpcrowd.experiments.tune.tune import SEED_OFFSET
from dpcrowd.models.file import model_digest, write_model
from dpcrowd.models.model import Model
from dpcrowd.sim.data.counts import counts_from_array
from dpcrowd.sim.data.span import cut
from dpcrowd.sim.tuned import Tuned, read_tuned

SMALL: dict[str, Any] = {"servers": 4, "density": 0.5}
SEARCH: dict[str, Any] = {**SMALL, "window": 10, "runs": 1, "evaluations": 16, "jobs": 1, "burn_in": 5}
SEASON = np.array([300, 40, 160])
COUNTS = SEASON[np.arange(90) % 3, None] + np.random.default_rng(3).integers(0, 9, (90, 2))


@pytest.fixture(scope="module")
def model() -> Model:
    """A model of the first 40 slots, with a season of three slots that no random walk follows."""
    return replace(dpcrowd.fit(counts_from_array(COUNTS), source="made up", span="0:40", season=3), file="past.toml")


@pytest.fixture(scope="module")
def tuned(model: Model) -> Tuned:
    """What was searched on slots 10 to 49, of which the model has seen 25 after the burn-in."""
    return dpcrowd.tune("dpcrowd-w", COUNTS, span="10:50", model=model, **SEARCH)


@pytest.mark.slow
def test_the_search_scores_filters_that_know_the_model(model: Model, tuned: Tuned) -> None:
    """A model that was not given to the filters, or shifted by the beginning of the span, would have other errors."""
    part = cut(counts_from_array(COUNTS), 10, 50)
    settings: dict[str, Any] = {**SMALL, "window": 10, "runs": 1, "burn_in": 5, "seed": SEED_OFFSET}
    with_model = dpcrowd.simulate("dpcrowd-w", part, model=model, tuning=dict(tuned.tuning), **settings)
    np.testing.assert_allclose(tuned.are_after, with_model["dpcrowd-w"].are.mean(), rtol=1e-12)
    alone = dpcrowd.simulate("dpcrowd-w", part, **settings)
    assert tuned.are_before < alone["dpcrowd-w"].are.mean() / 2


@pytest.mark.slow
def test_the_file_says_with_which_model_it_was_tuned(model: Model, tuned: Tuned, tmp_path: Path) -> None:
    """Without its source and span nobody could tell whether the parameters fit a simulation; Q is not the model's."""
    dpcrowd.tune("dpcrowd-w", COUNTS, span="10:50", model=model, out=tmp_path / "t.toml", **SEARCH)
    back = read_tuned(tmp_path / "t.toml")
    assert (back.process_model, back.process_model_source) == ("past.toml", "made up")
    assert back.process_model_span == "slots 0 to 39 of 'array'"
    assert back.process_model_sha256 == model_digest(model)
    assert back.in_sample_slots == 25, "slots 15 to 39"
    assert any(note.startswith("in-sample: past.toml was fitted on 25 of the slots") for note in tuned.notes)
    assert "tuned on 40 slots, too few to tell" in tuned.notes[0]
    own = cut(counts_from_array(COUNTS), 10, 50).model.process_var
    np.testing.assert_array_equal(back.model.process_var, own, "the Q of a simulation without a model")


@pytest.mark.slow
def test_another_model_than_that_of_the_search_is_said(model: Model, tuned: Tuned) -> None:
    """Sampling that is best with one model need not be with another one; the table would not show the difference."""
    other = replace(model, source="another town", file="other.toml")
    settings: dict[str, Any] = {**SMALL, "window": 10, "runs": 1, "tuning": tuned}

    def remarks(**more: Any) -> list[str]:
        result = dpcrowd.simulate("dpcrowd-w", COUNTS, **settings, **more)
        return [note for note in result.notes if "process model of this result" in note]

    assert remarks(model=model) == []
    assert remarks(model=other) == [
        "these parameters: tuned with past.toml (slots 0 to 39 of 'array'; source: \"made up\"), but the process "
        "model of this result is other.toml (slots 0 to 39 of 'array'); other parameters of sampling may be better "
        "here."
    ]
    assert "of this result is none" in remarks()[0]
    settings["tuning"] = replace(tuned, process_model="", process_model_sha256="")
    assert ": tuned without a process model, but" in remarks(model=model)[0]
    assert remarks() == []


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"method": "likelihood"}, "method 'likelihood' finds Q alone, but A and Q are those of the process model"),
        ({"search_variance": True}, "a search of Q was asked for"),
        ({"transition": "identity"}, "transition 'identity' was given"),
        ({"process_var": 3.0}, "a process variance was given, and the model has one, too"),
    ],
)
def test_nothing_that_the_model_has_is_searched(settings: dict[str, Any], text: str, model: Model) -> None:
    """The Q that was found would be written to the file and never used."""
    with pytest.raises(BadInput, match=text):
        dpcrowd.tune("dpcrowd-w", COUNTS, model=model, **SEARCH, **settings)


@pytest.mark.slow
def test_the_command_takes_a_model(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The option, the row of the table, and the notes that every result with a model has."""
    monkeypatch.chdir(tmp_path)
    write_model(model, "past.toml")
    np.savetxt("array.csv", COUNTS, fmt="%d", delimiter=",", header="region 0,region 1", comments="")
    words = ["tune", "--scheme", "dpcrowd-w", "--data", "array.csv", "--model", "past.toml", "--servers", "4"]
    more = ["--density", "0.5", "--window", "10", "--runs", "1", "--evaluations", "12", "--jobs", "1"]
    assert main([*words, *more, "--out", "t.toml"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "past.toml" in out.partition("theta")[0], "a row of the table"
    assert "Q of 2 regions, without the model" in out
    assert "note: all filters know past.toml" in out
    assert "note: in-sample: past.toml was fitted on 36 of the slots" in out, "slots 4 to 39 of the first half"


@pytest.mark.slow
def test_sources_of_earlier_models_are_in_the_file_and_quoted(model: Model, tmp_path: Path) -> None:
    """What a model keeps of others was found in its own file alone."""
    chain = replace(model, earlier_sources=('the "census"',))
    dpcrowd.tune("dpcrowd-w", COUNTS, span="10:50", model=chain, out=tmp_path / "t.toml", **SEARCH)
    back = read_tuned(tmp_path / "t.toml")
    assert back.process_model_source == 'made up\nthe "census"'
    (note,) = back.other_model_notes(model)
    assert 'source: "made up"; and of earlier models, of which it keeps a part: "the \'census\'")' in note
