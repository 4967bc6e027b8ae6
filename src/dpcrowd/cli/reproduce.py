"""`dpcrowd reproduce`: the paper's evaluation, figure by figure and claim by claim, as one page."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from dpcrowd.experiments.points.run import Progress, Tick

__all__ = ["reproduce"]

_SECONDS_BETWEEN_LINES = 15.0


@click.command()
@click.argument("figures", nargs=-1, metavar="[FIGURE]…")
@click.option("--runs", type=int, help="Independent runs of every point. [default: 50; 3 with --quick]")
@click.option("--quick", is_flag=True, help="A look in a few minutes: few runs, few values on each axis.")
@click.option(
    "--out",
    default="report",
    show_default=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of the report; results in it are used again.",
)
@click.option("--seed", default=0, show_default=True, type=int, help="Runs depend on the seed alone.")
@click.option("--data-dir", type=click.Path(path_type=Path), help="Folder that has flu.csv and multi_flu.csv.")
@click.option(
    "--tuning",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Parameters from `dpcrowd tune`, a file for each data set; may be repeated.",
)
@click.option("--scheme", "schemes", metavar="A,B,…", help="Add schemes of other packages, in figure 10.")
@click.option("--data", metavar="A,B,…", help="Data sets for figure 10.  [default: linear]")
@click.option("--graph", default="random", show_default=True, metavar="NAME", help="The network of figure 10.")
@click.option("--backend", default="local", show_default=True, help="Where to compute: local or dask.")
@click.option("--cluster", metavar="ADDRESS", help="A running Dask cluster. [default: workers on this machine]")
@click.option("--jobs", type=int, help="Processes. [default: as many as cores]")
@click.option("--json", "as_json", is_flag=True, help="Print the claims as JSON instead of a table.")
def reproduce(as_json: bool, schemes: str | None, data: str | None, **settings: Any) -> None:
    """Draw every figure of the paper, judge every claim, and write one page about it.

    FIGURE is a number or a name: 1 time, 2 density, 3 interval, 4 epsilon, 5 communication, 6 window,
    7 epsilon-regions, 8 partition, 9 error-analysis; or relay, the table of relay beside DPCrowd. Without any: all of
    them. Interrupted work goes on where it was.

    Schemes, data sets and a network of other packages are compared with the paper's schemes in figure 10, plugins: give
    their names, or package:object, with --scheme, --data and --graph.
    """
    from dpcrowd.experiments.report.claims import MARKS, PLURALS
    from dpcrowd.experiments.reproduce import reproduce as run

    with _shown() as progress:
        done = run(progress=progress, schemes=_names(schemes), data=_names(data), **settings)
    if as_json:
        click.echo(json.dumps(done.claims))
        return
    for claim in done.claims["claims"]:
        ledger = "" if claim["ledger"] is None else f" [{claim['ledger']} ledger]"
        click.echo(f"{MARKS[claim['outcome']]} {claim['statement']}{ledger}")
    summary = ", ".join(f"{number} {PLURALS[outcome]}" for outcome, number in done.claims["summary"].items() if number)
    click.echo(f"\nclaims: {summary}\nreport: {done.page}")
    for name, text in done.missing.items():
        click.echo(f"missing: {name}: {text}", err=True)


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())


@contextmanager
def _shown() -> Iterator[Progress]:
    """A bar on a terminal, else a line now and then; both on standard error."""
    if not sys.stderr.isatty():
        yield _Lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("preparing", total=None)

        def update(tick: Tick) -> None:
            what = f"{tick.figure}, {tick.runs_done:,}/{tick.runs:,} runs"
            bar.update(task, description=what, completed=tick.work_done, total=tick.work)

        yield update


class _Lines:
    """Progress for a log file."""

    def __init__(self) -> None:
        self._began = self._last = time.monotonic()
        self._start: float | None = None

    def __call__(self, tick: Tick) -> None:
        now = time.monotonic()
        first = self._start is None
        self._start = tick.work_done if self._start is None else self._start
        ended = tick.runs_done == tick.runs
        if not first and not ended and now - self._last < _SECONDS_BETWEEN_LINES:
            return
        self._last = now
        left = ""
        if tick.work_done > self._start and not ended:
            seconds = (now - self._began) * (tick.work - tick.work_done) / (tick.work_done - self._start)
            left = f", about {seconds / 60:.0f} min left" if seconds >= 90 else f", about {seconds:.0f} s left"
        click.echo(f"{tick.figure}: {tick.runs_done:,} of {tick.runs:,} runs{left}", err=True)
