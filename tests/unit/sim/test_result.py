"""The result of a simulation: summary, tidy tables, comparisons, merging of batches, and what it prints."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dpcrowd.errors import BadInput
from dpcrowd.privacy import Paid
from dpcrowd.sim.recorder import RunRecords
from dpcrowd.sim.result import METRICS, SimulationResult, _digits, merge_records
from dpcrowd.sim.simulate import simulate
from sim_support import TINY, assert_same_records


@pytest.fixture(scope="module")
def result() -> SimulationResult:
    return simulate("non-private,fast,dpcrowd", **{**TINY, "runs": 4})


def _record(label: str, runs: list[int], **more: Any) -> RunRecords:
    numbers = np.array(runs, dtype=np.float64)
    values: dict[str, Any] = {name: numbers + place for place, name in enumerate(METRICS)}
    values |= {"missing": np.zeros(len(runs))}
    values |= {"are_by_slot": numbers[:, None] + np.arange(3.0), "ace_by_slot": numbers[:, None] * np.ones(3)}
    values |= {
        "paid": tuple(Paid(run, run + 1, run + 2) for run in runs),
        "seconds": 2.0,
        "server_slots": 10 * len(runs),
    }
    return RunRecords(label=label, runs=np.array(runs), **{**values, **more})


def test_the_summary_has_the_keys_of_the_json_object(result: SimulationResult) -> None:
    """Programs read these names; one that is renamed breaks them without a word."""
    for row in result.summary():
        assert list(row) == [
            *("scheme", "are", "ace", "total_error", "mae", "rmse"),
            *("frequency", "packets_per_slot", "heartbeats_per_slot", "bytes_per_slot"),
            *("latency_ms", "epsilon_paid", "coverage95", "by_size"),
            *("exhausted_at", "exhausted_servers", "horizon_over_at", "server_slots_per_second", "burn_in"),
            *("turnover", "shares", "composition", "share_width"),
            *("promise", "claimed_by", "passes_checks"),
        ]
        for metric in ("are", "ace", "total_error", "mae", "rmse"):
            assert list(row[metric]) == ["mean", "ci95"]
        assert [list(entry) for entry in row["by_size"]] == [["least", "most", "share", "mae", "total_error"]] * 4
        assert row["burn_in"] == TINY["burn_in"]
        assert list(row["epsilon_paid"]) == ["server", "moving", "roaming"]


def test_the_summary_is_made_of_the_arrays(result: SimulationResult) -> None:
    """The table that people read has to be the mean of the arrays that they can check."""
    for row in result.summary():
        record = result[row["scheme"]]
        assert row["are"]["mean"] == pytest.approx(record.are.mean())
        assert row["are"]["ci95"][0] < record.are.mean() < row["are"]["ci95"][1]
        assert row["ace"]["mean"] == pytest.approx(record.ace.mean())
        for name in ("frequency", "packets_per_slot", "bytes_per_slot"):
            assert row[name] == pytest.approx(getattr(record, name).mean())
        assert row["server_slots_per_second"] == record.server_slots / record.seconds


def test_payment_is_the_worst_run_not_the_mean() -> None:
    """A promise that holds on average is no promise."""
    row = SimulationResult({"a": _record("a", [10**9, 3 * 10**9])}, {"a": "x"}, ()).summary()[0]
    assert row["epsilon_paid"] == {"server": 3.0, "moving": 3.000000001, "roaming": 3.000000002}


def test_undefined_is_none() -> None:
    """NaN is not JSON: a reader of the object would fail on it."""
    nothing = np.full(2, np.nan)
    record = _record("a", [0, 1], are=nothing, latency_ms=nothing, coverage95=nothing, paid=(), seconds=0.0)
    result = SimulationResult({"a": record}, {"a": None}, ())
    row = result.summary()[0]
    assert row["are"] == {"mean": None, "ci95": None}
    assert row["latency_ms"] is row["coverage95"] is row["server_slots_per_second"] is None
    assert row["epsilon_paid"] == {"server": None, "moving": None, "roaming": None}
    table = result.table()
    assert table["are"] == table["coverage95"] == table["epsilon_paid_moving"] == [None, None]
    assert "ARE undefined" in repr(result)


def test_the_table_is_tidy(result: SimulationResult) -> None:
    """One row a scheme and run, columns of equal length, values as plain Python numbers."""
    table = result.table()
    assert list(table) == [
        *("scheme", "run", *METRICS),
        *("epsilon_paid_server", "epsilon_paid_moving", "epsilon_paid_roaming"),
    ]
    assert {len(column) for column in table.values()} == {12}
    assert table["scheme"] == ["non-private"] * 4 + ["fast"] * 4 + ["dpcrowd"] * 4
    assert table["run"] == [0, 1, 2, 3] * 3
    assert table["are"][4:8] == result["fast"].are.tolist()
    assert table["latency_ms"][4:8] == [None] * 4
    assert table["epsilon_paid_server"][:4] == [None] * 4
    assert table["epsilon_paid_server"][8:] == [paid.staying / 1e9 for paid in result["dpcrowd"].paid]
    assert {type(value) for column in table.values() for value in column} == {str, int, float, type(None)}


def test_the_series_is_the_mean_over_the_runs_of_each_slot(result: SimulationResult) -> None:
    """The figure over time, the burn-in included."""
    series = result.series()
    assert list(series) == ["scheme", "slot", "are", "ace"]
    assert series["slot"] == [*range(30)] * 3
    assert series["are"][30:60] == pytest.approx(result["fast"].are_by_slot.mean(axis=0).tolist())
    assert series["ace"][60:] == pytest.approx(result["dpcrowd"].ace_by_slot.mean(axis=0).tolist())


def test_a_run_without_an_estimate_does_not_hide_the_others_of_its_slot() -> None:
    """At the start some runs know nothing yet; the mean is over those that do, and None where none does."""
    by_slot = np.array([[np.nan, np.nan, 1.0], [np.nan, 4.0, 3.0]])
    result = SimulationResult({"a": _record("a", [0, 1], are_by_slot=by_slot)}, {"a": None}, ())
    assert result.series()["are"] == [None, 4.0, 2.0]


def test_schemes_are_compared_run_by_run(result: SimulationResult) -> None:
    """The comparison is of the arrays of the metric that was asked for."""
    found = result.compare("dpcrowd", "fast")
    assert (found.first, found.second, found.metric, found.runs) == ("dpcrowd", "fast", "are", 4)
    assert found.difference == pytest.approx((result["dpcrowd"].are - result["fast"].are).mean())
    assert result.compare("fast", "dpcrowd", metric="frequency").difference == pytest.approx(
        (result["fast"].frequency - result["dpcrowd"].frequency).mean()
    )


def test_unknown_names_are_refused_with_the_nearest(result: SimulationResult) -> None:
    """A KeyError or an AttributeError tells nobody which names exist."""
    with pytest.raises(BadInput, match=r"unknown scheme of this result 'dpcrwd'\. Did you mean 'dpcrowd'\?"):
        result["dpcrwd"]
    with pytest.raises(BadInput, match=r"unknown metric 'frequence'\. Did you mean 'frequency'\?"):
        result.compare("fast", "dpcrowd", metric="frequence")
    with pytest.raises(BadInput, match="no runs in common with a defined latency_ms"):
        result.compare("fast", "dpcrowd", metric="latency_ms")


def test_parts_of_workers_are_merged_in_the_order_of_the_runs() -> None:
    """Workers finish in any order; a value under another run's number would break every pairing."""
    parts = [_record("a", [3, 4]), _record("a", [0, 1, 2]), _record("a", [5])]
    whole = merge_records(parts)
    assert_same_records(whole, _record("a", [0, 1, 2, 3, 4, 5]))
    assert whole.seconds == 6.0
    kept = merge_records([_record("a", [1], estimates=np.ones((1, 2))), _record("a", [0], estimates=np.zeros((1, 2)))])
    assert kept.estimates is not None
    assert kept.estimates[:, 0].tolist() == [0.0, 1.0]
    assert merge_records([_record("a", [1], paid=()), _record("a", [0], paid=())]).paid == ()


