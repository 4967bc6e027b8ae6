"""The file of a model: it comes back to the last bit, and a mistake in it is one clear line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import dpcrowd
from dpcrowd.errors import BadInput
from dpcrowd.models.file import model_digest, model_text, parse_model, read_model, write_model
from dpcrowd.models.model import Model
from dpcrowd.models.season import SlotTimes
from dpcrowd.sim.data.counts import counts_from_array


def fitted(season: int | str = 7) -> Model:
    days = np.arange(140) % 7
    counts = np.random.default_rng(0).poisson(np.stack([20 + 10 * (days < 5), 5 + 0 * days], axis=1))
    return dpcrowd.fit(counts_from_array(counts, regions=["hall", "garden"]), source="a test", season=season)


def test_it_comes_back_to_the_last_bit(tmp_path: Path) -> None:
    """Servers that read another number than was written would disagree in the last digit for ever."""
    model = fitted()
    again = read_model(write_model(model, tmp_path / "model.toml"))
    assert model_text(again) == model_text(model)
    assert model_digest(again) == model_digest(model)
    first, second = (one.process_model(["hall", "garden"], None, 3) for one in (model, again))
    assert first.course is not None
    assert second.course is not None
    assert first.course.profile.tobytes() == second.course.profile.tobytes()
    assert first.course.variance.tobytes() == second.course.variance.tobytes()


def test_regions_are_found_by_name() -> None:
    """The file of another town, or a sorted list, must not hand one region the level of another."""
    model = fitted()
    process = model.process_model(["garden", "hall"], None)
    assert process.course is not None
    assert process.course.mean(0)[0] == pytest.approx(5, abs=1.5)
    assert model.process_model(["hall"], None).regions == 1
    with pytest.raises(BadInput, match=r"the model has no region 'cellar'; it has 'hall', 'garden'. Fit it on"):
        model.process_model(["hall", "cellar"], None)


def test_slots_of_another_length_are_refused() -> None:
    """Deviations of an hour are not those of a day."""
    model = replace(fitted("none"), slot=3_600_000_000)
    with pytest.raises(BadInput, match="was fitted on slots of 1h, but slots are 1d long here"):
        model.process_model(["hall"], SlotTimes(0, 86_400_000_000))


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('kind = "ar1"', 'kind = "ar2"', "unknown kind of m.toml 'ar2'"),
        ("season = 7", 'season = "moon"', "season of m.toml is 'moon'; allowed: none, day, week"),
        ("slots = 140", "slots = 0", "'slots' of m.toml is 0; allowed: a whole number from 1"),
        ('source = "a test"\n', "", "m.toml has no source; .*dpcrowd fit --source TEXT"),
        ('source = "a test"', 'source = " "', "m.toml has no source; .*dpcrowd fit --source TEXT"),
        ('name = "garden"', 'name = "hall"', "m.toml has region 'hall' twice"),
        ("level = ", "levl = ", "unknown key in \\[region\\] of m.toml 'levl'. Did you mean 'level'"),
        ("transition = 0", "transition = 1", "transition of 'hall' in m.toml is 1.*; allowed: from 0 to below 1"),
        ("[scores]", "[score]", "unknown section of m.toml 'score'. Did you mean 'scores'"),
        ("[[region]]", "[region]", "is not TOML|has no \\[\\[region\\]\\]"),
        ('variance = "', 'variance = "x', "unknown variance of m.toml"),
    ],
)
def test_a_mistake_is_one_clear_line(old: str, new: str, why: str) -> None:
    """Whoever edits a file by hand needs the place and what is allowed."""
    text = model_text(fitted())
    assert old in text
    with pytest.raises(BadInput, match=why):
        parse_model(text.replace(old, new, 1), "m.toml")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    """A path with a typing mistake is the most frequent error of all."""
    with pytest.raises(BadInput, match=r"cannot read model file .*: No such file"):
        read_model(tmp_path / "none.toml")
    (tmp_path / "image.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(BadInput, match="is not UTF-8 text; give a file that 'dpcrowd fit' wrote"):
        read_model(tmp_path / "image.toml")
    with pytest.raises(BadInput, match="cannot write"):
        write_model(fitted(), tmp_path / "nowhere" / "model.toml")
