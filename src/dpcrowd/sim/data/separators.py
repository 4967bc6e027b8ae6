"""Cells of counts with points or commas, which may be decimal or separate thousands: 1.142 people, or 1,142?

Which one is meant, only the writer of the file knows. A crowd of 1,142 that is rounded to 1 would be a wrong crowd, and
nobody would notice; so errors and notes name both readings, and nothing is guessed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from dpcrowd.sim.data.tables import Table

__all__ = ["fraction_problem", "number_hint", "thousands_note"]

_GROUP = 3  # digits
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}\.\d{3}")
_MANY_GROUPS = re.compile(r"[+-]?[1-9]\d{0,2}(?:([.,])\d{3})(?:\1\d{3})+")
_WITH_COMMA = re.compile(r"[+-]?\d+,\d+")
_NEITHER = " A comma is read neither as a decimal point nor as a separator of thousands:"


def number_hint(text: str) -> str:
    """Return what to write in place of a cell that is no number, if it would be one with other separators; else ''.

    >>> print(number_hint("505,5"))
     A comma is read neither as a decimal point nor as ... thousands: write decimal points (505.5), and give --round.
    """
    if match := _MANY_GROUPS.fullmatch(text):
        return f" Thousands are written without separators: {text.replace(match[1], '')}."
    if not _WITH_COMMA.fullmatch(text):
        return ""
    decimal = f"write decimal points ({text.replace(',', '.')}), and give --round"
    if not _THOUSANDS.fullmatch(text.replace(",", ".")):
        return f"{_NEITHER} {decimal}."
    return f"{_NEITHER} write {text.replace(',', '')} if it separates thousands; if it is decimal, {decimal}."


def fraction_problem(text: str, table: Table, columns: Sequence[int]) -> str:
    """Return what a cell is that looks like a fraction, and what to do about it."""
    if _in_thousands(table, columns) is None:
        return f"{text}, a fraction; counts are whole people. To round them: --round."
    whole = text.replace(".", "")
    return (
        f"{text}, which is a fraction, or {int(whole):,} with a point between thousands: all fractions of the file "
        f"have three digits after the point. If points separate thousands, take them out of the file ({whole}). If "
        "these are fractions, round them: --round."
    )


def thousands_note(table: Table, columns: Sequence[int]) -> str | None:
    """Return a note on fractions that were rounded, and may be thousands; None: they cannot be."""
    text = _in_thousands(table, columns)
    if text is None:
        return None
    return (
        f"all fractions of {table.file} have three digits after the point. They were read as fractions: {text} as "
        f"{round(float(text))}. If points separate thousands, take them out of the file, and leave --round out."
    )


def _in_thousands(table: Table, columns: Sequence[int]) -> str | None:
    """Return the first cell with a point, if the points of all cells may separate thousands; None: they cannot."""
    first = None
    for column in columns:
        for cell in table.column(column):
            text = str(cell).strip()
            if _THOUSANDS.fullmatch(text):
                first = first or text
            elif not text.isdigit() or len(text) > _GROUP:
                return None
    return first
