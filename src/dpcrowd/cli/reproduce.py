"""`dpcrowd reproduce`: repeat the paper's evaluation, figure by figure and claim by claim, as one page."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dpcrowd.cli import options

if TYPE_CHECKING:
    from dpcrowd.experiments.points.run import Progress, Tick

__all__ = ["reproduce"]

_SECONDS_BETWEEN_LINES = 15.0


@click.command()
@click.argument("figures", nargs=-1, metavar="[FIGURE]…")
@click.option("--runs", type=int, help="Number of independent runs per point.  [default: 50; 3 with --quick]")
@click.option("--quick", is_flag=True, help="A preview in a few minutes: few runs, few values on each axis.")
@click.option(
    "--out",
    default="report",
    show_default=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of the report; results that are in it already are not computed again.",
)
@options.seed
@options.data_dir
@click.option(
    "--tuning",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Parameters written by `dpcrowd tune`, one file per data set and scheme; may be repeated. Other schemes do "
    "not get them.",
)
@click.option(
    "--model",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Process model written by `dpcrowd fit`, one per data set; may be repeated. All filters know it, and it is "
    "public.",
)
@click.option("--scheme", "schemes", metavar="A,B,…", help="Schemes of other packages, compared in figure 10.")
@click.option("--data", metavar="A,B,…", help="Data sets of figure 10.  [default: linear]")
@click.option("--graph", default="random", show_default=True, metavar="NAME", help="Topology of figure 10.")
@options.backend
@click.option(
    "--cluster", metavar="ADDRESS", help="Address of a running Dask cluster.  [default: workers on this machine]"
)
@click.option("--jobs", type=int, help="Number of processes.  [default: the number of cores]")
@click.option("--json", "as_json", is_flag=True, help="Print the claims as JSON instead of a table.")
def reproduce(as_json: bool, schemes: str | None, data: str | None, **settings: Any) -> None:
    """Draw every figure of the paper, judge every claim, and write a report of one page.

    FIGURE is a number or a name: 1 time, 2 density, 3 interval, 4 epsilon, 5 communication, 6 window,
    7 epsilon-regions, 8 partition, 9 error-analysis, 10 plugins; `relay` is the table of relay beside DPCrowd. Without
    FIGURE, everything is made. Interrupted work is continued.

    Schemes, data sets and topologies of other packages are compared with the paper's schemes in figure 10 (plugins):
    give their names, or package:object, with --scheme, --data and --graph. It is then made in addition to every FIGURE
    that is given; without them there is no figure 10.
    """
    from dpcrowd.experiments.report.claims import MARKS, NOT_JUDGED, PLURALS, needs_other_figures
    from dpcrowd.experiments.report.coverage import CoverageRow, coverage_summary
    from dpcrowd.experiments.reproduce import reproduce as run

    with _progress() as progress:
        report = run(progress=progress, schemes=_names(schemes), data=_names(data), **settings)
    if as_json:
        click.echo(json.dumps(report.claims))
        return
    claims = report.claims["claims"]
    skipped = [claim for claim in claims if needs_other_figures(claim)]
    for claim in claims:
        if claim in skipped:
            continue
        ledger = "" if claim["ledger"] is None else f" [{claim['ledger']} ledger]"
        click.echo(f"{MARKS[claim['outcome']]} {claim['statement']}{ledger}")
    if skipped:
        what = "claim needs" if len(skipped) == 1 else "claims need"
        click.echo(f"{MARKS[NOT_JUDGED]} {len(skipped)} {what} figures that were not asked for, and were not judged")
    summary = ", ".join(
        f"{number} {outcome if number == 1 else PLURALS[outcome]}"
        for outcome, number in report.claims["summary"].items()
        if number
    )
    click.echo(f"\nclaims: {summary}")
    coverage = coverage_summary(CoverageRow(**row) for row in report.claims["coverage"])
    if coverage:
        click.echo(f"coverage: {coverage}")
    click.echo(f"report: {report.page}")
    if report.claims["models"]:
        names = ", ".join(f"{entry['model']} ({entry['data']}, {_seen(entry)})" for entry in report.claims["models"])
        click.echo(
            f"note: filters knew {names}. The claims of the paper are about filters without a process model: judge "
            "them without --model."
        )
    for name, text in report.missing.items():
        click.echo(f"missing: {name}: {text}", err=True)


def _seen(model: dict[str, Any]) -> str:
    """Return whether a model has seen slots that were scored."""
    slots = model["in_sample_slots"]
    if slots is None:
        return "which may have been fitted on slots that were scored"
    if slots == 0:
        return "not in-sample"
    return f"in-sample: fitted on {slots} of the slots that were scored"


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())


@contextmanager
def _progress() -> Iterator[Progress]:
    """Show progress on standard error: a bar on a terminal, otherwise a line every 15 seconds."""
    if not sys.stderr.isatty():
        yield _ProgressLines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("preparing", total=None)

        def update(tick: Tick) -> None:
            description = f"{tick.figure}, {tick.runs_done:,}/{tick.runs:,} runs"
            bar.update(task, description=description, completed=tick.work_done, total=tick.work)

        yield update


class _ProgressLines:
    """Progress as lines for a log file."""

    def __init__(self) -> None:
        self._start_time = self._last = time.monotonic()
        self._work_before: float | None = None

    def __call__(self, tick: Tick) -> None:
        now = time.monotonic()
        first = self._work_before is None
        self._work_before = tick.work_done if self._work_before is None else self._work_before
        ended = tick.runs_done == tick.runs
        if not first and not ended and now - self._last < _SECONDS_BETWEEN_LINES:
            return
        self._last = now
        remaining = ""
        if tick.work_done > self._work_before and not ended:
            seconds = (now - self._start_time) * (tick.work - tick.work_done) / (tick.work_done - self._work_before)
            remaining = f", about {seconds / 60:.0f} min left" if seconds >= 90 else f", about {seconds:.0f} s left"
        click.echo(f"{tick.figure}: {tick.runs_done:,} of {tick.runs:,} runs{remaining}", err=True)
