"""The section on intervals: errors and coverage of every scheme, from the figures over the privacy budget."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from dpcrowd.arrays import PerRun
from dpcrowd.experiments.figures.figure import DATA_NAMES, Figure
from dpcrowd.experiments.figures.rosters import name_of
from dpcrowd.experiments.points.plan import RunPlan
from dpcrowd.experiments.points.run import Results
from dpcrowd.experiments.report.parameters import PageTable

__all__ = ["CoverageRow", "coverage_rows", "coverage_table"]


@dataclass(frozen=True)
class CoverageRow:
    """Error and intervals of one scheme at one budget: means over the runs.

    are       None: a run diverged
    coverage  part of the 95% intervals that contain the truth; None: the scheme has no intervals
    """

    figure: int
    data: str
    setting: str
    scheme: str
    epsilon: float
    are: float | None
    coverage: float | None


def coverage_rows(figures: Iterable[Figure], plan: RunPlan, results: Results) -> list[CoverageRow]:
    """Return the rows of all sweeps over the budget, at its least and its largest value."""
    rows = []
    for figure in figures:
        for sweep in figure.sweeps(plan):
            budgets = sorted({x for x, _ in sweep.points})
            if sweep.symbol != "ε" or len(budgets) < 2:
                continue
            for label in sweep.labels:
                for x, point in sweep.of(label):
                    if x in (budgets[0], budgets[-1]):
                        record = results[point][label]
                        are, coverage = _mean(record.are), _mean(record.coverage95)
                        rows.append(CoverageRow(figure.number, sweep.data, sweep.setting, label, x, are, coverage))
    return rows


def coverage_table(rows: Sequence[CoverageRow]) -> PageTable:
    """Return the table of the page."""
    cells = [
        [
            f"{', '.join(part for part in (DATA_NAMES.get(row.data, row.data), row.setting) if part)}, "
            f"ε={row.epsilon:g}: {name_of(row.scheme)}",
            str(row.figure),
            "diverged" if row.are is None else f"{row.are:.4g}",
            "no intervals" if row.coverage is None else f"{row.coverage:.1%}",
        ]
        for row in rows
    ]
    caption = "Error and coverage of the 95% intervals of every scheme"
    return PageTable(caption, ["Data, budget and scheme", "Figure", "ARE", "Coverage of 95% intervals"], cells)


def _mean(values: PerRun) -> float | None:
    mean = float(np.mean(values)) if values.size else math.nan
    return mean if math.isfinite(mean) else None
