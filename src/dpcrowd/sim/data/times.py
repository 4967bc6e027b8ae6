"""Times of check-ins as microseconds since 1970 (UTC), and lengths of slots.

A time is an RFC 3339 / ISO 8601 date-time (UTC if it has no offset), a date, or a number: seconds since 1970, or
milliseconds from 1e11 on (as seconds that would be the year 5138).
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from dpcrowd.errors import BadInput
from dpcrowd.sim.data.tables import Cell, Table, is_number

__all__ = ["SECOND", "iso_label", "read_times", "slot_length_us"]

Micros = NDArray[np.int64]

SECOND = 1_000_000
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
MILLISECONDS_FROM = 1e11
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
PLAIN = re.compile(r"\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?)?Z?")


def slot_length_us(length: str | float) -> int:
    """'15m', '1h', '1d', '1w' or a number of seconds, in microseconds."""
    text = str(length).strip().lower()
    number, unit = (text[:-1], text[-1]) if text and text[-1] in UNITS else (text, "s")
    try:
        micros = round(float(number) * UNITS[unit] * SECOND)
    except (ValueError, OverflowError):
        micros = 0
    if not 0 < micros < 2**62:
        raise BadInput(f"slot length '{length}' is not allowed; give a number and s, m, h, d or w: 15m, 1h, 1d.")
    return micros


def read_times(table: Table, column: int) -> Micros:
    """The times of a column; a cell that is no time is named."""
    cells = table.column(column)
    if all(type(cell) is str and PLAIN.fullmatch(cell) for cell in cells):
        try:  # the usual case in one go; NumPy takes no 'Z'
            moments = np.array([cell.removesuffix("Z") for cell in cells], dtype="datetime64[us]")
        except ValueError:  # an impossible date such as 2009-02-30: the loop below names it
            pass
        else:
            return moments.astype(np.int64)
    return np.array([_micros(cell, table, row, column) for row, cell in enumerate(cells)], dtype=np.int64)


def iso_label(micros: int) -> str:
    """2009-04-24 at midnight, else 2009-04-24T13:00:00Z."""
    moment = EPOCH + timedelta(microseconds=micros)
    if moment.time() == moment.min.time():
        return moment.date().isoformat()
    return moment.replace(tzinfo=None).isoformat() + "Z"


def _micros(cell: Cell, table: Table, row: int, column: int) -> int:
    text = "" if cell is None else str(cell).strip()
    if not text:
        raise BadInput(f"{table.where(row, column)} is empty; each check-in needs a time.")
    try:
        if isinstance(cell, datetime):
            moment = cell
        elif isinstance(cell, date):
            moment = datetime(cell.year, cell.month, cell.day)
        elif is_number(cell):
            number = float(text)
            unit = timedelta(milliseconds=1) if abs(number) >= MILLISECONDS_FROM else timedelta(seconds=1)
            moment = EPOCH + number * unit
        else:
            moment = datetime.fromisoformat(text)
        return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - EPOCH) // timedelta(microseconds=1)
    except (ValueError, OverflowError):
        what = "allowed: 2009-04-24T12:35:54Z, 2009-04-24, or seconds or milliseconds since 1970"
        raise BadInput(f"{table.where(row, column)} is '{text}', not a time; {what}.") from None
