"""`dpcrowd schemes`: the table of all schemes, those of other packages included, and the check of one of them."""

from __future__ import annotations

import json
from typing import Any

import click

__all__ = ["schemes"]

_COLUMNS = ("scheme", "architecture", "sampling", "fusion", "guarantee", "live")
_HEADINGS = ("scheme", "architecture", "sampling and budget", "fusion", "guarantee", "live node")
_GUARANTEES = {(): "none", ("finite",): "finite", ("window",): "window", ("finite", "window"): "both"}


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
def schemes(as_json: bool) -> None:
    """List the schemes: who talks to whom, when they sample, how they fuse, what they promise.

    Schemes of installed packages are listed after dpcrowd's own, each with the package that makes its claim.
    """
    rows, problems = _rows()
    for problem in problems:
        click.echo(f"problem: {problem}", err=True)
    if as_json:
        click.echo(json.dumps({"schemes": rows}, ensure_ascii=False))
        return
    from rich.table import Table

    from dpcrowd.cli.console import console

    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading in _HEADINGS:
        table.add_column(heading, overflow="fold")
    for row in rows:
        claim = f", claimed by {row['claimed_by']}" if row["claimed_by"] else ""
        cells = [str(row[column]) for column in _COLUMNS[:-1]]
        cells[4] += claim
        table.add_row(*cells, "yes" if row["live"] else "")
    console().print(table)


def _rows() -> tuple[list[dict[str, Any]], list[str]]:
    """Rows of all schemes, and what is wrong with plug-ins that cannot be loaded."""
    from dpcrowd.errors import BrokenPlugin
    from dpcrowd.plugins import installed
    from dpcrowd.schemes.registry import SCHEMES

    rows = [
        {**dict(zip(_COLUMNS, (name, *scheme.summary, scheme.live), strict=True)), "claimed_by": None}
        for name, scheme in SCHEMES.items()
    ]
    problems = []
    for name, plugin in installed("scheme").items():
        try:
            scheme = plugin.load()
        except BrokenPlugin as error:
            problems.append(str(error))
            continue
        architecture, sampling, fusion, _ = scheme.summary
        guarantee = _GUARANTEES[tuple(sorted(scheme.kinds))]
        cells = (name, architecture, sampling, fusion, guarantee, False)  # live servers run dpcrowd's own schemes only
        claimed_by = plugin.package if scheme.kinds else None
        rows.append({**dict(zip(_COLUMNS, cells, strict=True)), "claimed_by": claimed_by})
    return rows, problems
