"""Slots that a file of counts leaves out, such as the nights of a car park that is open from 8 to 17 h.

Windows and filters count slots, so time must not be skipped silently. Nobody but the user knows whether nobody was
there or nobody counted: missing slots are refused (`labels`), or count as 0 on request, and a note says how many.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from dpcrowd.arrays import Ints
from dpcrowd.errors import BadInput, unknown_name
from dpcrowd.sim.data.labels import missing_labels
from dpcrowd.sim.data.tables import Cell, Table

__all__ = ["GAPS", "check_gaps", "fill_gaps", "gaps_note"]

GAPS = ("error", "zero")
_MOST_PER_ROW = 100


def check_gaps(gaps: str) -> str:
    """Return what happens to missing slots, or refuse an unknown name."""
    if gaps not in GAPS:
        raise unknown_name("treatment of missing slots", gaps, GAPS)
    return gaps


def fill_gaps(table: Table, column: int) -> tuple[Table, Ints]:
    """Return a table with rows of zeros for missing slots, and the place of each given row in it.

    column  that of the labels. A table whose labels do not tell which slots are missing comes back as it is
    """
    before = missing_labels(table, column)
    total = len(table.rows) + sum(map(len, before))
    if total > _MOST_PER_ROW * len(table.rows):
        row = max(range(len(before)), key=lambda place: len(before[place]))
        raise BadInput(
            f"{table.where(row)}: {len(before[row]):,} slots are missing before '{table.rows[row][column]}', and "
            f"{total - len(table.rows):,} in all, for {len(table.rows):,} rows. Is the time correct?"
        )
    rows: list[Sequence[Cell]] = []
    numbers: list[int] = []
    places = []
    for cells, number, labels in zip(table.rows, table.numbers, before, strict=True):
        for label in labels:
            rows.append([label if place == column else "0" for place in range(len(table.header))])
            numbers.append(number)
        places.append(len(rows))
        rows.append(cells)
        numbers.append(number)
    return replace(table, rows=rows, numbers=numbers), np.array(places, dtype=np.int64)


def gaps_note(table: Table, places: Ints) -> tuple[str, ...]:
    """Return a note on the slots that `fill_gaps` has filled in; nothing if there are none."""
    total = int(places[-1]) + 1
    missing = total - len(places)
    if not missing:
        return ()
    runs = sum(after - before > 1 for before, after in pairwise(places.tolist()))
    gaps = "1 gap" if runs == 1 else f"{runs:,} gaps"
    return (
        f"{table.file} has no rows for {missing:,} of {total:,} slots, in {gaps}; nobody is taken to have been there "
        "(gaps=zero).",
    )
