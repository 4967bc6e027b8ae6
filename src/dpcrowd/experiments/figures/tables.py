"""The numbers behind a figure as Parquet files, in tidy rows that contain their complete setting.

figureN-name.parquet          one row per point, scheme and run; that of plug-ins ends with the column `claimed_by`
figureN-name-by-slot.parquet  for figures over time: one row per data set, scheme and slot, with means over the runs
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from dpcrowd.arrays import Floats
from dpcrowd.experiments.figures.catalog import ADDED
from dpcrowd.experiments.figures.figure import Figure
from dpcrowd.experiments.figures.rosters import RELAY
from dpcrowd.experiments.points.plan import RunPlan
from dpcrowd.experiments.points.point import Point, SchemeEntry
from dpcrowd.experiments.points.run import Results
from dpcrowd.sim.export import write_table
from dpcrowd.sim.statistics import means_with_halves

__all__ = ["by_slot_file", "table_file", "write_tables"]

_BY_SLOT = ("are", "ace")


def table_file(figure: Figure) -> str:
    """Return the file name of a figure's table."""
    return f"{figure.file}.parquet"


def by_slot_file(figure: Figure) -> str:
    """Return the file name of a figure's table by slot, if it has one."""
    return f"{figure.file}-by-slot.parquet"


def write_tables(figure: Figure, plan: RunPlan, results: Results, folder: Path) -> list[Path]:
    """Write the tables of a figure and return their paths."""
    points = list(dict.fromkeys(figure.points(plan)))  # a point that is needed twice has its rows once
    paths = [
        write_table(_joined([_rows(figure, plan, results, point) for point in points]), folder / table_file(figure))
    ]
    by_slot = [_slot_rows(results, point) for point in points if point.by_slot]
    if by_slot:
        paths.append(write_table(_joined(by_slot), folder / by_slot_file(figure)))
    return paths


def _rows(figure: Figure, plan: RunPlan, results: Results, point: Point) -> dict[str, list[Any]]:
    """Return one row per scheme and run of a point, with its complete setting."""
    result = results[point]
    table = result.table()
    entries = {entry.label: entry for entry in point.entries}
    settings = {
        label: {**result.setup[label], **_setting(plan, point, entry), "figure": figure.number}
        for label, entry in entries.items()
    }
    names = dict.fromkeys(["figure", "data", *(name for setting in settings.values() for name in setting)])
    columns = {**{name: [settings[label][name] for label in table["scheme"]] for name in names}, **table}
    if figure is ADDED:
        columns["claimed_by"] = [result.attribution(label).claimed_by for label in table["scheme"]]
    return columns


def _setting(plan: RunPlan, point: Point, entry: SchemeEntry) -> dict[str, Any]:
    """Return the settings of the point; integers that may be absent are floats, so that all files have one type."""
    window = plan.data[point.data].slots if entry.stream_window else point.window
    return {
        "epsilon": float(point.epsilon),
        "density": float(point.density),
        "window": None if window is None else float(window),
        "interval": None if entry.interval is None else float(entry.interval),
        "hops_per_slot": None if entry.scheme != RELAY.scheme else str(entry.hops_per_slot or 1),
        "accounting": point.accounting,
        "form": point.form,
        "shares": point.shares,
    }


def _slot_rows(results: Results, point: Point) -> dict[str, list[Any]]:
    """Return one row per scheme and slot: means over the runs, and half the widths of their 95% intervals."""
    rows: dict[str, list[Any]] = {"data": [], "scheme": [], "slot": []}
    rows |= {name: [] for metric in _BY_SLOT for name in (metric, f"{metric}_half")}
    for record in results[point].records.values():
        slots = record.are_by_slot.shape[1]
        rows["data"] += [point.data] * slots
        rows["scheme"] += [record.label] * slots
        rows["slot"] += range(slots)
        for metric in _BY_SLOT:
            mean, half = means_with_halves(getattr(record, f"{metric}_by_slot"))
            rows[metric] += _listed(mean)
            rows[f"{metric}_half"] += _listed(half)
    return rows


def _listed(values: Floats) -> list[float | None]:
    return [value if np.isfinite(value) else None for value in values.tolist()]


def _joined(tables: list[dict[str, list[Any]]]) -> dict[str, list[Any]]:
    return {name: [value for table in tables for value in table[name]] for name in tables[0]}
