"""Cells of a table into whole, non-negative counts, or one line that says which cell is not one.

A privacy claim rests on sensitivity 1, which holds for whole people only: a fraction, a hole or a negative number is
refused here and never repaired in silence. `round_counts` is the one repair, on request, and it leaves a note.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dpcrowd.errors import BadInput
from dpcrowd.sim.data.dataset import Counts
from dpcrowd.sim.data.tables import Cell, Table, is_number

__all__ = ["LARGEST", "read_counts"]

# The filters compute in float64, which holds every whole number up to here.
LARGEST = 2**53


def read_counts(table: Table, columns: Sequence[int], *, round_counts: bool = False) -> Counts:
    """int64 (T, d) of the given columns."""
    counts = np.empty((len(table.rows), len(columns)), dtype=np.int64)
    for k, column in enumerate(columns):
        for t, cell in enumerate(table.column(column)):
            # The usual case first: plain digits, few enough to be below LARGEST.
            if type(cell) is str and len(cell) < 16 and cell.isascii() and cell.isdigit():
                counts[t, k] = int(cell)
            else:
                counts[t, k] = _count(cell, table, t, column, round_counts)
    return counts


def _count(cell: Cell, table: Table, row: int, column: int, round_counts: bool) -> int:
    where = table.where(row, column)
    text = "" if cell is None else str(cell).strip()
    if not text:
        raise BadInput(f"{where} is empty: a hole in the data; fill it or cut the file there.")
    if isinstance(cell, bool):
        raise BadInput(f"{where} is '{text}', not a count; allowed: whole numbers from 0.")
    whole = _plain_int(text)
    if whole is None:
        if not is_number(text):
            raise BadInput(f"{where} is '{text}', not a count; allowed: whole numbers from 0.")
        number = float(text)
        if math.isnan(number):
            raise BadInput(f"{where} is NaN: a hole in the data; fill it or cut the file there.")
        if math.isinf(number) or abs(number) > LARGEST:
            raise BadInput(f"{where} is {text}, too large for a count; allowed: 0 to 2^53.")
        if number < 0:
            raise BadInput(f"{where} is {text}; a count cannot be negative.")
        if number != int(number) and not round_counts:
            raise BadInput(f"{where} is {text}, a fraction; counts are whole people. To round them: --round.")
        return round(number)  # half to even
    if whole < 0:
        raise BadInput(f"{where} is {text}; a count cannot be negative.")
    if whole > LARGEST:
        raise BadInput(f"{where} is {text}, too large for a count; allowed: 0 to 2^53.")
    return whole


def _plain_int(text: str) -> int | None:
    """int(text) for an optional sign and digits only: '1_000', which int() takes, is no count."""
    digits = text[1:] if text[0] in "+-" else text
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) < 400 else None
