"""`dpcrowd feed`: check-ins from a file or a pipe to a node."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from dpcrowd.client.client import Client
    from dpcrowd.client.errors import NodeError

__all__ = ["feed"]

_MOST_TOLD = 20
_WAKE = 0.2
_AGAIN = 1.0
_LEFT_OUT, _NO_ANSWER = 1, 4


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
@click.option("-v", "--verbose", is_flag=True, help="Say at the end how many were taken: a raw number, not for logs.")
def feed(
    url: str,
    source: str,
    follow: bool,
    new: bool,
    token: str | None,
    ca: Path | None,
    batch: int,
    seconds: float,
    verbose: bool,
) -> int:
    """Send check-ins to the node at URL, one JSON object a line: {"user": …, "region": …, "time": …}.

    Reads a file, or standard input with "-". Every batch is on the node's disk before the next one leaves. Lines that
    are no check-ins, and those that the node refuses, are told by their number and left out; all others are taken.
    If nothing is left out, nothing is said.

    While it waits for lines (--follow, or standard input), it sends an empty list in every slot, so that the node can
    tell a crowd that is silent from a feed that has died. With --follow it waits for a node that is away, and says so.
    A line without a time counts when it is sent: start again with --new, or old lines count as people of now.

    Exit codes: 0 all lines were taken; 1 some were left out; 2 wrong input, or a token that may not send; 4 the node
    does not answer or cannot take check-ins now, and the message says from which line on nothing was taken.
    """
    from dpcrowd.client.client import Client
    from dpcrowd.client.deliver import Undelivered, deliver
    from dpcrowd.client.errors import NodeBusy, NodeFailed, NodeUnreachable
    from dpcrowd.client.tail import batches

    lines = _lines(source, follow=follow, new=new)
    waits = follow or source == "-"
    told = _Told()
    taken = 0
    code = 0
    with Client(url, token, ca=ca) as client:
        idle_at = time.monotonic()
        try:
            for checkins in batches(lines, told.wrong, size=batch, seconds=seconds, wake=_WAKE if waits else None):
                if waits and time.monotonic() >= idle_at:
                    idle_at = time.monotonic() + _say_idle(client)
                if checkins:
                    wait = _Waiting(patient=follow)
                    taken += deliver(_sender(client, wait), checkins, told.wrong, wait.again)
        except (Undelivered, NodeBusy, NodeFailed, NodeUnreachable) as error:
            taken += error.taken
            since = f" Lines from {error.number} on were not taken." if isinstance(error, Undelivered) else ""
            click.echo(f"dpcrowd: error: {_said(error)}{since}", err=True)
            code = _NO_ANSWER
    told.sum_up()
    if verbose:
        click.echo(f"dpcrowd: {taken} check-ins taken", err=True)
    return code or (_LEFT_OUT if told.lines else 0)


def _lines(source: str, *, follow: bool, new: bool) -> Iterator[tuple[int, str]]:
    from dpcrowd.client.tail import follow_file, open_lines, read_lines
    from dpcrowd.errors import BadInput

    if new and not follow:
        raise BadInput("--new is for files that grow; give --follow as well.")
    if source == "-":
        if follow:
            raise BadInput("--follow is for files; standard input is read until it ends.")
        if isinstance(sys.stdin, io.TextIOWrapper):
            sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape")
        return read_lines(sys.stdin)
    if follow:
        return follow_file(Path(source), lambda: False, new=new)
    try:
        return read_lines(open_lines(Path(source)))
    except OSError as error:
        raise BadInput(f"cannot read '{source}': {error.strerror or error}.") from None


class _Told:
    """Lines that were left out: each is told once, and after some of them only their sum."""

    def __init__(self) -> None:
        self.lines = 0

    def wrong(self, number: int, why: str) -> None:
        self.lines += 1
        if self.lines <= _MOST_TOLD:
            click.echo(f"dpcrowd: left out: line {number}: {why}.", err=True)

    def sum_up(self) -> None:
        if self.lines > _MOST_TOLD:
            click.echo(f"dpcrowd: left out: {self.lines - _MOST_TOLD} more lines", err=True)


class _Waiting:
    """A node that is away ends the feed; one that follows a file waits for the node as it waits for lines."""

    def __init__(self, *, patient: bool) -> None:
        self._patient = patient
        self._told = False

    def again(self, error: NodeError) -> bool:
        if not self._patient:
            return False
        if not self._told:
            click.echo(f"dpcrowd: waiting: {_said(error)}", err=True)
        self._told = True
        time.sleep(_AGAIN)
        return True

    def over(self) -> None:
        if self._told:
            click.echo("dpcrowd: the node takes check-ins again", err=True)
        self._told = False


def _sender(client: Client, waiting: _Waiting) -> Any:
    def send(rows: list[dict[str, Any]]) -> None:
        client.checkin(rows, batch=len(rows))
        waiting.over()

    return send


def _said(error: NodeError) -> str:
    """In the words of the command line."""
    return str(error).replace("(ca)", "(--ca)") if error.reason == "untrusted" else str(error)


def _say_idle(client: Client) -> float:
    """Seconds until it is time again. A node that is away or busy is asked again soon: there is nothing to lose."""
    from dpcrowd.client.errors import NodeBusy, NodeFailed, NodeUnreachable

    try:
        return client.idle()
    except (NodeBusy, NodeFailed, NodeUnreachable):
        return _AGAIN
