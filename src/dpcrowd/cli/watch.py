"""`dpcrowd watch`: the estimates, budgets and neighbours of one or several running nodes, live in a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dpcrowd.errors import BadInput, counted

if TYPE_CHECKING:
    from dpcrowd.cli.watch_nodes import NodeWatch

__all__ = ["watch"]

_REFUSED, _NO_ANSWER = 2, 4
_REFRESH = 0.5  # seconds
_MOST_AT_ONCE = 20


@click.command()
@click.argument("urls", metavar="URL...", nargs=-1, required=True)
@click.option("--token", envvar="DPCROWD_TOKEN", help="Token with the right to read.  [env: DPCROWD_TOKEN]")
@click.option(
    "--token-file",
    "token_files",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Read the token from this file; give it once for all nodes, or once per node, in their order.",
)
@click.option(
    "--ca",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="For HTTPS: PEM file with the certificate of the authority, or of the node.",
)
@click.option(
    "--interval",
    type=click.FloatRange(0.2, 3600),
    metavar="SECONDS",
    help="Ask the nodes this often.  [default: twice per slot, at least every 5 seconds]",
)
@click.option("--once", is_flag=True, help="Print the table once and end.")
@click.option("--json", "as_json", is_flag=True, help="With --once: print one JSON object per node and line.")
def watch(
    urls: tuple[str, ...],
    token: str | None,
    token_files: tuple[Path, ...],
    ca: Path | None,
    interval: float | None,
    once: bool,
    as_json: bool,
) -> int:
    """Show the estimates, the budget and the neighbours of the nodes at these URLs, live.

    Every row is a region with its estimate, its 95% interval and its trend, every column a node. A node that does not
    answer stays in the table with the time since when, and is asked again until it answers. Control-C ends the command.

    If the output is not a terminal, the table is printed once, as with --once.

    Exit codes: 0 all nodes have answered, or Control-C; 2 wrong input, or a node refused the token; 4 a node did not
    answer, or answered with another error (both only with --once).
    """
    from dpcrowd.cli.watch_nodes import NodeWatch

    if as_json and not once:
        raise BadInput("--json prints a single state; add --once.")
    addresses = [url.rstrip("/") for url in urls]
    repeated = [url for url in addresses if addresses.count(url) > 1]
    if repeated:
        raise BadInput(f"{repeated[0]} is given twice; give every node once.")
    tokens = _tokens(urls, token, token_files)
    nodes = [NodeWatch(url, secret, ca, interval) for url, secret in zip(urls, tokens, strict=True)]
    with ExitStack() as stack:
        for node in nodes:
            stack.callback(node.close)
        if once or not sys.stdout.isatty():
            return _print_once(nodes, as_json=as_json)
        return _print_live(nodes)


def _tokens(urls: Sequence[str], token: str | None, files: Sequence[Path]) -> list[str | None]:
    """Return one token per node."""
    if not files:
        return [_checked(token, "--token or DPCROWD_TOKEN") if token is not None else None] * len(urls)
    if len(files) not in (1, len(urls)):
        raise BadInput(
            f"--token-file is given {counted(len(files), 'time')} for {counted(len(urls), 'node')}; allowed: once for "
            "all of them, or once per node."
        )
    tokens: list[str | None] = []
    for path in files:
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not text"
            raise BadInput(f"--token-file '{path}' cannot be read: {why}.") from None
        tokens.append(_checked(text, f"--token-file '{path}'"))
    return tokens * len(urls) if len(tokens) == 1 else tokens


def _checked(text: str, source: str) -> str:
    token = text.strip()
    if not token or not token.isprintable():
        raise BadInput(f"the token of {source} is empty or contains characters that cannot be sent.")
    return token


def _print_once(nodes: Sequence[NodeWatch], *, as_json: bool) -> int:
    from dpcrowd.cli.console import console
    from dpcrowd.cli.watch_board import WatchBoard, as_json_line

    with ThreadPoolExecutor(min(len(nodes), _MOST_AT_ONCE)) as pool:
        list(pool.map(lambda node: node.update(), nodes))
    states = [node.state for node in nodes]
    if as_json:
        for state in states:
            click.echo(as_json_line(state))
    else:
        console().print(WatchBoard(lambda: states, height=None))
    if any(state.refused for state in states):
        return _REFUSED
    return _NO_ANSWER if any(state.away_since is not None for state in states) else 0


def _print_live(nodes: Sequence[NodeWatch]) -> int:
    from rich.live import Live

    from dpcrowd.cli.console import console
    from dpcrowd.cli.watch_board import WatchBoard

    out = console()
    board = WatchBoard(lambda: [node.state for node in nodes], height=lambda: out.size.height)
    for node in nodes:
        node.start()
    try:
        with Live(board, console=out, auto_refresh=False, screen=True) as screen:
            while True:
                screen.refresh()
                time.sleep(_REFRESH)
    except KeyboardInterrupt as stop:
        if type(stop) is not KeyboardInterrupt:  # SIGTERM has an exit code of its own
            raise
    return 0
