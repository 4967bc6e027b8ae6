"""The console for tables and progress: as wide as the terminal, or wide enough for a table where there is none."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["console", "print_columns", "progress_bar"]

_GAP = 2


def console() -> Any:
    """A rich console on standard output."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 170, highlight=False)


def print_columns(out: Any, columns: dict[str, list[str]]) -> None:
    """A table, cut into several below each other where the terminal is too narrow; each begins with the first column.

    A number that lost its digits to a narrow column would be worse than no number.
    """
    from rich.table import Table

    first, *others = columns
    for names in _fitting(columns, first, others, out.width):
        table = Table(box=None, header_style="bold", pad_edge=False)
        table.add_column(first, no_wrap=True)
        for name in names:
            table.add_column(name, justify="right", no_wrap=True)
        for row in zip(columns[first], *(columns[name] for name in names), strict=True):
            table.add_row(*row)
        out.print(table)


def _fitting(columns: dict[str, list[str]], first: str, others: list[str], width: int) -> list[list[str]]:
    wide = {name: _GAP + max(map(len, [name, *values])) for name, values in columns.items()}
    tables: list[list[str]] = [[]]
    used = wide[first]
    for name in others:
        if tables[-1] and used + wide[name] > width:
            tables.append([])
            used = wide[first]
        tables[-1].append(name)
        used += wide[name]
    return tables


@contextmanager
def progress_bar(text: str) -> Iterator[Callable[[int, int], None] | None]:
    """A progress bar on standard error, or nothing where that is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn(text), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(text, total=None)

        def update(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        yield update
