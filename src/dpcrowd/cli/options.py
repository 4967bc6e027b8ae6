"""Options that several commands share, so that a name means the same, with the same default, everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dpcrowd.errors import BadInput

__all__ = [
    "accounting",
    "as_json",
    "backend",
    "composition",
    "correlation",
    "data",
    "data_dir",
    "epsilon",
    "form",
    "gaps",
    "header",
    "live_slot",
    "model",
    "numbers",
    "observation",
    "once",
    "regions",
    "regions_per_slot",
    "round_counts",
    "seed",
    "servers",
    "servers_per_slot",
    "shares",
    "shares_value",
    "slot_length",
    "slots",
    "static",
    "turnover",
    "users",
    "variances",
    "window",
]

_DIGITS = tuple("0123456789.")
_SECOND_US = 1_000_000
_DAY_US = 86_400 * _SECOND_US


def live_slot(text: str) -> int:
    """Return the nanoseconds of `--slot`, the length of a slot of live servers.

    `dpcrowd plan` checks it by the same rule as `dpcrowd init`: a plan that no network can run helps nobody.
    """
    from dpcrowd.sim.data.checkins import slot_length_us

    try:
        length = slot_length_us(text)
    except BadInput:
        length = 0
    if not _SECOND_US <= length <= _DAY_US:
        raise BadInput(f"--slot is {text}; allowed: a duration from 1s to 1d, such as 30s or 1m.")
    return 1000 * length


data = click.option(
    "--data",
    default="linear",
    show_default=True,
    metavar="NAME|FILE",
    help="Data set: a name that `dpcrowd data` lists, package:function, or a file of counts or check-ins.",
)
servers = click.option("--servers", type=int, help="Number of servers.  [default: 50, or those of the file of links]")
epsilon = click.option(
    "--epsilon", default=1.0, show_default=True, type=float, help="Privacy budget ε of the window or horizon."
)
window = click.option(
    "--window", type=int, help="Length w of the window of w-event privacy, in slots.  [default: 100 for window schemes]"
)
seed = click.option(
    "--seed", default=0, show_default=True, type=int, help="Seed of the runs; the same seed gives the same runs."
)
servers_per_slot = click.option(
    "--servers-per-slot", default=1, show_default=True, type=int, help="At how many servers a user may be in one slot."
)
regions_per_slot = click.option(
    "--regions-per-slot",
    default=1,
    show_default=True,
    type=int,
    help="In how many regions a user may count in one slot.",
)
correlation = click.option(
    "--correlation", default=1.0, show_default=True, type=float, help="Divide ε by this factor, for correlated data."
)
accounting = click.option(
    "--accounting",
    default="sound",
    show_default=True,
    help="How the budget is accounted for: sound, or per-region (as in the paper).",
)
users = click.option(
    "--users",
    default="pinned",
    show_default=True,
    help="Whether users are pinned to a server, or roaming between servers.",
)
turnover = click.option(
    "--turnover",
    type=float,
    help="Part of the pinned users who are replaced per slot; 1: everybody chooses a server anew in every slot.  "
    "[default: 0.05]",
)
observation = click.option(
    "--observation",
    help="Model of the observation variance: paper or binomial.  [default: binomial, as in live servers; paper for the "
    "paper's data sets, unless they are partitioned]",
)


def shares_value(_context: click.Context, _option: click.Parameter, text: str | None) -> str | list[float] | None:
    """Return `--shares`: numbers as such; a kind or the name of a file stays what it is."""
    numeric = text is not None and text[:1] in _DIGITS and not text.lower().endswith(".csv")
    return numbers("--shares", text) if text is not None and numeric else text


shares = click.option(
    "--shares",
    callback=shares_value,
    default="uniform",
    show_default=True,
    metavar="KIND|H,H,…|FILE",
    help="Shares of the population: equal (every user at one server), how they are drawn (partition: they sum to 1; "
    "uniform; per-slot), one number per server, or a CSV file with the columns server,share or "
    "server,region,share.",
)
composition = click.option(
    "--composition",
    type=float,
    help="Let the shares of a partition differ by region: 5 moderately, 0.5 strongly.  [default: not at all]",
)


def once(context: click.Context, parameter: click.Parameter, values: tuple[Any, ...]) -> Any:
    """Return the value of an option that `reproduce` lets users repeat, and others do not: the first would be lost."""
    if len(values) > 1:
        raise click.BadParameter(f"given {len(values)} times; give it once.")
    return values[0] if values else None


model = click.option(
    "--model",
    multiple=True,
    callback=once,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Process model written by `dpcrowd fit`: what all filters know beforehand. It is public. none: no model.  "
    "[default: that of a network.toml given as --graph]",
)
static = click.option(
    "--static/--dynamic",
    "static",
    default=None,
    help="Keep one graph, or draw a new one in each slot.  [default: dynamic for random]",
)
form = click.option(
    "--form", default="diagonal", show_default=True, help="Form of the filter: diagonal, or matrix (full covariances)."
)
slots = click.option("--slots", type=int, help="Use only this many slots, from the beginning of the data.")
regions = click.option("--regions", metavar="A,B,…", help="Use only these regions.")
slot_length = click.option(
    "--slot-length", metavar="1h|1d|…", help="Length of a slot of raw check-ins (default: 1d) or flights."
)
round_counts = click.option(
    "--round", "round_counts", is_flag=True, help="Round fractional counts of a file instead of refusing them."
)
gaps = click.option(
    "--gaps",
    metavar="error|zero",
    help="Slots that a file of counts leaves out, such as nights: refuse them, or count nobody in them.  [default: "
    "error]",
)
header = click.option(
    "--header/--no-header",
    default=None,
    help="Whether the first line of a CSV file has names of regions, or counts.  [default: names, unless it has "
    "numbers alone that may be counts]",
)
data_dir = click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    help="Folder with flu.csv, multi_flu.csv and gowalla_nyc_checkins.csv.gz.",
)
backend = click.option(
    "--backend", default="local", show_default=True, help="Where to compute: local (processes) or dask."
)
as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")


def numbers(option: str, text: str) -> list[float]:
    """Return the numbers of an option, which commas separate."""
    try:
        numbers = [float(part) for part in text.split(",") if part.strip()]
    except ValueError:
        numbers = []
    if not numbers:
        raise BadInput(f"{option} is '{text}'; allowed: numbers, separated by commas.")
    return numbers


def variances(text: str | None) -> float | list[float] | None:
    """Return `--process-var`: one number for all regions, or one per region, which commas separate."""
    if text is None:
        return None
    values = numbers("--process-var", text)
    return values[0] if len(values) == 1 else values
