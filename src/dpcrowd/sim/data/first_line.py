"""Whether a first line of numbers has counts, or the names of regions: ZIP codes, precincts and cells are numbers, too.

A file of counts need not have a header, so such a line is read as counts, and a note says so, except where counts
cannot be or hardly look like that. It has names if its whole numbers differ and

    each of them is more than ten times as large as every count below it, in two or more columns, or
    one of them begins with a 0 that others need not have (02134), and no count below does, or
    no line below begins with a number: these begin with a time.

It may have either, and the file is refused until somebody says which (`header`), if its numbers are consecutive, in
three or more columns, or ascend, in five or more, and those of no other line do.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from dpcrowd.errors import BadInput

__all__ = ["has_names", "no_header_note"]

_FAR_ABOVE = 10
_FEWEST_LINES = 3  # below the first, before it is compared with them
_CONSECUTIVE, _ASCENDING = 3, 5  # columns that have to be so


def has_names(file: str, rows: Sequence[Sequence[str]]) -> str | None:
    """Return why the first of the rows, which has numbers only, has names; None: it has counts. It may be refused."""
    first, rest = [cell.strip() for cell in rows[0]], rows[1:]
    if not all(cell.isascii() and cell.isdigit() for cell in first) or len(set(first)) < len(first):
        return None
    if rest and len(first) > 1 and not any(_is_number(row[0]) for row in rest):
        return f"the other lines begin with a time, such as '{rest[0][0].strip()}'"
    if len(rest) < _FEWEST_LINES or _numbers_rows(rows):
        return None
    if any(map(_has_leading_zero, first)) and not any(_has_leading_zero(cell.strip()) for row in rest for cell in row):
        return "one of them begins with a 0, as no count does"
    try:
        lines = [[float(cell) for cell in row] for row in rest]
    except ValueError:
        return None  # the reader of counts says what is wrong
    names = [float(cell) for cell in first]
    if len(first) > 1 and all(
        name > _FAR_ABOVE * max(1.0, *column) for name, column in zip(names, zip(*lines, strict=True), strict=True)
    ):
        return "they are far above all counts below them"
    for what, least, holds in (("consecutive", _CONSECUTIVE, _is_consecutive), ("ascending", _ASCENDING, _ascends)):
        if len(first) >= least and holds(names) and not any(holds(line) for line in lines):
            raise BadInput(
                f"{file}: the first line has {what} numbers, which may be names of regions or counts; say which: "
                "--header if they are names, --no-header if they are counts (header=True or header=False in Python)."
            )
    return None


def no_header_note(file: str, header: Sequence[str]) -> str:
    """Return the note on a file whose first line is read as counts, with the names that its columns get."""
    names = [name for name in header if name != "time"]
    shown = f"'{names[0]}'" if len(names) == 1 else f"'{names[0]}' to '{names[-1]}'"
    return (
        f"{file} has no header line: its first line is read as the counts of slot 0, and its columns are called "
        f"{shown}. If that line has names of regions, give --header (header=True in Python)."
    )


def _numbers_rows(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first of several columns is a running number, so that the first line is a slot like the others."""
    cells = [row[0].strip() for row in rows]
    return len(rows[0]) > 1 and any(cells == [str(start + row) for row in range(len(cells))] for start in (0, 1))


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return not cell.strip()  # an empty cell tells nothing
    return True


def _has_leading_zero(cell: str) -> bool:
    return len(cell) > 1 and cell.startswith("0") and cell.isdigit()


def _is_consecutive(values: Sequence[float]) -> bool:
    return all(after == before + 1 for before, after in pairwise(values))


def _ascends(values: Sequence[float]) -> bool:
    return all(after > before for before, after in pairwise(values))
