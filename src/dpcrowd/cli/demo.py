"""`dpcrowd demo`: a complete network on this machine, with a crowd whose true counts are known."""

from __future__ import annotations

import sys
import webbrowser
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
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    help="Stop after this many seconds.  [default: run until Control-C]",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per slot instead of a table.")
@click.option(
    "--servers", default=5, show_default=True, type=int, help="Run this many servers, one process each; 2 to 50."
)
@click.option(
    "--people",
    default=20_000,
    show_default=True,
    type=int,
    help="Simulate a crowd of this many people; 1 to 1,000,000.",
)
@click.option(
    "--slot", default="1s", show_default=True, metavar="1s|5s|…", help="Length of a slot of the network, 1s to 1h."
)
@click.option(
    "--data",
    metavar="FILE|NAME",
    help="Replay check-ins from a file with the columns user, time and region, or a data set that `dpcrowd data` "
    "lists, such as gowalla or flights.  [default: a synthetic crowd]",
)
@click.option(
    "--slot-length",
    metavar="1h|1d|…",
    help="With --data FILE or gowalla: length of the slots of the check-ins; each is replayed in one slot of the "
    "network.  [default: 1d, of gowalla 1w]",
)
@click.option(
    "--seed",
    default=0,
    show_default=True,
    type=int,
    help="Seed of the crowd, and of which server each person belongs to; the noise of the nodes has no seed.",
)
@click.option(
    "--keep",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write keys, files and logs into this empty folder and keep them.  [default: a temporary folder]",
)
@click.option("--open", "open_page", is_flag=True, help="Open the live page in a browser.")
@click.pass_context
def demo(ctx: click.Context, /, as_json: bool, seconds: float | None, open_page: bool, **settings: Any) -> int:
    """Run a network of real nodes on this machine, and compare their estimates with the true counts.

    Five node processes talk over mutual TLS on loopback; each gets the check-ins of a fifth of the people and publishes
    estimates of all of them. Exit codes: 0 stopped after --seconds or by Control-C, 2 wrong input, 5 a node failed.
    """
    for library in ("cryptography", "httpx", "zenoh", "starlette", "uvicorn"):
        if find_spec(library) is None:
            raise MissingExtra(library, "node", "dpcrowd demo")
    from dpcrowd.demo.node_client import ApiFailed
    from dpcrowd.demo.processes import NodeProcessFailed
    from dpcrowd.demo.run import make_source, open_demo

    data, length, people = settings.pop("data"), settings.pop("slot_length"), settings.pop("people")
    _refuse_ignored_options(ctx, data)
    source = make_source(people, data, length, settings["seed"])
    try:
        with open_demo(source, **settings, report=_report) as running:
            _report(f"live page: {running.page}")
            if open_page:
                webbrowser.open(running.page)
            _show(running, seconds, as_json)
    except (NodeProcessFailed, ApiFailed) as error:
        for line in error.log if isinstance(error, NodeProcessFailed) else ():
            click.echo(f"  {line}", err=True)
        click.echo(f"dpcrowd: error: {error}", err=True)
        return NODE_FAILED
    except KeyboardInterrupt as stop:
        if type(stop) is not KeyboardInterrupt:  # SIGTERM has an exit code of its own
            raise
        _report("stopped")
    return 0


def _refuse_ignored_options(ctx: click.Context, data: str | None) -> None:
    def is_set(name: str) -> bool:
        return ctx.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT

    if is_set("people") and data is not None:
        raise BadInput(
            f"--people is the size of the synthetic crowd, and --data '{data}' has its own people; leave --people out."
        )
    if is_set("slot_length") and data is None:
        raise BadInput(
            "--slot-length is the length of the slots of a replayed file; add --data FILE, or use --slot for the "
            "network."
        )
    if is_set("slot_length") and data == "flights":
        raise BadInput(
            "--slot-length is for check-ins, from a file or gowalla; 'flights' always has one slot per day. Leave "
            "--slot-length out."
        )


def _show(running: Demo, seconds: float | None, as_json: bool) -> None:
    from rich.live import Live

    from dpcrowd.cli.console import console
    from dpcrowd.demo.show import Board
    from dpcrowd.demo.show import as_json as json_line
    from dpcrowd.demo.show import as_text as text_line

    board = Board(running.network, running.source.note, running.page)
    first = running.seconds_to_first_release()
    live = not as_json and sys.stdout.isatty()
    if not live:
        _report(board.about)
        _report("APIs: " + ", ".join(f"{node.name} {node.address}" for node in running.network.nodes))
    try:
        with Live(board, console=console(), auto_refresh=False) if live else nullcontext() as screen:
            for row in running.rows(seconds):
                board.add(row)
                for problem in row.problems:
                    if screen is None:
                        _report(problem)
                    else:
                        screen.console.print(f"dpcrowd demo: {problem}", style="yellow", markup=False)
                if screen is not None:
                    screen.refresh()
                else:
                    click.echo(json_line(row) if as_json else text_line(row))
                    sys.stdout.flush()  # without this, a pipe would buffer lines
    finally:
        if board.rows:
            _report(board.summary)
    if not board.rows and seconds is not None:
        _report(f"no slot ended within {seconds:g} s: the first one takes about {first:.0f} s; increase --seconds.")


def _report(text: str) -> None:
    click.echo(f"dpcrowd demo: {text}", err=True)
