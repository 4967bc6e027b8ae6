"""`dpcrowd schemes`: list all schemes, with those of other packages, or check one of them."""

from __future__ import annotations

import json
from typing import Any

import click

__all__ = ["schemes"]

_COLUMNS = ("scheme", "architecture", "sampling", "fusion", "guarantee", "live")
_HEADINGS = ("scheme", "architecture", "sampling and budget", "fusion", "guarantee", "live node")
_GUARANTEES = {(): "none", ("finite",): "finite", ("window",): "window", ("finite", "window"): "both"}


@click.command()
@click.option(
    "--check", "name", metavar="NAME", help="Check this scheme instead of listing all: a name, or package:Class."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
def schemes(name: str | None, as_json: bool) -> int:
    """List the schemes: their architecture, sampling, fusion and guarantee.

    Schemes of installed packages are listed after dpcrowd's own, each with the package that claims its guarantee. With
    --check, `dpcrowd.testing.check_scheme` checks one scheme; the exit code is 1 if it does not pass.
    """
    if name is not None:
        return _check(name, as_json)
    rows, problems = _rows()
    for problem in problems:
        click.echo(f"problem: {problem}", err=True)
    if as_json:
        click.echo(json.dumps({"schemes": rows}, ensure_ascii=False))
        return 0
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
    return 0


def _check(name: str, as_json: bool) -> int:
    from dataclasses import asdict

    from dpcrowd.testing import examine_scheme

    report = examine_scheme(name)
    click.echo(json.dumps({"report": asdict(report)}, ensure_ascii=False) if as_json else str(report))
    return 0 if report.ok else 1


def _rows() -> tuple[list[dict[str, Any]], list[str]]:
    """Return the rows of all schemes, and a problem for each plug-in that cannot be loaded."""
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