def test_a_result_prints_as_a_few_lines(result: SimulationResult) -> None:
    """At a Python prompt thousands of numbers would scroll by."""
    lines = repr(result).splitlines()
    assert lines[0] == "SimulationResult of 4 runs"
    assert len(lines) == 4
    fast = result["fast"]
    assert lines[2].startswith(f"  fast: total error {fast.total_error.mean():.4g} ± ")
    assert f", coverage {fast.coverage95.mean():.3g}, ARE {fast.are.mean():.4g} ± " in lines[2]
    assert f", MAE {fast.mae.mean():.4g} ± " in lines[2]
    assert "e+" not in repr(result), "errors of hundreds of people are whole numbers"
    assert "coverage undefined, ARE 0 ± 0" in repr(_result(_record("a", [0, 0])))
    assert "±" not in repr(simulate("fast", **{**TINY, "runs": 1}))


def _result(record: RunRecords) -> SimulationResult:
    return SimulationResult({record.label: replace(record, coverage95=np.array([np.nan, np.nan]))}, {}, ())


def test_scores_are_those_of_all_estimates() -> None:
    """Total error, MAE and RMSE against plain sums over every estimate from the burn-in on."""
    counts = np.random.default_rng(8).integers(0, 60, (40, 3)) * np.array([0, 1, 40])
    settings = {**TINY, "slots": 40}
    result = simulate("kalman-uniform", counts, keep_estimates=True, **settings)
    record = result["kalman-uniform"]
    assert record.estimates is not None
    errors = np.abs(record.estimates - counts[:, None, :])[:, TINY["burn_in"] :]
    people = counts[TINY["burn_in"] :].sum() * TINY["servers"]
    np.testing.assert_allclose(record.mae, errors.mean(axis=(1, 2, 3)), rtol=1e-12)
    np.testing.assert_allclose(record.rmse, np.sqrt(np.square(errors).mean(axis=(1, 2, 3))), rtol=1e-12)
    np.testing.assert_allclose(record.total_error, errors.sum(axis=(1, 2, 3)) / people, rtol=1e-12)
    (row,) = result.summary()
    assert row["total_error"]["mean"] == pytest.approx(record.total_error.mean())
    empty, _, _, large = row["by_size"]
    assert (empty["least"], empty["most"], large["least"], large["most"]) == (0, 5, 501, None)
    small = np.broadcast_to((counts <= 5)[TINY["burn_in"] :, None, :], errors.shape[1:])
    assert empty["share"] == pytest.approx(small.mean())
    assert empty["mae"] == pytest.approx(errors[:, small].mean())
    assert sum(entry["share"] for entry in row["by_size"]) == pytest.approx(1.0)
    assert {type(entry["share"]) for entry in row["by_size"]} == {float}, "a number of NumPy's prints its type"
    paired = result.compare("kalman-uniform", "kalman-uniform", metric="total_error")
    assert (paired.metric, paired.paired_ratio) == ("total_error", pytest.approx(1.0))


