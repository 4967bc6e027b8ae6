"""`dpcrowd simulate`: compare schemes on the same simulated runs, as a table, JSON, a plot or a file."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

from dpcrowd.cli import options
from dpcrowd.cli.option_names import notes_with_options
from dpcrowd.cli.share_width import CommandWithWidth, share_width

__all__ = ["simulate"]

_COSTS = {
    "frequency": "frequency",
    "packets/slot": "packets_per_slot",
    "bytes/slot": "bytes_per_slot",
    "latency ms": "latency_ms",
}
_NARROW_COSTS = ("frequency", "packets/slot")
_WIDTH = 120  # of the table without --wide
_HIDDEN = (
    "--wide shows complete promises, RMSE, ACE, bytes, heartbeats, latency, speed, notes on defaults, and what users "
    "would pay who move or roam."
)

_VIEWS = {
    "nonnegative": "non-negative view of the estimates, with the same total of all regions:",
    "median": "median view of the estimates, for single small counts:",
}

_OF_MEDIANS = (
    "the median view is for reading single small counts, where it is closest most often. Its sums and averages mean "
    "nothing, and its errors may be larger than those of the estimates where counts are not small, or where a crowd "
    "has grown since the model."
)

_ROUNDING = 1e-12  # below it, a number is a 0 that was rounded, such as the consensus error of one common estimate

_UNRELIABLE = "* does not pass dpcrowd's checks: its ε is what the scheme itself reports, and no guarantee."


@click.command(cls=CommandWithWidth)
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
@options.turnover
@options.observation
@click.option(
    "--shares",
    callback=options.shares_value,
    metavar="KIND|H,H,…|FILE",
    help="Shares of the population: equal (every user at one server), how they are drawn (partition: they sum to 1; "
    "uniform; per-slot), one number per server, or a CSV file with the columns server,share or "
    "server,region,share.  [default: those of a network.toml, else uniform]",
)
@options.composition
@share_width
@click.option(
    "--graph",
    default="random",
    show_default=True,
    metavar="NAME|FILE",
    help="Graph of the network: random, ring, grid, small-world, scale-free, geometric, complete, a plug-in, "
    "package:function, a file of links, or a network.toml, whose shares, turnover, groups and share_width are then the "
    "defaults of these options.",
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
@click.option(
    "--groups",
    metavar="auto|off",
    help="relay: let small regions share one draw of noise, where that is predicted to help. auto excludes "
    "--share-width.  [default: off]",
)
@options.form
@click.option("--beta", type=float, help="Step size β of the consensus.  [default: 1/(2(1+max degree))]")
@click.option(
    "--nonnegative",
    is_flag=True,
    help="Also score a view of the estimates without negative numbers, in which the total of the regions stays.",
)
@click.option(
    "--median",
    is_flag=True,
    help="Also score the median of what is known of each count: for single small counts. Elsewhere it may be "
    "farther off than the estimate.",
)
@click.option("--smoothed", is_flag=True, help="relay: also estimate past slots with the records that came later.")
@click.option(
    "--burn-in",
    type=int,
    help="Number of slots at the beginning that are not scored.  [default: 20; of 20 slots or fewer, a tenth]",
)
@options.slots
@options.regions
@click.option(
    "--process-var",
    metavar="Q[,Q…]",
    help="Process variance Q that the filters assume: one number for all regions, or one per region.",
)
@click.option(
    "--tuning",
    multiple=True,
    callback=options.once,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Parameters written by `dpcrowd tune`.  [default: those of the data set]",
)
@options.model
@click.option(
    "--learn/--no-learn",
    default=None,
    help="Let filters learn from what is released how well their model fits, or without one how large the process "
    "variance is.  [default: with --model, and for relay unless a process variance is given]",
)
@options.slot_length
@options.round_counts
@options.gaps
@options.header
@options.data_dir
@click.option("--jobs", type=int, help="Number of processes.  [default: as many as save time]")
@options.backend
@click.option(
    "--cluster", metavar="ADDRESS", help="Address of a running Dask cluster.  [default: start one on this machine]"
)
@click.option("--wide", is_flag=True, help="Print all columns; without it, those that fit into 120 characters.")
@click.option("--quiet", "-q", is_flag=True, help="Print the table and warnings only; --json has everything.")
@options.as_json
@click.option(
    "--plot",
    "plot_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Draw the errors over time, with total error and coverage, into a .png, .svg or .pdf file.",
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
    process_var: str | None,
    wide: bool,
    quiet: bool,
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
            process_var=options.variances(process_var),
            progress=progress,
            announce=None if quiet else lambda reason: click.echo(f"takes long: {reason}", err=True),
            **settings,
        )
    result = replace(result, notes=notes_with_options(result.notes), first_notes=notes_with_options(result.first_notes))
    result = replace(result, warnings=notes_with_options(result.warnings), details=notes_with_options(result.details))
    # Files first: a reader of the text that ends early, such as `head`, ends this command with it. A file that cannot
    # be written does not cost the result.
    written = []
    try:
        if plot_file is not None:
            plot_errors(result, plot_file)
            written.append(f"written to {plot_file}.")
        if out_file is not None:
            result.write(out_file)
            written.append(f"written to {out_file}.")
    finally:
        if as_json:
            noise = None if result.observation_noise is None else asdict(result.observation_noise)
            content = {"results": result.summary(), "observation_noise": noise, "notes": list(result.notes)}
            content["warnings"] = list(result.warnings)
            click.echo(json.dumps(content))
        else:
            _print_table(result, written, wide=wide, quiet=quiet)


def _print_table(result: Any, written: list[str], *, wide: bool, quiet: bool) -> None:
    from dpcrowd.cli.console import console, print_columns

    out = console()
    rows = result.summary()
    columns = _columns(result, rows, wide=wide)
    print_columns(out, columns, None if wide else _WIDTH)
    for view, heading in _VIEWS.items():
        scores = _view_columns(rows, view)
        if scores:
            out.print(heading, markup=False)
            print_columns(out, {"scheme": columns["scheme"], **scores})
    by_size = _size_columns(rows)
    if len(by_size) > 1:
        out.print("MAE by the number of people in a region, with the share of such cells:", markup=False)
        print_columns(out, {"scheme": columns["scheme"], **by_size})
    unreliable = [_UNRELIABLE] if any(row["passes_checks"] is False for row in rows) else []
    warnings = [*unreliable, *(f"warning: {note}" for note in result.warnings)]
    for text in warnings if quiet else [*warnings, *_remarks(result, rows, wide=wide), *written]:
        # Lines are wrapped on a terminal; a file gets one line per note.
        out.print(text, style="dim", soft_wrap=not out.is_terminal, markup=False)


def _remarks(result: Any, rows: list[dict[str, Any]], *, wide: bool) -> list[str]:
    """Return what stands below the warnings, one line each: what figures are compared with, then all the rest."""
    from dpcrowd.privacy.guarantee import short_promise

    first = [note for note in result.first_notes if note not in result.warnings]
    omitted = set(result.first_notes) | (set() if wide else set(result.details))
    later = [note for note in result.notes if note not in omitted]
    first, later = ([f"note: {note}" for note in texts] for texts in (first, later))
    promises = _promises([row if wide else {**row, "promise": short_promise(row["promise"])} for row in rows])
    medians = [_OF_MEDIANS] if any("median" in row for row in rows) else []
    return [*first, *promises, *later, *medians, *(_heartbeats(rows) if wide else [_HIDDEN])]


def _columns(result: Any, rows: list[dict[str, Any]], *, wide: bool) -> dict[str, list[str]]:
    """Return the table by its headings: what a reader wants first, and all of it if it may be wide."""
    columns = {"scheme": [f"{row['scheme']} *" if row["passes_checks"] is False else row["scheme"] for row in rows]}
    columns["total error"] = [_number(row["total_error"]["mean"]) for row in rows]
    columns["coverage"] = [_number(row["coverage95"]) for row in rows]
    columns |= _error_columns(rows, "are")
    columns["MAE"] = [_number(row["mae"]["mean"]) for row in rows]
    if wide:
        columns["RMSE"] = [_number(row["rmse"]["mean"]) for row in rows]
        columns |= _error_columns(rows, "ace")
    for heading, key in _COSTS.items():
        if wide or heading in _NARROW_COSTS:
            columns[heading] = [_number(row[key]) for row in rows]
    for who in _payers(result, rows, wide=wide):
        columns[f"ε {who}"] = [_number(row["epsilon_paid"][who]) for row in rows]
    if any(row[name] is not None for row in rows for name in ("exhausted_at", "horizon_over_at")):
        columns["exhausted at"] = [_exhaustion(row) for row in rows]
    if result.smoothed:
        smoothed = [row.get("smoothed", {"are": {"mean": None}, "coverage95": None}) for row in rows]
        columns["smoothed ARE"] = [_number(row["are"]["mean"]) for row in smoothed]
        columns["its coverage"] = [_number(row["coverage95"]) for row in smoothed]
    if wide:
        speeds = [row["server_slots_per_second"] for row in rows]
        columns["M server-slots/s"] = [_number(None if speed is None else speed / 1e6) for speed in speeds]
    return columns


def _view_columns(rows: list[dict[str, Any]], view: str) -> dict[str, list[str]]:
    """Return the errors of a view; nothing if it was not asked for."""
    if not any(view in row for row in rows):
        return {}
    scores = [row[view] for row in rows]
    return {
        "total error": [_number(score["total_error"]["mean"]) for score in scores],
        "MAE": [_number(score["mae"]["mean"]) for score in scores],
    }


def _payers(result: Any, rows: list[dict[str, Any]], *, wide: bool) -> list[str]:
    """Return whose epsilon is shown: that of one server, and that of users who move or roam, where they pay more.

    Users who are pinned to a server do not roam: what roaming would cost is shown in the wide table only.
    """
    if wide:
        return ["server", "moving", "roaming"]
    users = {setup.get("users") for setup in result.setup.values()}
    paid = [row["epsilon_paid"] for row in rows if row["epsilon_paid"]["server"] is not None]
    others = ["moving", *(["roaming"] if "roaming" in users else [])]
    return ["server", *(who for who in others if any(one[who] > one["server"] for one in paid))]


def _heartbeats(rows: list[dict[str, Any]]) -> list[str]:
    """Return one line on the messages that live servers send besides packets, if a scheme can run live."""
    counts = [(row["scheme"], row["heartbeats_per_slot"]) for row in rows if row["heartbeats_per_slot"] is not None]
    if not counts:
        return []
    numbers = ", ".join(f"{scheme} {_number(count)}" for scheme, count in counts)
    return [
        f"heartbeats per slot of a live network, besides these packets: {numbers}. A live server sends every neighbour "
        "one message per slot, without data if it has none."
    ]


def _error_columns(rows: list[dict[str, Any]], metric: str) -> dict[str, list[str]]:
    """Return the columns of a mean and of half the width of its interval."""
    name = metric.upper()
    return {
        name: [_number(row[metric]["mean"]) for row in rows],
        f"± {name}": [_number(_half_width(row[metric])) for row in rows],
    }


def _size_columns(rows: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Return the mean absolute errors of each class of sizes that occurs."""
    columns = {}
    for classes in zip(*(row["by_size"] for row in rows), strict=True):
        first = classes[0]
        if any(entry["share"] for entry in classes):
            span = f"{first['least']}-{first['most']}" if first["most"] is not None else f">{first['least'] - 1}"
            share = f"{first['share'] or 0:.0%}"
            heading = f"{span} ({'<1%' if share == '0%' else share})"
            columns[heading] = [_number(entry["mae"]) for entry in classes]
    return columns


