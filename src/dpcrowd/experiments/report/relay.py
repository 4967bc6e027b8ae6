"""The section on relay: its error beside DPCrowd's, its intervals and what it sends; and `relay.json` for programs."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from dpcrowd.__about__ import __version__
from dpcrowd.experiments.figures.figure import DATA_NAMES
from dpcrowd.experiments.figures.rosters import name_of
from dpcrowd.experiments.points.plan import RunPlan
from dpcrowd.experiments.relay_table import Cell, Ratio, RelayTable, Row
from dpcrowd.experiments.report.parameters import PageTable

__all__ = ["cost_table", "error_table", "relay_as_json"]

VERSION = 1  # of relay.json: raised when a key changes its meaning or goes away


def error_table(table: RelayTable) -> PageTable:
    """Return the ratios of errors, one row per cell."""
    rows = []
    for cell in table:
        one_hop, three_hops = cell.row("relay, K=1"), cell.row("relay, K=3")
        rows.append(
            [
                _cell_name(cell),
                f"{one_hop.samples}; {three_hops.samples}",
                _ratio_text(one_hop.ratio),
                _ratio_text(three_hops.ratio),
                _ratio_text(cell.to_limit),
                str(cell.runs),
            ]
        )
    head = ["Cell", "n (K=1; K=3)", "relay, K=1 / DPCrowd", "relay, K=3 / DPCrowd", "K=3 / everything at once", "Runs"]
    caption = "Error of relay over that of DPCrowd: geometric mean of the ratios of each run, with its 95% interval"
    return PageTable(caption, head, rows)


def cost_table(table: RelayTable) -> PageTable:
    """Return intervals and communication, one row per cell and scheme."""
    rows = [
        [
            f"{_cell_name(cell)}: {_scheme_name(row)}",
            f"{row.are:.4g}",
            f"{row.coverage:.1%}",
            "–" if row.nees is None else f"{row.nees:.2f}",
            f"{row.packets:,.0f}",
            f"{row.bytes:,.0f}",
        ]
        for cell in table
        for row in cell.rows
    ]
    head = ["Cell and scheme", "ARE", "Coverage of 95% intervals", "NEES", "Packets per slot", "Bytes per slot"]
    return PageTable("What the intervals cover, and what is sent", head, rows)


def relay_as_json(plan: RunPlan, table: RelayTable) -> dict[str, Any]:
    """Return everything that the section says, as plain values; null where a run diverged."""
    return {
        "version": VERSION,
        "dpcrowd": __version__,
        "seed": plan.seed,
        "quick": plan.quick,
        "cells": [_finite(asdict(cell)) for cell in table],
    }


def _finite(value: Any) -> Any:
    """Return plain values without infinity and NaN, which JSON does not have."""
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _cell_name(cell: Cell) -> str:
    return f"{DATA_NAMES[cell.data]}, ε={cell.epsilon:g}, {cell.links} links"


def _scheme_name(row: Row) -> str:
    name = row.scheme if row.scheme.startswith(("relay", "everything")) else name_of(row.scheme)
    return f"{name}, matrix form" if row.form == "matrix" else name


def _ratio_text(ratio: Ratio | None) -> str:
    return "a run diverged" if ratio is None else str(ratio)
