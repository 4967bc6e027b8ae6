"""`dpcrowd feed`: check-ins from a file or a pipe to a node."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from dpcrowd.client.client import Client

__all__ = ["feed"]

_MOST_TOLD = 20
_WAKE = 0.2
_AGAIN = 1.0


@click.command()
@click.argument("url")
@click.argument("source", metavar="FILE|-", default="-")
@click.option("--follow", is_flag=True, help="Go on when the file ends: it grows, or a new one takes its name.")
@click.option("--new", is_flag=True, help="With --follow: only lines that come from now on, not those already there.")
@click.option("--token", envvar="DPCROWD_TOKEN", help="A token that may send check-ins.  [env: DPCROWD_TOKEN]")
@click.option(
    "--ca",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="For HTTPS: the authority's certificate, or the node's own.",
)
@click.option("--batch", type=click.IntRange(1, 100_000), default=1000, show_default=True, help="Rows in a request.")
@click.option(
    "--seconds", type=click.FloatRange(0.01, 60), default=0.5, show_default=True, help="No check-in waits longer."
)
def feed(
    url: str,
    source: str,
    follow: bool,
    new: bool,
    token: str | None,
    ca: Path | None,
    batch: int,
    seconds: float,
) -> int:
    """Send check-ins to the node at URL, one JSON object a line: {"user": …, "region": …, "time": …}.

    Reads a file, or standard input with "-". Every batch is on the node's disk before the next one leaves. What the
    node refuses, and lines that are no check-ins, are reported by number and left out; then the exit code is 1.

    While it waits for lines (--follow, or standard input), it sends an empty list in every slot, so that the node can
    tell a crowd that is silent from a feed that has died. With --follow it waits for a node that is away, and says so.
    A line without a time counts when it is sent: start again with --new, or old lines count as people of now.
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

    if new and not follow:
        raise BadInput("--new is for files that grow; give --follow as well.")
    if source == "-":
        if follow:
            raise BadInput("--follow is for files; standard input is read until it ends.")
        lines = read_lines(sys.stdin)
    elif follow:
        lines = follow_file(Path(source), lambda: False, new=new)
    else:
        try:
            lines = read_lines(Path(source).open(encoding="utf-8"))  # noqa: SIM115 - closed at its end
        except OSError as error:
            raise BadInput(f"cannot read '{source}': {error.strerror or error}.") from None
    waits = follow or source == "-"
    wrong_line = lambda number, why: tell(f"line {number}: {why}.")  # noqa: E731
    with Client(url, token, ca=ca) as client:
        idle_at = time.monotonic()
        for rows in batches(lines, wrong_line, size=batch, seconds=seconds, wake=_WAKE if waits else None):
            if waits and time.monotonic() >= idle_at:
                idle_at = time.monotonic() + _say_idle(client)
            try:
                if rows:
                    _send(client, rows, patient=follow)
            except (NotTaken, RequestRefused) as error:
                tell(f"{len(rows)} check-ins: {error}")
    if wrong > _MOST_TOLD:
        click.echo(f"dpcrowd: left out: {wrong - _MOST_TOLD} more lines or batches", err=True)
    return 1 if wrong else 0


def _send(client: Client, rows: list[dict[str, Any]], *, patient: bool) -> None:
    """A node that is away ends the feed; one that follows a file waits for the node as it waits for lines."""
    from dpcrowd.client.errors import NodeBusy, NodeFailed, NodeUnreachable

    told = False
    while True:
        try:
            client.checkin(rows)
            break
        except (NodeBusy, NodeFailed, NodeUnreachable) as error:
            if not patient:
                raise
            if not told:
                click.echo(f"dpcrowd: waiting: {error}", err=True)
            told = True
            time.sleep(_AGAIN)
    if told:
        click.echo("dpcrowd: the node takes check-ins again", err=True)


def _say_idle(client: Client) -> float:
    """Seconds until it is time again. A node that is away or busy is asked again soon: there is nothing to lose."""
    from dpcrowd.client.errors import NodeBusy, NodeFailed, NodeUnreachable

    try:
        return client.idle()
    except (NodeBusy, NodeFailed, NodeUnreachable):
        return _AGAIN
