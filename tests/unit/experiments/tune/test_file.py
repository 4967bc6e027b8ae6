"""The TOML of tuned parameters: written, read back, given to data, and refused where something is wrong with it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

import dpcrowd
from dpcrowd.errors import BadInput
from dpcrowd.experiments.tune.write import toml_text, write_tuned
from dpcrowd.filters import ProcessModel
from dpcrowd.sim.configure import configure
from dpcrowd.sim.data import load
from dpcrowd.sim.data.counts import counts_from_array
from dpcrowd.sim.data.series import FROM_WHOLE_SERIES
from dpcrowd.sim.data.span import cut
from dpcrowd.sim.tuned import OPTIONAL, Tuned, counts_digest, read_tuned

COUNTS = np.arange(80).reshape(40, 2) ** 2 % 97
PLACE = {"first": 0, "last": 20, "slots": 40}


def _tuned(**changes: Any) -> Tuned:
    values: dict[str, Any] = {
        "version": "0.1.0",
        "scheme": "dpcrowd",
        "data": "array",
        "regions": ("region 0", "region 1"),
        **PLACE,
        "method": "evolution",
        "on": 'slots 0 to 19 of "array"',
        "epsilon": 0.1,
        "guarantee": "finite",
        "length": 40,
        "servers": 6,
        "runs": 2,
        "seed": 3,
        "are_before": 0.1 + 0.2,
        "are_after": 1 / 3,
        "objective": "crps",
        "crps_before": 0.25,
        "crps_after": 0.2,
        "coverage_before": 0.97,
        "coverage_after": 0.94,
        "burn_in": 2,
        "exhausted_at": 14,
        "exhausted_servers": 0.25,
        "sha256": counts_digest(COUNTS[:20]),
        "model": ProcessModel.of(1.0, [1e5 / 3, 2.0]),
        "tuning": {"theta": 1.25, "xi": 0.1},
    }
    return Tuned(**{**values, **changes})


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"model": ProcessModel.of([[0.9, 1 / 3], [0.1, 2 / 3]], [1.0, 2.0])},
        {"model": ProcessModel.of([0.9, 1.0], [1.0, 2.0])},
        {"tuning": {}, "method": "likelihood", "are_before": float("inf")},
        {
            "regions": tuple(f'region "{k}" \\ é \x7f \t' for k in range(40)),
            "model": ProcessModel.of(1.0, np.ones(40) / 7),
        },
        {"tuning": {"gains": (0.9, 0.1, 0.0), "integral_window": 5}},
        {"exhausted_at": None, "exhausted_servers": 0.0},
    ],
    ids=["plain", "matrix", "vector", "likelihood", "many odd names", "other parameters", "a budget that lasts"],
)
def test_what_is_written_is_read_back_to_the_last_bit(changes: dict[str, Any], tmp_path: Path) -> None:
    """A simulation with the file must be the one that was tuned; the same parameters give the same bytes."""
    tuned = _tuned(**changes)
    path = write_tuned(tuned, tmp_path / "some.toml")
    back = read_tuned(path)
    for name in (*Tuned.__dataclass_fields__,):
        if name not in ("model", "tuning", "file"):
            assert getattr(back, name) == getattr(tuned, name), name
    np.testing.assert_array_equal(back.model.process_var, tuned.model.process_var)
    np.testing.assert_array_equal(back.model.transition, tuned.model.transition)
    assert dpcrowd.Tuning(**back.tuning) == dpcrowd.Tuning(**tuned.tuning)
    assert back.file == "some.toml"
    assert toml_text(replace(back, file="x")) == path.read_text(encoding="utf-8")
    assert max(map(len, path.read_text(encoding="utf-8").splitlines())) <= 120
    assert list(tmp_path.iterdir()) == [path], "no half-written file stays behind"


def test_applying_replaces_model_and_tuning_and_says_so() -> None:
    """The note is what keeps an in-sample error from being taken for a result."""
    data = counts_from_array(COUNTS)
    applied = _tuned(file="flu.toml").apply(data)
    np.testing.assert_array_equal(applied.model.process_var, [1e5 / 3, 2.0])
    assert (applied.tuning.theta, applied.tuning.xi) == (1.25, 0.1)
    assert applied.tuning.sample_fraction == data.tuning.sample_fraction, "what was not tuned stays"
    np.testing.assert_array_equal(applied.change_var, data.change_var)
    assert FROM_WHOLE_SERIES not in applied.notes
    assert applied.notes[-1] == (
        "Q, theta, xi of all schemes are from flu.toml, tuned for dpcrowd by evolution at epsilon 0.1 on slots 0 to "
        "19: 20 of the 40 that this result scores, and the error in those is an in-sample one."
    )
    assert replace(_tuned(file="flu.toml"), tuning={}).note(data).startswith("Q of all schemes is from flu.toml")


@pytest.mark.parametrize(
    ("span", "overlap", "text"),
    [
        ((0, 40), 20, "20 of the 40 that this result scores"),
        ((10, 30), 10, "10 of the 20 that this result scores"),
        ((20, 40), 0, "on slots 0 to 19, none of which this result scores."),
        ((0, 20), 20, "20 of the 20 that this result scores"),
    ],
)
def test_the_overlap_is_counted_in_slots_of_the_whole_series(span: tuple[int, int], overlap: int, text: str) -> None:
    """Reporting on the span that was tuned on, without saying so, is what must never happen."""
    part = cut(counts_from_array(COUNTS), *span)
    tuned = _tuned()
    assert tuned.overlap(part) == overlap
    assert text in tuned.apply(part).notes[-1]


def test_a_span_that_starts_later_overlaps_where_it_does() -> None:
    """Slots 15 to 34, tuned on, and 10 to 29, reported: 15 of them."""
    part = cut(counts_from_array(COUNTS), 10, 30)
    tuned = _tuned(first=15, last=35, sha256=counts_digest(COUNTS[15:35]))
    assert tuned.overlap(part) == 15
    assert "revised" not in tuned.apply(part).notes[-1], "nothing is known about counts that are not there"
    inside = cut(counts_from_array(COUNTS), 10, 40)
    assert "revised" not in tuned.apply(inside).notes[-1]
    assert "revised" in _tuned(first=15, last=35).apply(inside).notes[-1]


def test_synthetic_runs_never_overlap() -> None:
    """They are drawn anew, with other seeds."""
    data = load("linear", slots=40)
    tuned = _tuned(data="linear", regions=("crowd",), model=ProcessModel.of(1.0, [5.0]))
    assert tuned.overlap(data) == 0
    assert tuned.apply(data).notes[-1].endswith("on other runs of 'linear' than these.")


def test_a_revised_series_is_noticed() -> None:
    """Published figures are revised: the parameters then come from other counts than the result."""
    revised = COUNTS.copy()
    revised[5, 0] += 1
    assert "the series was revised" in _tuned().apply(counts_from_array(revised)).notes[-1]
    assert "revised" not in _tuned().apply(counts_from_array(COUNTS)).notes[-1]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"data": "flu"}, "flu.toml was tuned on 'flu', but the data are 'array'"),
        ({"regions": ("one",)}, "flu.toml was tuned on 1 region of 'array', but 2 are used"),
        (
            {"regions": ("region 1", "region 0")},
            "flu.toml was tuned on region 'region 1' where the data have 'region 0'",
        ),
    ],
)
def test_parameters_of_other_data_are_refused(changes: dict[str, Any], text: str) -> None:
    """They would be taken without a sign of it, and be wrong by orders of magnitude."""
    with pytest.raises(BadInput) as error:
        _tuned(file="flu.toml", **changes).apply(counts_from_array(COUNTS))
    assert text in str(error.value)


@pytest.mark.slow
def test_simulations_take_a_file_a_path_or_the_parameters(tmp_path: Path) -> None:
    """All three are the same simulation, and another one than without."""
    path = write_tuned(_tuned(), tmp_path / "t.toml")
    settings: dict[str, Any] = {"servers": 4, "density": 0.5, "burn_in": 5, "runs": 2}
    results = [
        dpcrowd.simulate("dpcrowd", COUNTS, tuning=tuning, **settings)["dpcrowd"].are
        for tuning in (path, str(path), read_tuned(path), None)
    ]
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])
    assert (results[0] != results[3]).any()
    config = configure("dpcrowd", COUNTS, tuning=path, **settings)
    assert config.tuning_of(config.entrants[0]).theta == 1.25
    with pytest.raises(BadInput, match=r"a process variance was given, and t\.toml has one, too"):
        configure("dpcrowd", COUNTS, tuning=path, process_var=3.0, **settings)


@pytest.mark.slow
def test_other_schemes_ignore_the_file_and_are_named() -> None:
    """Parameters that were tuned for one scheme made others worse, and nothing said so."""
    settings: dict[str, Any] = {"servers": 4, "density": 0.5, "burn_in": 5, "runs": 2}
    tuned = _tuned(file="flu.toml")
    both = dpcrowd.simulate(["fast", "dpcrowd"], COUNTS, tuning=tuned, **settings)
    plain = dpcrowd.simulate(["fast", "dpcrowd"], COUNTS, **settings)
    np.testing.assert_array_equal(both["fast"].are, plain["fast"].are)
    assert (both["dpcrowd"].are != plain["dpcrowd"].are).any()
    notes = configure(["fast", "dpcrowd"], COUNTS, tuning=tuned, **settings).data.notes
    assert "fast ignores flu.toml: it was tuned for dpcrowd only." in notes
    assert any(note.startswith("Q, theta, xi of dpcrowd are from flu.toml") for note in notes)
    alone = configure("fast", COUNTS, tuning=tuned, **settings).data.notes
    assert not any("are from flu.toml" in note for note in alone)


def test_files_of_earlier_versions_are_read() -> None:
    """They say nothing of the objective and the coverage."""
    text = "\n".join(line for line in GOOD.splitlines() if not line.startswith(OPTIONAL))
    with TemporaryDirectory() as folder:
        path = Path(folder) / "old.toml"
        path.write_text(text, encoding="utf-8")
        old = read_tuned(path)
    assert (old.objective, old.are_after) == ("", 1 / 3)
    assert np.isnan(old.coverage_after)
    assert "coverage_after" not in toml_text(old)


GOOD = toml_text(_tuned())


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("[model]", "[modle]", "t.toml has no section [model]"),
        ("[tuning]", "[more]\na = 1\n[tuning]", "unknown section of t.toml 'more'. Did you mean"),
        ("theta = 1.25", "thetta = 1.25", "unknown key in [tuning] of t.toml 'thetta'. Did you mean 'theta'?"),
        ("seed = 3", "sed = 3", "unknown key in [tuned] of t.toml 'sed'. Did you mean 'seed'?"),
        ("seed = 3\n", "", "t.toml has no 'seed' in [tuned]"),
        ("transition = 1.0\n", "", "t.toml has no 'transition' in [model]"),
        ("seed = 3", "seed = 3.5", "'seed' in [tuned] of t.toml must be a whole number >= 0; given 3.5"),
        ("seed = 3", "seed = -3", "'seed' in [tuned] of t.toml must be a whole number >= 0; given -3"),
        ("seed = 3", "seed = true", "'seed' in [tuned] of t.toml must be a whole number >= 0; given True"),
        ("epsilon = 0.1", 'epsilon = "0.1"', "'epsilon' in [tuned] of t.toml must be a number; given '0.1'"),
        ('scheme = "dpcrowd"', "scheme = 7", "'scheme' in [tuned] of t.toml must be a text; given 7"),
        ('["region 0", "region 1"]', '["region 0", 1]', "'regions' in [tuned] of t.toml must be a list of texts"),
        ("last = 20", "last = 0", "has first = 0, last = 0, slots = 40; allowed: first < last <= slots"),
        (", 2.0]", "]", "'process_var' in [model] of t.toml must be a list of 2 numbers"),
        (", 2.0]", ', "x"]', "[model] of t.toml must hold numbers only"),
        (", 2.0]", ", -2.0]", "[model] of t.toml: process variance must be >= 0"),
        (", 2.0]", ", nan]", "[model] of t.toml: process variance must be finite numbers; given nan"),
        (
            "transition = 1.0",
            "transition = [[1.0], [0.0, 1.0]]",
            "[model] of t.toml: transition must be numbers, in rows of the same length; given",
        ),
        ("transition = 1.0", "transition = [1.0]", "[model] of t.toml: transition has shape (1,)"),
        ("theta = 1.25", "theta = -1.0", "[tuning] of t.toml: tuning parameter theta must be a finite number >= 0"),
        ("theta = 1.25", 'theta = "x"', "[tuning] of t.toml: tuning parameter theta must be"),
        ("theta = 1.25", "theta = ", "t.toml' is not TOML:"),
        ("xi = 0.1", f"xi = {'9' * 38}", "'xi' in [tuning] of t.toml is 999"),
        ("theta = 1.25", f"gains = [0.1, {10**400}, 0]", "'gains' in [tuning] of t.toml is ["),
        (", 2.0]", f", {10**400}]", "[model] of t.toml must hold numbers only"),
        ("epsilon = 0.1", f"epsilon = {10**400}", "'epsilon' in [tuned] of t.toml must be a number"),
        ("epsilon = 0.1", "epsilon = -4", "'epsilon' in [tuned] of t.toml must be a finite number > 0; given -4."),
        ("epsilon = 0.1", "epsilon = nan", "'epsilon' in [tuned] of t.toml must be a finite number > 0; given nan."),
        ("servers = 6", "servers = 0", "'servers' in [tuned] of t.toml must be a whole number >= 1; given 0."),
        ('"finite"', '"foo"', "unknown guarantee in [tuned] of t.toml 'foo'. Allowed: finite, window."),
        ('"evolution"', '"foo"', "unknown method in [tuned] of t.toml 'foo'. Allowed: evolution, likelihood."),
        ('"dpcrowd"', '"nonsense"', "unknown scheme in [tuned] of t.toml 'nonsense'."),
    ],
)
def test_a_damaged_file_is_refused_with_its_name_and_place(old: str, new: str, text: str, tmp_path: Path) -> None:
    """People edit such files: a typo that is passed over leaves a default where a value was meant."""
    assert GOOD.count(old) == 1
    path = tmp_path / "t.toml"
    path.write_text(GOOD.replace(old, new), encoding="utf-8")
    with pytest.raises(BadInput) as error:
        read_tuned(path)
    assert text in str(error.value)
    assert "\n" not in str(error.value)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    """The name is in the message: the current folder is the usual mistake."""
    with pytest.raises(BadInput, match=r"cannot read tuning file '.*nowhere\.toml'"):
        read_tuned(tmp_path / "nowhere.toml")
    with pytest.raises(BadInput, match="cannot read tuning file"):
        read_tuned(tmp_path)
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(BadInput, match="is not UTF-8 text"):
        read_tuned(tmp_path / "bytes.toml")
