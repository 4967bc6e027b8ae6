"""`dpcrowd feed`: check-ins from a file or a pipe to a node."""

from __future__ import annotations

import sys
from pathlib import Path

import click

__all__ = ["feed"]

_MOST_TOLD = 20


@click.command()
@click.argument("url")
@click.argument("source", metavar="FILE|-", default="-")
@click.option("--follow", is_flag=True, help="Go on when the file ends: it grows, or a new one takes its name.")
@click.option("--token", envvar="DPCROWD_TOKEN", help="A token that may send check-ins.  [env: DPCROWD_TOKEN]")
@click.option("--batch", type=click.IntRange(1, 100_000), default=1000, show_default=True, help="Rows in a request.")
@click.option(
    "--seconds", type=click.FloatRange(0.01, 60), default=0.5, show_default=True, help="No check-in waits longer."
)
def feed(url: str, source: str, follow: bool, token: str | None, batch: int, seconds: float) -> int:
    """Send check-ins to the node at URL, one JSON object a line: {"user": …, "region": …, "time": …}.

    Reads a file, or standard input with "-". Every batch is on the node's disk before the next one leaves. What the
    node refuses, and lines that are no check-ins, are reported by number and left out; then the exit code is 1.
    """
    from dpcrowd.client.client import Client
    from dpcrowd.client.errors import NotTaken, RequestRefused
    from dpcrowd.client.tail import batches, follow_file, read_lines
    from dpcrowd.errors import BadInput

    wrong = 0

    def tell(text: str) -> None:
        nonlocal wrong
        wrong += 1
        if wrong <= _MOST_TOLD:
            click.echo(f"dpcrowd: left out: {text}", err=True)

    if source == "-":
        if follow:
            raise BadInput("--follow is for files; standard input is read until it ends.")
        lines = read_lines(sys.stdin)
    elif follow:
        lines = follow_file(Path(source), lambda: False)
    else:
        try:
            lines = read_lines(Path(source).open(encoding="utf-8"))  # noqa: SIM115 - closed at its end
        except OSError as error:
            raise BadInput(f"cannot read '{source}': {error.strerror or error}.") from None
    with Client(url, token) as client:
        for rows in batches(lines, lambda number, why: tell(f"line {number}: {why}."), size=batch, seconds=seconds):
            try:
                client.checkin(rows)
            except (NotTaken, RequestRefused) as error:
                tell(f"{len(rows)} check-ins: {error}")
    if wrong > _MOST_TOLD:
        click.echo(f"dpcrowd: left out: {wrong - _MOST_TOLD} more lines or batches", err=True)
    return 1 if wrong else 0
