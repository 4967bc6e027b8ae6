"""The report's section on intervals: every scheme, at the ends of every axis, and a word where there are none."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dpcrowd.experiments.figures import find_figures
from dpcrowd.experiments.points.plan import RunPlan
from dpcrowd.experiments.report.coverage import CoverageRow, coverage_rows, coverage_summary, coverage_table
from dpcrowd.sim.data import load


class _Fixed(dict[Any, Any]):
    """Results in which every scheme has the same errors, and one run of one scheme has diverged."""

    def __getitem__(self, point: Any) -> Any:
        record = SimpleNamespace(are=np.array([0.1, 0.3]), coverage95=np.array([0.94, 0.96]))
        silent = SimpleNamespace(are=np.array([0.1, np.inf]), coverage95=np.array([np.nan, np.nan]))
        return {entry.label: silent if entry.scheme == "uniform" else record for entry in point.entries}


PLAN = RunPlan({"linear": load("linear", slots=60)}, epsilons=(0.1, 0.4, 1.0))


def _rows(*figures: str) -> list[CoverageRow]:
    return coverage_rows(find_figures(figures), PLAN, _Fixed())  # type: ignore[arg-type]


def test_every_scheme_has_its_rows_at_the_ends_of_the_axis() -> None:
    """Errors without coverage hide intervals that are too narrow."""
    rows = _rows("epsilon")
    assert {row.epsilon for row in rows} == {0.1, 1.0}
    assert next(row for row in rows if row.scheme == "dpcrowd").coverage == 0.95
    assert any(row.are is None and row.coverage is None for row in rows)


@pytest.mark.parametrize("figure", ["time", "density", "interval", "epsilon", "communication", "window", "partition"])
def test_any_figure_says_what_its_intervals_cover(figure: str) -> None:
    """Whoever draws one figure alone would else be told nothing, although its runs have measured it."""
    plan = replace(PLAN, data={**PLAN.data, "multi-linear": load("multi-linear", slots=60)})
    rows = coverage_rows(find_figures((figure,)), plan, _Fixed())  # type: ignore[arg-type]
    assert any(row.scheme == "relay" and row.coverage == 0.95 for row in rows)


def test_rows_say_where_they_stand_and_come_once() -> None:
    """Rows of two densities would look like a contradiction, and figure 5 has the points of figures 2 and 3."""
    rows = _rows("density", "interval")
    density = [row for row in rows if row.figure == 2 and row.scheme == "dpcrowd" and row.epsilon == 0.1]
    ends = (min(PLAN.densities), max(PLAN.densities))
    assert [row.place for row in density] == [f"Linear, ε=0.1, ρ={end:g}" for end in ends]
    (level,) = [row for row in rows if row.figure == 3 and row.scheme == "dpcrowd-adaptive"]
    assert level.place == "Linear, ε=1", "adaptive sampling has no interval"
    assert {row.figure for row in _rows("density", "interval", "communication")} == {2, 3}
    assert {row.figure for row in _rows("communication")} == {5}


def test_a_sentence_has_the_ends_and_how_many_are_too_narrow() -> None:
    """What the terminal shows: a mean alone would hide the one scheme whose intervals are wrong."""
    rows = [
        CoverageRow(1, "linear", "", "relay", 1.0, 0.1, 0.951),
        CoverageRow(1, "flu", "", "fast", 1.0, 0.1, 0.712),
        CoverageRow(1, "flu", "", "uniform", 1.0, 0.1, None),
    ]
    assert coverage_summary(rows) == (
        "the 95% intervals contained the truth in 71.2% (FAST on Flu, ε=1) to 95.1% (Relay (ours) on Linear, ε=1); "
        "1 of 2 combinations of scheme and setting is below 90%"
    )
    assert coverage_summary(rows[2:]) == ""


def test_what_is_missing_is_said() -> None:
    """An empty cell would look like a mistake."""
    table = coverage_table([CoverageRow(4, "linear", "", "uniform", 0.1, None, None)])
    assert table.rows == [["Linear, ε=0.1: Uniform", "4", "diverged", "no intervals"]]
