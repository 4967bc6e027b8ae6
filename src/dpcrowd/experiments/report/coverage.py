"""The section on intervals: errors and coverage of every scheme, from all figures that were drawn."""

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

__all__ = ["CoverageRow", "coverage_rows", "coverage_summary", "coverage_table"]

TOO_FEW = 0.9
"""Intervals that cover less are too narrow, as everywhere in dpcrowd."""


@dataclass(frozen=True)
class CoverageRow:
    """Error and intervals of one scheme at one point of a figure: means over the runs.

    at        where on the axis of the figure, such as "ρ=0.2"; empty: the scheme has the same results everywhere on it
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
    at: str = ""

    @property
    def place(self) -> str:
        """The data set and the settings, each once."""
        parts = (DATA_NAMES.get(self.data, self.data), self.setting, self.at, f"ε={self.epsilon:g}")
        return ", ".join(dict.fromkeys(part for part in parts if part))


def coverage_rows(figures: Iterable[Figure], plan: RunPlan, results: Results) -> list[CoverageRow]:
    """Return the rows of all figures, at both ends of the axis; what two figures share, and level lines, come once."""
    rows, seen = [], set()
    for figure in figures:
        for sweep in figure.sweeps(plan):
            has_axis = len({x for x, _ in sweep.points}) > 1
            for label in sweep.labels:
                points = sorted(sweep.of(label), key=lambda one: one[0])
                is_level = len(points) > 1 and len({point for _, point in points}) == 1
                for x, point in (points[0], points[-1]):
                    if (point, label) in seen:
                        continue
                    seen.add((point, label))
                    at = f"{sweep.symbol}={x:g}" if has_axis and not is_level else ""
                    record = results[point][label]
                    are, coverage = _mean(record.are), _mean(record.coverage95)
                    rows.append(
                        CoverageRow(figure.number, sweep.data, sweep.setting, label, point.epsilon, are, coverage, at)
                    )
    return rows


def coverage_summary(rows: Iterable[CoverageRow]) -> str:
    """Return a sentence on the least and the largest coverage; empty: no scheme has intervals."""
    covered = sorted((row.coverage, row.place, name_of(row.scheme)) for row in rows if row.coverage is not None)
    if not covered:
        return ""
    few = sum(coverage < TOO_FEW for coverage, _, _ in covered)
    ends = [f"{coverage:.1%} ({name} on {place})" for coverage, place, name in dict.fromkeys((covered[0], covered[-1]))]
    return (
        f"the 95% intervals contained the truth in {' to '.join(ends)}; {few} of {len(covered)} combinations of scheme "
        f"and setting {'is' if few == 1 else 'are'} below {TOO_FEW:.0%}"
    )


def coverage_table(rows: Sequence[CoverageRow]) -> PageTable:
    """Return the table of the page."""
    cells = [
        [
            f"{row.place}: {name_of(row.scheme)}",
            str(row.figure),
            "diverged" if row.are is None else f"{row.are:.4g}",
            "no intervals" if row.coverage is None else f"{row.coverage:.1%}",
        ]
        for row in rows
    ]
    caption = "Error and coverage of the 95% intervals of every scheme"
    return PageTable(caption, ["Data, setting and scheme", "Figure", "ARE", "Coverage of 95% intervals"], cells)


def _mean(values: PerRun) -> float | None:
    mean = float(np.mean(values)) if values.size else math.nan
    return mean if math.isfinite(mean) else None
