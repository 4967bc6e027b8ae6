"""Relay beside DPCrowd, cell by cell: a data set, a budget, and links that are drawn anew in each slot or stay.

In every cell the error of relay at one hop per slot (K=1) and at three (K=3) is divided by that of DPCrowd (with many
regions: DPCrowd+ on the sound ledger), and K=3 also by "everything at once", the limit of what passing on records can
reach. The ratio is the geometric mean of the ratios of each run, with its 95% interval: a ratio of means is ruled by
the few runs whose counts come near 0. All schemes of a cell see the same runs.

Where the model of the process is the truth, NEES (measured over predicted squared error) says whether the filter knows
its own error: on Linear, and on Multi-Linear in matrix form. `dpcrowd reproduce` makes the table from its own runs, and
`benchmarks/utility.py` makes a longer one with the same functions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from dpcrowd.errors import BadInput
from dpcrowd.experiments.figures import find_figures
from dpcrowd.experiments.figures.rosters import AT_ONCE, RELAY, RELAY_THREE_HOPS
from dpcrowd.experiments.points.plan import RunPlan
from dpcrowd.experiments.points.point import Point, SchemeEntry
from dpcrowd.experiments.points.run import Results
from dpcrowd.sim.recorder import RunRecords
from dpcrowd.sim.statistics import compare_paired

__all__ = [
    "VARIANTS",
    "Cell",
    "Ratio",
    "RelayTable",
    "Row",
    "error_ratio",
    "make_relay_table",
    "reference_of",
    "relay_points",
    "summarise",
]

VARIANTS: dict[str, SchemeEntry] = {
    "relay, K=1": RELAY,
    "relay, K=3": RELAY_THREE_HOPS,
    "everything at once": AT_ONCE,
}
"""The variants of relay that the table compares, by their names in it."""

_KNOWN_PROCESS = ("linear", "multi-linear")
_MATRIX = (RELAY, RELAY_THREE_HOPS)


@dataclass(frozen=True)
class Ratio:
    """The geometric mean of the ratios of each run; its 95% interval is None with a single run."""

    value: float
    low: float | None
    high: float | None

    def __str__(self) -> str:
        interval = "" if self.low is None or self.high is None else f" ({self.low:.3f}–{self.high:.3f})"
        return f"{self.value:.3f}{interval}"


@dataclass(frozen=True)
class Row:
    """The results of one scheme in a cell.

    scheme    its name in the table
    form      "diagonal" or "matrix"
    samples   per window or horizon, as relay has chosen it; None for other schemes
    are       mean ARE over the runs
    coverage  share of the 95% intervals that contain the truth
    nees      measured over predicted squared error; None where the model of the process is an assumption
    packets, bytes   per slot, of all servers together
    ratio     of its ARE to the reference's; None where a run diverged, and in matrix form
    """

    scheme: str
    form: str
    samples: int | None
    are: float
    coverage: float
    nees: float | None
    packets: float
    bytes: float
    ratio: Ratio | None


@dataclass(frozen=True)
class Cell:
    """One data set at one budget, with one kind of links; `to_limit` is K=3 over "everything at once"."""

    data: str
    epsilon: float
    links: str
    runs: int
    reference: str
    rows: tuple[Row, ...]
    to_limit: Ratio | None

    def row(self, scheme: str, form: str = "diagonal") -> Row:
        """Return the row of a scheme."""
        return next(row for row in self.rows if (row.scheme, row.form) == (scheme, form))


RelayTable = tuple[Cell, ...]


# ------------------------------------------------------------------------------------------------ numbers of a scheme


def summarise(record: RunRecords) -> dict[str, float]:
    """Return the means over the runs of everything that is compared, and the largest ε that a moving user paid."""
    with np.errstate(invalid="ignore", divide="ignore"):
        nees = float(np.mean(record.mse) / np.mean(record.claimed_mse))
    return {
        "are": float(np.mean(record.are)),
        "coverage": float(np.mean(record.coverage95)),
        "nees": nees,
        "frequency": float(np.mean(record.frequency)),
        "packets": float(np.mean(record.packets_per_slot)),
        "bytes": float(np.mean(record.bytes_per_slot)),
        "latency": float(np.mean(record.latency_ms)),
        "paid": max((payment.epsilons()["moving"] for payment in record.paid), default=math.nan),
    }


def error_ratio(first: RunRecords, second: RunRecords) -> Ratio | None:
    """Return the ratio of the first's ARE to the second's; None where a run diverged, or where an error is 0."""
    try:
        comparison = compare_paired(first.label, second.label, "are", first.are, second.are)
    except BadInput:
        return None
    if math.isnan(comparison.paired_ratio):
        return None
    return Ratio(comparison.paired_ratio, *(comparison.paired_ci95 or (None, None)))


def reference_of(data: str) -> str:
    """Return the scheme that relay is compared with on a data set."""
    return "dpcrowd-plus" if data.startswith("multi") else "dpcrowd"


# ------------------------------------------------------------------------------------------------------ the table


@dataclass(frozen=True, eq=False)
class _CellPoints:
    """The points that hold the schemes of a cell: a scheme is in the first of them that has it."""

    data: str
    epsilon: float
    links: str
    points: tuple[Point, ...]
    matrix: Point | None

    def of(self, entry: SchemeEntry) -> Point:
        return next(point for point in self.points if entry in point.entries)


def relay_points(plan: RunPlan) -> list[Point]:
    """Return every point that the table needs; those of figures 4 and 7 are among them."""
    return list(dict.fromkeys(point for cell in _cells(plan) for point in (*cell.points, cell.matrix) if point))


def _cells(plan: RunPlan) -> Iterator[_CellPoints]:
    budgets = (plan.epsilons[0], plan.epsilons[-1])
    sweeps = [sweep for figure in find_figures(("4", "7")) for sweep in figure.sweeps(plan)]
    for sweep in sweeps:
        if sweep.points[0][1].accounting != "sound":
            continue
        main = dict(sweep.of(RELAY.label))
        limit = dict(sweep.of(AT_ONCE.label))
        for epsilon in budgets:
            three_hops = replace(limit[epsilon], entries=(RELAY_THREE_HOPS,))
            for links in plan.table_links:
                points: tuple[Point, ...]
                if links == "dynamic":
                    points = (main[epsilon], three_hops, limit[epsilon])
                else:
                    reference = SchemeEntry(reference_of(sweep.data), reference_of(sweep.data))
                    points = (replace(three_hops, entries=(reference, *VARIANTS.values()), dynamic=False),)
                matrix = None
                if sweep.data == "multi-linear" and links == "dynamic":
                    matrix = replace(three_hops, entries=_MATRIX, form="matrix", most_runs=plan.matrix_runs)
                yield _CellPoints(sweep.data, epsilon, links, points, matrix)


def make_relay_table(plan: RunPlan, results: Results) -> RelayTable:
    """Return the table from the results of `relay_points`."""
    return tuple(_cell(plan, results, cell) for cell in _cells(plan))


def _cell(plan: RunPlan, results: Results, cell: _CellPoints) -> Cell:
    name = reference_of(cell.data)
    places = {name: cell.of(SchemeEntry(name, name))} | {label: cell.of(e) for label, e in VARIANTS.items()}
    labels = {name: name} | {label: entry.label for label, entry in VARIANTS.items()}
    records = {label: results[point][labels[label]] for label, point in places.items()}
    rows = [
        _row(cell, label, "diagonal", record, results.samples(places[label], labels[label]), records[name])
        for label, record in records.items()
    ]
    if cell.matrix is not None:
        for label, entry in VARIANTS.items():
            if entry in _MATRIX:
                record = results[cell.matrix][entry.label]
                rows.append(_row(cell, label, "matrix", record, results.samples(cell.matrix, entry.label), None))
    to_limit = error_ratio(records["relay, K=3"], records["everything at once"])
    return Cell(cell.data, cell.epsilon, cell.links, plan.runs, name, tuple(rows), to_limit)


def _row(
    cell: _CellPoints, scheme: str, form: str, record: RunRecords, samples: int | None, reference: RunRecords | None
) -> Row:
    means = summarise(record)
    exact_model = cell.data in _KNOWN_PROCESS and (cell.data == "linear" or form == "matrix")
    return Row(
        scheme,
        form,
        samples,
        means["are"],
        means["coverage"],
        means["nees"] if exact_model and math.isfinite(means["nees"]) else None,
        means["packets"],
        means["bytes"],
        None if reference is None else error_ratio(record, reference),
    )
