"""The smoothed history of a simulation: asked for or not, in any batches, and as the command line shows it."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpcrowd import counts_from_array, fit
from dpcrowd.cli.main import main
from dpcrowd.errors import BadInput
from dpcrowd.schemes import relay
from dpcrowd.schemes.relay import Relay
from dpcrowd.sim import simulate as simulate_module
from dpcrowd.sim.result import SimulationResult
from dpcrowd.sim.simulate import simulate
from dpcrowd.sim.smoothed import Smoothed
from sim_support import TINY, assert_same_records, tiny_words

ARRAYS = tuple(Smoothed.__dataclass_fields__)


def tiny(scheme: Any = None, **more: Any) -> SimulationResult:
    schemes = {"relay": scheme or Relay(samples=8, lag=5), "dpcrowd": "dpcrowd"}
    return simulate(schemes, **{**TINY, "keep_estimates": True, "jobs": 1, **more})


@pytest.mark.parametrize("form", ["diagonal", "matrix"])
def test_what_was_released_at_once_stays_what_it_was(form: Any) -> None:
    """A smoothed value in the place of the real-time one would make a server look as if it knew the future."""
    plain, asked = tiny(form=form), tiny(form=form, smoothed=True)
    assert not plain.smoothed
    assert list(asked.smoothed) == ["relay"]
    assert_same_records(plain["relay"], replace(asked["relay"], smoothed=None))
    assert_same_records(plain["dpcrowd"], asked["dpcrowd"])


@pytest.mark.parametrize("reach", [1, "all"])
@pytest.mark.parametrize("form", ["diagonal", "matrix"])
def test_every_slot_is_there_and_the_last_is_the_filter(form: Any, reach: Any) -> None:
    """Slots that were mixed up in the ring, or lost at its end, would show as gaps or in the last slot."""
    result = tiny(Relay(samples=8, lag=5, reach=reach), form=form, smoothed=True)
    record, smoothed = result["relay"], result.smoothed["relay"]
    assert record.estimates is not None
    assert record.variances is not None
    assert smoothed.estimates.shape == record.estimates.shape == (2, 30, 6, 1)
    np.testing.assert_array_equal(smoothed.estimates[:, -1], record.estimates[:, -1])
    np.testing.assert_array_equal(smoothed.variances[:, -1], record.variances[:, -1])
    assert np.isfinite(smoothed.estimates).all()  # even where a server had heard nothing yet
    assert (smoothed.variances <= record.variances * (1 + 1e-9)).all()
    low, high = smoothed.interval
    assert (low < smoothed.estimates).all()
    assert (smoothed.estimates < high).all()


def test_measurements_do_not_depend_on_what_the_filters_believe() -> None:
    """What a filter knew, or has learned, in a measurement would be fitted again as if the crowd had shown it."""
    histories = [
        tiny(Relay(samples=8, lag=5, reach="all", guard=False), smoothed=True, observation="paper", learn=learn)
        for learn in (False, True)
    ]
    first, second = (one.smoothed["relay"] for one in histories)
    assert not np.allclose(first.estimates, second.estimates, rtol=1e-3)
    measured = np.isfinite(first.measurement_variances)
    assert 0.1 < measured.mean() < 1.0
    np.testing.assert_array_equal(measured, np.isfinite(second.measurement_variances))
    np.testing.assert_allclose(first.measurements[measured], second.measurements[measured], rtol=1e-6)
    np.testing.assert_allclose(first.measurement_variances[measured], second.measurement_variances[measured], rtol=1e-6)
    assert np.isnan(first.measurements[~measured]).all()


def test_the_sum_of_a_group_is_no_measurement_of_its_members() -> None:
    """Each of them would be measured by the same sum, less what was expected of the others: of the model, once more."""
    counts = np.random.default_rng(3).poisson([0.5, 0.5, 0.5, 400.0], (24, 4))
    data, scheme = counts_from_array(counts, process_var=1.0), Relay(samples=6, groups="auto")
    network = {"servers": 3, "shares": "partition", "window": 12, "epsilon": 0.5}
    result = simulate(scheme, data, runs=1, jobs=1, smoothed=True, **network)
    measured = np.isfinite(result.smoothed["relay"].measurement_variances[0])
    assert measured[..., 3].any()
    late = measured[12:, :, :3]
    assert late.mean() < 0.5 * measured[12:, :, 3].mean()


@pytest.mark.slow
def test_a_region_in_a_group_is_measured_by_records_that_read_it_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """One server that joins regions would otherwise take away what all others of the slot have measured and paid for.

    Every second of six servers has the sum of all regions in its records; the others read each region by itself.
    """
    counts = np.random.default_rng(4).poisson([40.0, 15.0, 90.0], (160, 3))
    public = counts_from_array(counts[:60])
    model = replace(fit(public, source="drawn", season="none"), region_correlation=0.3)
    monkeypatch.setattr(relay, "join_all", lambda state, slot, shares, due, *_: due & (np.arange(len(due)) % 2 == 0))
    monkeypatch.setattr(relay, "choose_groups", lambda state, *_: np.tile(np.arange(3), (state.setting.servers, 1)))
    data = counts_from_array(counts[60:])
    asked: dict[str, Any] = {"servers": 6, "shares": "partition", "window": 10, "epsilon": 3.0, "turnover": 1.0}
    asked |= {"model": model, "smoothed": True, "runs": 1, "jobs": 1}
    history = simulate(Relay(samples=10, groups="auto", reach="all"), data, **asked).smoothed["relay"]
    variance, error = history.measurement_variances[0, :, 0], history.measurements[0, :, 0] - counts[60:]
    known = np.isfinite(variance).all(axis=1)
    assert known.mean() > 0.8, "some slots end before a record of the other servers has arrived"
    variance, error = variance[known], error[known]
    assert 0.8 < (np.square(error) / variance).mean() < 1.25, "no sum, and nothing that a model expects, is in it"
    assert np.abs(np.corrcoef(error.T)[0, 1]) < 0.3, "a sum would give all of its members the same error"
    alone = simulate(Relay(samples=10, groups="off", reach="all"), data, **asked).smoothed["relay"]
    assert 1.5 < np.median(variance / alone.measurement_variances[0, known, 0]) < 3.0, "half of the records tell half"


@pytest.mark.slow
def test_smoothed_slots_are_more_accurate_also_where_regions_share_a_draw() -> None:
    """Groups come and go with what was released: a pass back over their sums that was wrong would cost accuracy."""
    level = np.array([2.0, 1.0, 3.0, 2.0, 1.0, 200.0, 2.0, 1.0])
    season = np.exp(0.3 * np.sin(np.arange(40) / 8))[:, None]
    counts = np.random.default_rng(0).poisson(level * season)
    settings: dict[str, Any] = {"servers": 6, "runs": 1, "window": 20, "epsilon": 0.1, "lag": 6, "process_var": 2.0}
    settings |= {"shares": "partition", "observation": "binomial", "reach": "all", "jobs": 1, "smoothed": True}
    grouped, single = (simulate("relay", counts.tolist(), groups=groups, **settings) for groups in ("auto", "off"))
    smoothed = grouped.smoothed["relay"]
    assert (smoothed.mse < 0.8 * grouped["relay"].mse).all()
    assert (smoothed.mse < 0.8 * single.smoothed["relay"].mse).all(), "groups were in use"
    assert (smoothed.coverage95 > 0.9).all()


def test_batches_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The history of a run must not depend on who shares its batch, nor get into another run's place."""
    together = tiny(runs=3, smoothed=True).smoothed["relay"]
    monkeypatch.setattr(simulate_module, "_BATCH_VALUES", 1)
    apart = tiny(runs=3, smoothed=True).smoothed["relay"]
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(together, name), getattr(apart, name), err_msg=name)