def _exhaustion(row: dict[str, Any]) -> str:
    """Return the slot in which the budget ran out, and at which share of the servers, or that of the horizon's end."""
    if row["exhausted_at"] is not None:
        return f"{row['exhausted_at']} ({row['exhausted_servers']:.0%})"
    return "–" if row["horizon_over_at"] is None else f"{row['horizon_over_at']} (horizon over)"


def _promises(rows: list[dict[str, Any]]) -> list[str]:
    """Return one line per promise, with the schemes that make it; what some of them add to it comes last."""
    texts = {row["promise"]: row["promise"] for row in rows}
    for text in texts:
        common = [other for other in texts if text.startswith(f"{other} ")]
        texts[text] = max(common, key=len, default=text)
    lines = []
    for common in dict.fromkeys(texts.values()):
        schemes = [row["scheme"] for row in rows if texts[row["promise"]] == common]
        line = f"promise of {', '.join(schemes)}: {common}"
        for text in (text for text, shorter in texts.items() if shorter == common != text):
            labels = ", ".join(row["scheme"] for row in rows if row["promise"] == text)
            line += f" Of {labels} also: {text.removeprefix(common).strip()}"
        lines.append(line)
    return lines


def _half_width(metric: dict[str, Any]) -> float | None:
    return None if metric["ci95"] is None else (metric["ci95"][1] - metric["ci95"][0]) / 2


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    if abs(value) < _ROUNDING:
        return "0"
    if abs(value) < 1e-6:
        return f"{value:.0e}"
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"
