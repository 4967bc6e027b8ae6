"""The report's section on intervals: every scheme, at the ends of the budget, and a word where there are none."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from dpcrowd.experiments.figures import find_figures
from dpcrowd.experiments.points.plan import RunPlan
from dpcrowd.experiments.report.coverage import CoverageRow, coverage_rows, coverage_table
from dpcrowd.sim.data import load


class _Fixed(dict[Any, Any]):
    """Results in which every scheme has the same errors, and one run of one scheme has diverged."""

    def __getitem__(self, point: Any) -> Any:
        record = SimpleNamespace(are=np.array([0.1, 0.3]), coverage95=np.array([0.94, 0.96]))
        silent = SimpleNamespace(are=np.array([0.1, np.inf]), coverage95=np.array([np.nan, np.nan]))
        return {entry.label: silent if entry.scheme == "uniform" else record for entry in point.entries}


def test_every_scheme_of_the_figures_over_the_budget_has_its_rows() -> None:
    """Errors without coverage hide intervals that are too narrow."""
    plan = RunPlan({"linear": load("linear", slots=60)}, epsilons=(0.1, 0.4, 1.0))
    rows = coverage_rows(find_figures(("4", "density")), plan, _Fixed())  # type: ignore[arg-type]
    assert {row.figure for row in rows} == {4}, "the figure over the density has no budgets"
    assert {row.epsilon for row in rows} == {0.1, 1.0}
    assert next(row for row in rows if row.scheme == "dpcrowd").coverage == 0.95
    assert any(row.are is None and row.coverage is None for row in rows)


def test_what_is_missing_is_said() -> None:
    """An empty cell would look like a mistake."""
    table = coverage_table([CoverageRow(4, "linear", "", "uniform", 0.1, None, None)])
    assert table.rows == [["Linear, ε=0.1: Uniform", "4", "diverged", "no intervals"]]
