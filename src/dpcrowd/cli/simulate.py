"""`dpcrowd simulate`: compare schemes on the same simulated runs, as a table, JSON, a plot or a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from dpcrowd.cli import options

__all__ = ["simulate"]

_COSTS = {
    "frequency": "frequency",
    "packets/slot": "packets_per_slot",
    "bytes/slot": "bytes_per_slot",
    "latency ms": "latency_ms",
}


@click.command()
@click.option(
    "--scheme",
    "schemes",
    required=True,
    metavar="A,B,…",
    help="Schemes to compare, separated by commas: names of `dpcrowd schemes`, or package:Class.",
)
@options.data
@options.servers
@click.option(
    "--density",
    type=float,
    help="Density 2·links/(m(m−1)) of a random, small-world, scale-free or geometric graph.  [default: 0.1 where "
    "possible]",
)
@options.epsilon
@options.window
@click.option(
    "--horizon", type=int, help="Length of the horizon of a finite scheme, in slots.  [default: all slots of the data]"
)
@click.option("--runs", default=50, show_default=True, type=int, help="Number of independent runs.")
@options.seed
@options.servers_per_slot
@options.regions_per_slot
@options.correlation
@options.accounting
@options.users
@options.observation
@options.shares
@click.option(
    "--graph",
    default="random",
    show_default=True,
    metavar="NAME|FILE",
    help="Graph of the network: random, ring, grid, small-world, scale-free, geometric, complete, a plug-in, "
    "package:function, a file of links, or a network.toml.",
)
@options.static
@click.option(
    "--interval",
    type=int,
    help="Sample every INTEGER slots instead of adaptively. With --samples, this is for the schemes beside relay.",
)
@click.option(
    "--sampling",
    help="When servers sample: adaptive, fixed, staggered or lockstep.  [default: adaptive; fixed with --interval]",
)
@click.option(
    "--samples",
    type=int,
    help="relay: samples per window or horizon.  [default: the fewest within 2% of the least predicted error]",
)
@click.option(
    "--reach",
    metavar="N|all",
    help="relay: number of hops that a record travels.  [default: what `dpcrowd plan` recommends]",
)
@click.option(
    "--hops-per-slot", metavar="N|all", help="relay: number of hops that a record travels per slot.  [default: 1]"
)
@click.option("--lag", type=int, help="relay: number of slots by which a record may be late.  [default: 16]")
@options.form
@click.option("--beta", type=float, help="Step size β of the consensus.  [default: 1/(2(1+max degree))]")
@click.option("--smoothed", is_flag=True, help="relay: also estimate past slots with the records that came later.")
@click.option("--burn-in", default=20, show_default=True, type=int, help="First slot that is included in the metrics.")
@options.slots
@options.regions
@click.option("--process-var", type=float, help="Process variance Q that the filters assume for every region.")
@click.option(
    "--tuning",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Parameters written by `dpcrowd tune`.  [default: those of the data set]",
)
@options.model
@click.option(
    "--learn/--no-learn",
    default=None,
    help="Let filters learn from what is released how well their model fits.  [default: with --model]",
)
@options.slot_length
@options.round_counts
@options.data_dir
@click.option("--jobs", type=int, help="Number of processes.  [default: as many as save time]")
@options.backend
@click.option(
    "--cluster", metavar="ADDRESS", help="Address of a running Dask cluster.  [default: start one on this machine]"
)
@options.as_json
@click.option(
    "--plot",
    "plot_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Draw the errors over time into a .png, .svg or .pdf file.",
)
@click.option(
    "--out",
    "out_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write one row per scheme and run into a .parquet or .csv file.",
)
def simulate(
    schemes: str,
    data: str,
    static: bool | None,
    regions: str | None,
    as_json: bool,
    plot_file: Path | None,
    out_file: Path | None,
    **settings: Any,
) -> None:
    """Compare schemes on the same simulated runs.

    All schemes see the same truth, shares, counts, networks and noise, so their differences are paired. Means come
    with a 95% interval over the runs.
    """
    from dpcrowd.cli.console import progress_bar
    from dpcrowd.sim.export import check_table_path
    from dpcrowd.sim.plot import check_plot_path, plot_errors
    from dpcrowd.sim.simulate import simulate as run

    if out_file is not None:
        check_table_path(out_file)
    if plot_file is not None:
        check_plot_path(plot_file)
    with progress_bar("simulating") as progress:
        result = run(
            schemes,
            data,
            dynamic=None if static is None else not static,
            regions=None if regions is None else [name.strip() for name in regions.split(",")],
            progress=progress,
            **settings,
        )
    if as_json:
        click.echo(json.dumps({"results": result.summary()}))
    else:
        _print_table(result)
    if plot_file is not None:
        plot_errors(result, plot_file)
    if out_file is not None:
        result.write(out_file)


def _print_table(result: Any) -> None:
    from dpcrowd.cli.console import console, print_columns

    out = console()
    rows = result.summary()
    columns = {"scheme": [row["scheme"] for row in rows]}
    for metric in ("are", "ace"):
        columns[metric.upper()] = [_number(row[metric]["mean"]) for row in rows]
        columns[f"± {metric.upper()}"] = [_number(_half_width(row[metric])) for row in rows]
    for heading, key in _COSTS.items():
        columns[heading] = [_number(row[key]) for row in rows]
    for who in ("server", "moving", "roaming"):
        columns[f"ε {who}"] = [_number(row["epsilon_paid"][who]) for row in rows]
    columns["coverage"] = [_number(row["coverage95"]) for row in rows]
    if result.smoothed:
        smoothed = [row.get("smoothed", {"are": {"mean": None}, "coverage95": None}) for row in rows]
        columns["smoothed ARE"] = [_number(row["are"]["mean"]) for row in smoothed]
        columns["its coverage"] = [_number(row["coverage95"]) for row in smoothed]
    speeds = [row["server_slots_per_second"] for row in rows]
    columns["M server-slots/s"] = [_number(None if speed is None else speed / 1e6) for speed in speeds]
    print_columns(out, columns)
    promises = [f"promise of {', '.join(schemes)}: {text}" for text, schemes in _promises(result).items()]
    for text in [*promises, *(f"note: {note}" for note in result.notes)]:
        # Lines are wrapped on a terminal; a file gets one line per note.
        out.print(text, style="dim", soft_wrap=not out.is_terminal, markup=False)


def _promises(result: Any) -> dict[str, list[str]]:
    """Return the schemes by the text of their guarantee."""
    promises: dict[str, list[str]] = {}
    for scheme, promise in result.guarantees.items():
        promises.setdefault(promise or "none, exact counts are shared.", []).append(scheme)
    return promises


def _half_width(metric: dict[str, Any]) -> float | None:
    return None if metric["ci95"] is None else (metric["ci95"][1] - metric["ci95"][0]) / 2


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    if value != 0 and abs(value) < 1e-6:
        return f"{value:.0e}"
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"