def test_schemes_without_records_have_no_history() -> None:
    """Estimates that have been mixed with the neighbours' cannot be smoothed exactly: better none than a wrong one."""
    with pytest.raises(BadInput, match="needs a scheme that keeps records, such as relay; given: dpcrowd, dfast"):
        simulate("dpcrowd,dfast", smoothed=True, **TINY)


def test_summary_and_table_have_it_only_if_it_was_asked_for() -> None:
    """Programs that read the table must not find columns of numbers that nobody computed."""
    plain, asked = tiny(), tiny(smoothed=True)
    assert "smoothed" not in plain.summary()[0]
    assert not [name for name in plain.table() if name.startswith("smoothed")]
    relay, other = asked.summary()
    assert relay["smoothed"]["are"]["mean"] == pytest.approx(asked.smoothed["relay"].are.mean())
    assert relay["smoothed"]["coverage95"] == pytest.approx(asked.smoothed["relay"].coverage95.mean())
    assert "smoothed" not in other
    table = asked.table()
    assert table["smoothed_are"] == [*asked.smoothed["relay"].are.tolist(), None, None]


def test_command_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """`--smoothed` is what a user types: columns in the table, an object in the JSON, columns in the file."""
    out = tmp_path / "runs.csv"
    words = tiny_words("relay,dpcrowd", "--samples", "8", "--smoothed")
    assert main([*words, "--out", str(out)]) == 0
    assert "smoothed ARE" in capsys.readouterr().out
    assert main([*words, "--json"]) == 0
    relay, other = json.loads(capsys.readouterr().out)["results"]
    assert 0 < relay["smoothed"]["are"]["mean"] < relay["are"]["mean"]
    assert "smoothed" not in other
    with out.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [bool(row["smoothed_are"]) for row in rows] == [True, True, False, False]
    assert main(tiny_words("dpcrowd", "--smoothed")) != 0
    assert "keeps records" in capsys.readouterr().err
