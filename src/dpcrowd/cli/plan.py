"""`dpcrowd plan`: what a network of relay servers will reach, as tables, JSON, a plot or a piece of configuration."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from dpcrowd.cli import options
from dpcrowd.cli.option_names import notes_with_options
from dpcrowd.cli.share_width import CommandWithWidth, share_width
from dpcrowd.errors import BadInput

__all__ = ["plan"]

_SMALL_REGIONS = ', with groups = "auto": servers join small regions under one draw of noise where that helps.'


@click.command(cls=CommandWithWidth)
@click.option(
    "--level",
    metavar="NAME=N,…",
    help="Expected people per slot and region: north=5000,south=800, or numbers alone.",
)
@click.option(
    "--process-var",
    metavar="Q[,Q…]",
    help="Process variance Q: the variance of the change of a region's count in one slot; one number, or one per "
    "region.  [default: estimated from --data]",
)
@click.option(
    "--data",
    metavar="NAME|FILE",
    help="Public data from which levels and Q are estimated: a name that `dpcrowd data` lists, or a file of counts.",
)
@options.gaps
@options.header
@options.model
@options.epsilon
@click.option("--window", type=int, help="Length w of the window of w-event privacy, in slots.  [default: 100]")
@click.option("--horizon", type=int, help="Length of a finite stream instead, in slots.")
@options.servers
@click.option("--density", type=float, help="Density 2·links/(m(m−1)) of the graph.  [default: 0.1 where possible]")
@click.option(
    "--graph",
    default="random",
    show_default=True,
    metavar="NAME|FILE",
    help="Graph of the network: random, ring, grid, small-world, scale-free, geometric, complete, a file of "
    "links, or a network.toml, whose settings are then the defaults of all options.",
)
@options.static
@click.option(
    "--shares",
    callback=options.shares_value,
    metavar="KIND|H,H,…|FILE",
    help="Shares of the population: equal (every user at one server), partition (drawn, they sum to 1), uniform (drawn "
    "independently, from 0.05 to 1), one number per server, or a CSV file with the columns server,share or "
    "server,region,share.  [default: those of a network.toml, else equal; uniform for the paper's data sets]",
)
@share_width
@click.option("--users", default="pinned", show_default=True, help="Whether users are pinned to a server, or roaming.")
@click.option(
    "--observation",
    help="Model of the observation variance: paper or binomial.  [default: binomial, as live servers count; paper for "
    "the paper's data sets unless shares are a partition]",
)
@click.option(
    "--turnover",
    type=float,
    help="Part of the pinned users who are replaced per slot; 1: everybody chooses a server anew in every slot.  "
    "[default: 0.05; with a network.toml its own, or 1 if it states none]",
)
@options.servers_per_slot
@options.regions_per_slot
@options.correlation
@click.option("--samples", type=int, help="Samples per window or horizon.  [default: the best number]")
@click.option("--reach", metavar="N|all", help="Number of hops that a record travels.  [default: the recommended one]")
@click.option(
    "--hops-per-slot",
    metavar="N|all",
    help="Number of hops that a record travels per slot.  [default: all with --slot, else 1]",
)
@click.option("--lag", default=16, show_default=True, type=int, help="Number of slots by which a record may be late.")
@click.option("--seed", default=0, show_default=True, type=int, help="Seed of the drawn graph and shares.")
@click.option(
    "--slot",
    metavar="15m|1h|…",
    help="Length of a slot, from 1s to 1d, for packets and bytes per day.  [default: that of a process model]",
)
@click.option("--goal", metavar="TEXT", help='Error to reach, such as "5% in every region above 1000".')
@click.option(
    "--solve",
    "solve_for",
    metavar="WHAT",
    help="With --goal: find the least epsilon, slot or servers that reaches it.  [default: epsilon]",
)
@click.option(
    "--epsilons", metavar="A,B,…", help="Values of ε in the table.  [default: a tenth to ten times --epsilon]"
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of tables.")
@click.option(
    "--plot",
    "plot_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Draw errors and intervals into a .png, .svg or .pdf file.",
)
@click.option(
    "--toml",
    "toml_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the plan as a piece of network.toml.",
)
@click.pass_context
def plan(
    ctx: click.Context,
    /,
    level: str | None,
    process_var: str | None,
    shares: str | list[float] | None,
    static: bool | None,
    reach: str | None,
    hops_per_slot: str | None,
    goal: str | None,
    solve_for: str | None,
    epsilons: str | None,
    as_json: bool,
    plot_file: Path | None,
    toml_file: Path | None,
    gaps: str | None,
    header: bool | None,
    **settings: Any,
) -> None:
    """Predict what a network of relay servers will reach, before it exists.

    The variance of relay's filter follows from public facts: schedule, shares, graph, ε and Q. No data are needed.
    Errors are expected relative errors, E |estimate − truth|/max(truth, 1), and in people where less than one person is
    expected; the total error is the sum of all errors divided by the sum of all people; intervals are 95% intervals.
    """
    from dpcrowd.cli.console import progress_bar
    from dpcrowd.sim.adopted import NO_MODEL
    from dpcrowd.sim.export import check_toml_path
    from dpcrowd.sim.planner.plan import beside_model
    from dpcrowd.sim.planner.plan import plan as make_plan
    from dpcrowd.sim.planner.plot import plot_plan
    from dpcrowd.sim.planner.toml import has_groups, write_plan
    from dpcrowd.sim.plot import check_plot_path

    if settings["slot"] is not None:
        options.live_slot(settings["slot"])
    loading = {name: value for name, value in (("gaps", gaps), ("header", header)) if value is not None}
    beside = {"--level": level, "--process-var": process_var, "--data": settings["data"]}
    beside = {option: value for option, value in beside.items() if value is not None}
    if beside and settings["model"] not in (None, Path(NO_MODEL)):
        raise BadInput(beside_model(list(beside)))
    if loading and settings["data"] is None:
        raise BadInput(f"--{next(iter(loading))} is for a file of counts; give it with --data FILE, or leave it out.")
    if plot_file is not None:
        check_plot_path(plot_file)
    if toml_file is not None:
        check_toml_path(toml_file, "a plan")
    for name in settings:  # a default of the command must not replace what a network.toml states
        if ctx.get_parameter_source(name) is click.core.ParameterSource.DEFAULT and name != "graph":
            settings[name] = None
    with progress_bar("planning"):
        result = make_plan(
            None if level is None else _levels(level),
            process_var=options.variances(process_var),
            shares=shares,
            dynamic=None if static is None else not static,
            reach=_hops("--reach", reach),
            hops_per_slot=_hops("--hops-per-slot", hops_per_slot),
            goal=goal,
            solve_for="epsilon" if goal is not None and solve_for is None else solve_for,  # type: ignore[arg-type]
            epsilons=None if epsilons is None else options.numbers("--epsilons", epsilons),
            loading=loading,
            **settings,
        )
    result = replace(result, remarks=notes_with_options(result.remarks))
    # Files first: a reader of the text that ends early, such as `head`, ends this command with it. A file that cannot
    # be written does not cost the result.
    written = []
    try:
        if toml_file is not None:
            write_plan(result, toml_file)
            result = replace(result, remarks=(*result.remarks, *_about_file(result, toml_file)))
            written.append(f"written to {toml_file}{_SMALL_REGIONS if has_groups(result) else '.'}")
        if plot_file is not None:
            plot_plan(result, plot_file)
            written.append(f"written to {plot_file}.")
    finally:
        if as_json:
            click.echo(json.dumps(result.summary()))
        else:
            _print_plan(result, written)


def _about_file(result: Any, file: Path) -> list[str]:
    """Return remarks on what `dpcrowd init` would miss in the file of a plan."""
    from dpcrowd.sim.planner.toml import missing_for_init

    return [f"'{file}': {remark[0].lower()}{remark[1:]}" for remark in missing_for_init(result)]


def _levels(text: str) -> dict[str, float] | list[float]:
    """Return the levels of --level: names with numbers, or numbers alone."""
    entries = [entry.strip() for entry in text.split(",") if entry.strip()]
    if not any("=" in entry for entry in entries):
        return options.numbers("--level", text)
    levels: dict[str, float] = {}
    for entry in entries:
        name, _, number = (part.strip() for part in entry.rpartition("="))
        if not name:
            raise BadInput(f"--level has '{entry}' without a name; allowed: NAME=N for every region, or numbers alone.")
        if "=" in name or ";" in name:
            raise BadInput(f"--level has '{entry}'; allowed in a name: neither = nor ; (commas separate the regions).")
        if name in levels:
            raise BadInput(f"--level names region '{name}' twice; name each region once.")
        levels[name] = options.numbers("--level", number)[0]
    return levels


def _hops(option: str, text: str | None) -> Any:
    if text is None or text == "all":
        return text
    if not (text.isascii() and text.isdigit()):
        raise BadInput(f"{option} is '{text}'; allowed: a whole number >= 1, or all.")
    return int(text)


def _print_plan(result: Any, written: list[str]) -> None:
    from dpcrowd.cli.console import console, print_columns
    from dpcrowd.sim.planner.text import error_lines, recommendation

    out = console()

    def say(text: str, style: str | None = None) -> None:
        out.print(text, style=style, soft_wrap=not out.is_terminal, markup=False)

    for line in recommendation(result):
        say(line)
    hops, turnover = result.request.hops_per_slot, result.request.turnover
    stay = "" if turnover == 1.0 else f"users of whom {_percent(turnover)} are replaced per slot, "
    say(
        f"assumed: {_shares(result.request.shares)}, {stay}observation {result.observation}, and "
        f"{'all hops' if hops == 'all' else '1 hop' if hops == 1 else f'{hops} hops'} of a record per slot "
        "(--shares, --turnover, --observation, --hops-per-slot)."
    )
    regions = result.regions
    print_columns(
        out,
        {
            "region": [region.region for region in regions],
            "level": [_people(region.level) for region in regions],
            "95% interval": [f"{_people(region.low)} to {_people(region.high)}" for region in regions],
            "std. deviation": [_people(region.deviation) for region in regions],
            "expected error": [_error(region) for region in regions],
            "": ["" if region.visible else "cannot be told from 0" for region in regions],
        },
    )
    for line in error_lines(result):
        say(line)
    small = sum(region.level < 1.0 for region in regions)
    if small:
        say(
            f"{small} region{'s' if small > 1 else ''} with less than one expected person per slot: the error is in "
            "people, since a part of max(people, 1) would look small."
        )
    _print_traffic(result, say)
    for title, rows in (("other budgets", result.by_epsilon), ("other reaches", result.by_reach)):
        say(f"\n{title}:")
        print_columns(
            out,
            {
                "ε": [f"{row.epsilon:g}" for row in rows],
                "reach": [str(row.reach) for row in rows],
                "samples": [str(row.samples) for row in rows],
                "total error": [_percent(row.total_error) for row in rows],
                "mean error": [_percent(row.error) for row in rows],
                "worst region": [_percent(row.worst_error) for row in rows],
                "packets/slot": [f"{row.traffic.packets_per_slot:,.1f}" for row in rows],
                "bytes/slot": [f"{row.traffic.bytes_per_slot:,.0f}" for row in rows],
                "regions not told from 0": [str(row.hidden) for row in rows],
            },
        )
    for text in (f"promise: {result.promise}", *(f"note: {remark}" for remark in result.remarks), *written):
        say(text, "dim")


def _print_traffic(result: Any, say: Any) -> None:
    slot, traffic = result.request.slot, result.traffic
    if slot is None:
        say(
            f"all servers together: {traffic.packets_per_slot:,.1f} packets and {traffic.bytes_per_slot:,.0f} bytes "
            f"per slot, and {traffic.heartbeats_per_slot:,.1f} heartbeats (give --slot for a day)"
        )
        return
    packets, size = traffic.per_day(slot)
    heartbeats = _count(traffic.heartbeats_per_day(slot), "heartbeat")
    say(f"all servers together: {_count(packets, 'packet')} and {_size(size)} per day, and {heartbeats}")


def _shares(shares: str | tuple[Any, ...]) -> str:
    """Return the kind of shares in words."""
    kinds = {
        "equal": "equal shares",
        "partition": "drawn shares that sum to 1",
        "uniform": "drawn shares from 0.05 to 1",
        "per-slot": "shares from 0.05 to 1 drawn in every slot",
    }
    if isinstance(shares, str):
        return kinds[shares]
    if isinstance(shares[0], tuple):
        return "given shares that differ by region"
    return f"given shares that sum to {sum(shares):.4g}"


def _count(value: float, noun: str) -> str:
    """Return a rounded number with its noun: 1 packet, 1,200 packets."""
    number = f"{value:,.0f}"
    return f"{number} {noun}{'' if number == '1' else 's'}"


def _size(value: float) -> str:
    """Return bytes in words."""
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if value >= unit:
            return f"{value / unit:.3g} {name}"
    return f"{value:.0f} bytes"


def _error(region: Any) -> str:
    """Return the expected error of a region, in people where less than one is expected: 2% of nobody says nothing."""
    return f"{_people(region.mae)} people" if region.level < 1.0 else _percent(region.error)


def _people(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _percent(value: float | None) -> str:
    from dpcrowd.sim.planner.text import percent

    return percent(value)
