"""The table of relay beside DPCrowd: its cells, its ratios, and where NEES is given."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from dpcrowd.experiments.figures import find_figures
from dpcrowd.experiments.points.run import Results, run_points
from dpcrowd.experiments.points.store import Store
from dpcrowd.experiments.relay_table import Cell, Ratio, RelayTable, Row, error_ratio, make_relay_table, relay_points
from dpcrowd.experiments.report.relay import cost_table, error_table, relay_as_json
from dpcrowd.sim.backends import Backend
from dpcrowd.sim.recorder import RunRecords
from dpcrowd.sim.statistics import compare_paired
from experiments_support import tiny_plan

PLAN = tiny_plan(slots=22, epsilons=(0.1, 1.0), runs=2)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    store = Store(tmp_path_factory.mktemp("points"))
    return run_points(PLAN, {"table": relay_points(PLAN)}, store, Backend("local", 1, None))


@pytest.fixture(scope="module")
def table(results: Results) -> RelayTable:
    return make_relay_table(PLAN, results)


def test_it_uses_the_points_of_the_figures() -> None:
    """DPCrowd and relay would be simulated twice in every report."""
    shared = {point for figure in find_figures(("4", "7")) for point in figure.points(PLAN)}
    own = [point for point in relay_points(PLAN) if point not in shared]
    assert {point.dynamic for point in own} == {None, False}
    assert not any("dpcrowd" in {entry.label for entry in point.entries} for point in own if point.dynamic is None)


@pytest.mark.slow
def test_it_has_a_cell_per_data_set_budget_and_kind_of_links(table: RelayTable) -> None:
    """A cell that is left out is a claim that nobody can check."""
    cells = [(cell.data, cell.epsilon, cell.links, cell.reference) for cell in table]
    assert cells == [
        (data, epsilon, links, reference)
        for data, reference in (("linear", "dpcrowd"), ("multi-linear", "dpcrowd-plus"))
        for epsilon in (0.1, 1.0)
        for links in ("dynamic", "static")
    ]
    quick = replace(PLAN, table_links=("dynamic",))
    assert not any(point.dynamic is False for point in relay_points(quick))


@pytest.mark.slow
def test_ratios_are_those_of_a_paired_comparison(table: RelayTable, results: Results) -> None:
    """Across points of their own, runs must still be paired with the same runs."""
    (figure,) = find_figures(("4",))
    sweep = figure.sweeps(PLAN)[0]
    point = dict(sweep.of("relay"))[0.1]
    record, reference = results[point]["relay"], results[point]["dpcrowd"]
    expected = compare_paired("relay", "dpcrowd", "are", record.are, reference.are)
    assert table[0].row("relay, K=1").ratio == Ratio(expected.paired_ratio, *(expected.paired_ci95 or (None, None)))
    at_once = results[dict(sweep.of("relay-at-once"))[0.1]]["relay-at-once"]
    to_limit = table[0].to_limit
    assert to_limit is not None
    three_hops = table[0].row("relay, K=3")
    assert three_hops.samples is not None
    assert math.isclose(at_once.are.mean(), table[0].row("everything at once").are)
    for cell in table:
        assert cell.row(cell.reference).ratio == Ratio(1.0, 1.0, 1.0)


@pytest.mark.slow
def test_nees_is_given_where_the_model_is_the_truth(table: RelayTable) -> None:
    """On Flu, or in diagonal form with people who move, it would blame the filter for the model."""
    given = {(cell.data, row.form) for cell in table for row in cell.rows if row.nees is not None}
    assert given == {("linear", "diagonal"), ("multi-linear", "matrix")}


@pytest.mark.slow
def test_the_report_shows_every_cell(table: RelayTable) -> None:
    """The section and relay.json have to say the same."""
    errors, costs = error_table(table), cost_table(table)
    assert [row[0] for row in errors.rows][:2] == ["Linear, ε=0.1, dynamic links", "Linear, ε=0.1, static links"]
    assert len(errors.rows) == len(table)
    names = [row[0] for row in costs.rows]
    assert len(names) == len(set(names)) == sum(len(cell.rows) for cell in table)
    assert "Multi-Linear, ε=1, dynamic links: relay, K=3, matrix form" in names
    plain = relay_as_json(PLAN, table)
    assert [cell["to_limit"]["value"] for cell in plain["cells"]] == [
        None if cell.to_limit is None else cell.to_limit.value for cell in table
    ]


@pytest.mark.slow
def test_a_run_that_diverged_leaves_no_ratio(results: Results) -> None:
    """An hour of work would end in an error, or in a file that no JSON reader accepts."""
    record = results[relay_points(PLAN)[0]]["relay"]
    broken: RunRecords = replace(record, are=np.array([1.0, np.inf]))
    assert error_ratio(broken, record) is None
    assert error_ratio(record, broken) is None


def test_a_ratio_is_written_with_its_interval() -> None:
    """Without an interval a ratio of three runs looks like one of fifty."""
    assert str(Ratio(0.3064, 0.2931, 0.3214)) == "0.306 (0.293–0.321)"
    assert str(Ratio(0.5, None, None)) == "0.500"


def test_json_has_no_infinity() -> None:
    """JSON has neither infinity nor NaN: a strict reader refuses the file."""
    row = Row("dpcrowd", "diagonal", None, math.inf, math.nan, None, 1.0, 2.0, None)
    cell = Cell("linear", 0.1, "dynamic", 2, "dpcrowd", (row,), None)
    (plain,) = relay_as_json(PLAN, (cell,))["cells"]
    assert (plain["rows"][0]["are"], plain["rows"][0]["coverage"]) == (None, None)