def test_without_people_there_is_no_total_error() -> None:
    """An error divided by nobody is undefined, not infinite: the run has not diverged."""
    result = simulate("uniform", np.zeros((30, 1)), window=10, process_var=1.0, **TINY)
    (row,) = result.summary()
    assert row["total_error"] == {"mean": None, "ci95": None}
    assert row["mae"]["mean"] > 0
    assert row["by_size"][0]["total_error"] is None
    assert "diverged" not in " ".join(result.notes)


def test_slots_before_the_burn_in_are_not_scored() -> None:
    """The start, where servers know nothing yet, would otherwise dominate a short run."""
    scored, all_slots = (simulate("dpcrowd", **{**TINY, "burn_in": burn_in}) for burn_in in (20, 0))
    assert scored["dpcrowd"].by_size is not None
    assert scored["dpcrowd"].by_size[..., 2].sum() == 10 * TINY["servers"] * TINY["runs"]
    assert [result.summary()[0]["burn_in"] for result in (scored, all_slots)] == [20, 0]
    assert scored.table()["total_error"] != all_slots.table()["total_error"]


def test_the_summary_says_how_people_are_spread_over_the_servers() -> None:
    """Objects of two simulations with other shares or another turnover could not be told apart."""
    names = ("turnover", "shares", "composition", "share_width")
    settings = {"servers": 4, "graph": "complete", "window": 5, "runs": 1, "jobs": 1}
    learned = simulate(
        "relay,duniform",
        np.full((12, 2), 50),
        shares="partition",
        composition=0.5,
        share_width=0.2,
        turnover=0.02,
        **settings,
    )
    assert [[row[name] for name in names] for row in learned.summary()] == [
        [0.02, "partition", 0.5, 0.2],
        [0.02, "partition", 0.5, None],
    ]
    given = simulate("relay", np.full((12, 2), 50), shares=[0.1, 0.2, 0.3, 0.3], observation="paper", **settings)
    assert [given.summary()[0][name] for name in names] == [None, "given", None, 0.0]


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (9999.6, 4, "10,000"),
        (99.7, 2, "100"),
        (-99.7, 2, "-100"),
        (9999.4, 4, "9999"),
        (0.12346, 4, "0.1235"),
        (0.0, 2, "0"),
    ],
)
def test_a_number_that_is_rounded_up_has_no_exponent(value: float, digits: int, text: str) -> None:
    """9999.6 became 1e+04."""
    assert _digits(value, digits) == text
