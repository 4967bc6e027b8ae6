"""`dpcrowd.reproduce`: simulate the points that are missing, draw the figures, judge the claims, write the report."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpcrowd.errors import BadInput, MissingExtra
from dpcrowd.experiments.claims import judge_all
from dpcrowd.experiments.claims.slot_cost import measure_slot_cost
from dpcrowd.experiments.draw import draw
from dpcrowd.experiments.figures import RELAY_TABLE, find_figures
from dpcrowd.experiments.figures.tables import write_tables
from dpcrowd.experiments.points.plan import Additions, make_plan
from dpcrowd.experiments.points.run import Progress, Tick, run_points
from dpcrowd.experiments.points.store import Store
from dpcrowd.experiments.relay_table import make_relay_table, relay_points
from dpcrowd.experiments.report import Facts, page_template, write_report
from dpcrowd.experiments.report.coverage import coverage_rows
from dpcrowd.sim.backends import Backend

__all__ = ["Reproduction", "reproduce"]


@dataclass(frozen=True, eq=False)
class Reproduction:
    """The outcome of a reproduction: the page, the claims as in claims.json, and data sets that were not found."""

    page: Path
    claims: dict[str, Any]
    missing: Mapping[str, str]


def reproduce(
    figures: Iterable[str | int] = (),
    *,
    out: str | os.PathLike[str] = "report",
    runs: int | None = None,
    quick: bool = False,
    seed: int = 0,
    data_dir: str | os.PathLike[str] | None = None,
    tuning: Iterable[str | os.PathLike[str]] = (),
    model: Iterable[str | os.PathLike[str]] = (),
    schemes: Iterable[str] = (),
    data: Iterable[str] = (),
    graph: str = "random",
    backend: str = "local",
    cluster: str | None = None,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> Reproduction:
    """Reproduce the paper's evaluation in the folder `out`; results that it already holds are reused.

    figures   numbers or names, and "relay" for the table of relay beside DPCrowd; none: all of them and the table
    runs      runs per point; without: 50, or 3 if quick
    tuning    parameter files from `dpcrowd tune`, one per data set and scheme: no other scheme gets its parameters
    model     process models from `dpcrowd fit`, one per data set: all filters know it
    schemes, data, graph   of other packages, by name or `package:object`: compared with the paper's in figure 10,
              which is then made in addition to the others
    backend   local or dask; cluster: the address of a running Dask cluster
    progress  called with a `Tick` whenever a batch of runs has ended
    """
    start = time.monotonic()
    added = Additions(tuple(schemes), tuple(data), graph)
    names = tuple(str(figure) for figure in figures)
    selection = find_figures(names, added=bool(added))
    with_relay_table = not names or RELAY_TABLE in names
    workers = Backend(backend, jobs, cluster)
    plan = make_plan(runs=runs, quick=quick, seed=seed, data_dir=data_dir, tuning=tuning, models=model, added=added)
    folder = _prepare_folder(Path(out))
    store = Store(folder / "points")
    last = Tick("", 0, 0, 0.0, 0.0)
    from_disk: int | None = None

    def on_tick(tick: Tick) -> None:
        nonlocal last, from_disk
        last = tick
        from_disk = tick.runs_done if from_disk is None else from_disk
        if progress is not None:
            progress(tick)

    points = {f"figure {figure.number} ({figure.name})": figure.points(plan) for figure in selection}
    if with_relay_table:
        points["table of relay"] = relay_points(plan)
    results = run_points(plan, points, store, workers, on_tick)
    relay_table = make_relay_table(plan, results) if with_relay_table else None
    drawings = []
    for figure in selection:
        write_tables(figure, plan, results, folder)
        drawings.append(draw(figure, figure.panels(plan, results), folder))
    judged = judge_all(plan, results, {figure.number for figure in selection}, slot_cost=measure_slot_cost())
    coverage = coverage_rows(selection, plan, results)
    facts = Facts(seconds=time.monotonic() - start, runs=last.runs, runs_from_disk=from_disk or 0)
    page, claims = write_report(folder, plan, drawings, judged, facts, relay_table, coverage)
    return Reproduction(page, claims, plan.missing)


def _prepare_folder(path: Path) -> Path:
    """Create the folder of the report and check that it can be written, before any work is done."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise MissingExtra("matplotlib", "report", "drawing") from None
    page_template()
    try:
        path.mkdir(parents=True, exist_ok=True)
        trial = path / ".writable"
        trial.touch()
        trial.unlink()
    except OSError as error:
        raise BadInput(f"cannot write the report to '{path}': {error.strerror or error}.") from None
    return path
