"""`dpcrowd schemes`: the table of all schemes."""

from __future__ import annotations

import json

import click

__all__ = ["schemes"]


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
def schemes(as_json: bool) -> None:
    """List the schemes: who talks to whom, when they sample, how they fuse, what they promise."""
    from dpcrowd.schemes.registry import SCHEMES

    columns = ("scheme", "architecture", "sampling", "fusion", "guarantee", "live")
    rows = [dict(zip(columns, (name, *scheme.summary, scheme.live), strict=True)) for name, scheme in SCHEMES.items()]
    if as_json:
        click.echo(json.dumps({"schemes": rows}, ensure_ascii=False))
        return
    from rich.table import Table

    from dpcrowd.cli.console import console

    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in ("scheme", "architecture", "sampling and budget", "fusion", "guarantee", "live node"):
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(str(row[c]) for c in columns[:-1]), "yes" if row["live"] else "")
    console().print(table)
