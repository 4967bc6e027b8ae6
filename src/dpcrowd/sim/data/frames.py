"""Read a DataFrame of pandas or polars as a table, without importing either: what a notebook has in place of a file.

Columns mean what those of a file mean. A column of dates or times comes first, wherever it stands. An index of pandas
is the first column if it has a name, such as year, or is of dates, times or texts; otherwise it numbers the rows.
"""

from __future__ import annotations

from datetime import date
from typing import Any, TypeGuard

from dpcrowd.errors import BadInput
from dpcrowd.sim.data.tables import Cell, Table

__all__ = ["FRAME", "is_frame", "table_of_frame"]

FRAME = "the DataFrame"


def is_frame(data: object) -> TypeGuard[Any]:
    """Whether this is a DataFrame of pandas or polars."""
    return hasattr(data, "columns") and any(hasattr(data, name) for name in ("to_csv", "write_csv"))


def table_of_frame(frame: Any) -> Table:
    """Return the columns of a DataFrame as a table, whose rows are numbered from 0."""
    names = [str(name) for name in frame.columns]
    for name in names:
        if names.count(name) > 1:  # by its name, pandas would return both
            raise BadInput(f"{FRAME} has two columns '{name}'; give each region a name of its own.")
    columns = {name: _cells(frame[key]) for name, key in zip(names, frame.columns, strict=True)}
    index = _cells(frame.index) if hasattr(frame, "index") else []
    if hasattr(getattr(frame, "index", None), "levels"):
        raise BadInput(f"{FRAME} has an index of several levels; make them columns with its method reset_index().")
    own_name = getattr(getattr(frame, "index", None), "name", None)
    if index and (own_name is not None or not isinstance(index[0], int)):
        name = "time" if own_name is None else str(own_name)
        if name in columns:
            raise BadInput(f"{FRAME} has '{name}' as its index and as a column; leave one of them out.")
        columns = {name: index, **columns}
    times = [name for name, cells in columns.items() if cells and isinstance(cells[0], date)]
    order = [*times[:1], *(name for name in columns if name not in times[:1])]
    rows = list(zip(*(columns[name] for name in order), strict=True))
    if not rows:
        raise BadInput(f"{FRAME} is empty; expected one row for each slot, or each slot and region.")
    return Table(FRAME, tuple(order), rows, range(len(rows)), "row")


def _cells(column: Any) -> list[Cell]:
    """Return the cells of a column as Python's own types: periods of pandas are texts, and missing values are None."""
    return [_cell(cell) for cell in column.to_list()]


def _cell(cell: Any) -> Cell:
    if type(cell).__name__ == "NAType":  # pandas' own missing value, which is no None
        return None
    known: Cell = str(cell) if hasattr(cell, "start_time") else cell
    return known
