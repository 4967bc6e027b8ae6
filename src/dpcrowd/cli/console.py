"""The console for tables and progress bars: as wide as the terminal, or wide enough for any table without one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["console", "print_columns", "progress_bar"]

_GAP = 2
_FEWEST_LEFT = 3
"""Columns of the last of several tables, if the one before it has more."""


def console() -> Any:
    """Return a rich console on standard output."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 200, highlight=False)


def print_columns(out: Any, columns: dict[str, list[str]], width: int | None = None) -> None:
    """Print a table; if the terminal is too narrow, as several tables, each of which begins with the first column.

    A number that lost its digits to a narrow column would be worse than no number.

    width  most characters of a line; None: those of the terminal
    """
    from rich.table import Table

    first, *others = columns
    most = out.width if width is None else min(width, out.width)
    for names in _split_to_width(columns, first, others, most):
        table = Table(box=None, header_style="bold", pad_edge=False)
        table.add_column(first, no_wrap=True)
        for name in names:
            table.add_column(name, justify="right", no_wrap=True)
        for row in zip(columns[first], *(columns[name] for name in names), strict=True):
            table.add_row(*row)
        out.print(table)


def _split_to_width(columns: dict[str, list[str]], first: str, others: list[str], width: int) -> list[list[str]]:
    """Return the names of the columns of each table, apart from the first column.

    A column or two that are left over take others with them: a table of one number per row is easily overlooked.
    """
    widths = {name: _GAP + max(map(len, [name, *values])) for name, values in columns.items()}
    tables: list[list[str]] = [[]]
    used = widths[first]
    for name in others:
        if tables[-1] and used + widths[name] > width:
            tables.append([])
            used = widths[first]
        tables[-1].append(name)
        used += widths[name]
    while len(tables) > 1 and len(tables[-1]) < _FEWEST_LEFT < len(tables[-2]):
        moved = tables[-2][-1]
        if used + widths[moved] > width:
            break
        tables[-1].insert(0, tables[-2].pop())
        used += widths[moved]
    return tables


@contextmanager
def progress_bar(text: str) -> Iterator[Callable[[int, int], None] | None]:
    """Show a progress bar on standard error; yields None, and shows nothing, if that is not a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn(text), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(text, total=None)

        def update(completed: int, total: int) -> None:
            bar.update(task, completed=completed, total=total)

        yield update
