"""`dpcrowd fit`: fit a process model on public data or on earlier releases, and write it to a TOML file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from dpcrowd.cli import options
from dpcrowd.cli.option_names import notes_with_options

__all__ = ["fit"]


@click.command()
@click.argument("file", metavar="FILE|NAME")
@click.option(
    "--season",
    default="auto",
    show_default=True,
    help="Profile over a season: none, day (hour of the day), week (day of the week), hour-of-week, year (week of the "
    "year), a number of slots, or auto (what predicts best on held-out blocks, of these and of numbers of slots that "
    "the autocorrelation suggests; without times, of the latter; of --releases, whose noise hides them, not of these "
    "numbers).",
)
@click.option(
    "--source",
    metavar="TEXT",
    help="Why this costs no privacy budget: published data, people outside the promise, or earlier releases.  "
    "[required]",
)
@click.option(
    "--releases",
    is_flag=True,
    help="FILE holds earlier releases: slot, start, region, estimate, low, high, and, of relay, measurement and "
    "measurement_variance (/v1/estimates?smoothed=true&measurements=true).",
)
@click.option(
    "--made-with",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="What the filters that made the releases knew: the network.toml of their network, or a model's file. Its "
    "season and the correlation of regions are kept; of releases with measurements, a model is also where regions "
    "start from that the measurements tell little of.",
)
@click.option(
    "--process-var",
    metavar="Q[,Q…]",
    help="Instead of --made-with: the process variance Q of the filters that made the releases; one number, or one per "
    "region, in the order of FILE.  [default: read from FILE, and refused if it does not show Q]",
)
@click.option(
    "--span",
    metavar="FIRST:LAST",
    help="Fit on these slots only, such as 0:395 or 0:0.5; of --releases, by the numbers in column slot.",
)
@options.regions
@click.option(
    "--slot-length",
    metavar="1h|1d|…",
    help="Length of a slot of raw check-ins (default: 1d) or flights; of counts without times, to be stored.",
)
@options.round_counts
@options.gaps
@options.header
@options.data_dir
@options.as_json
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the model into a TOML file for `dpcrowd simulate --model FILE`.",
)
def fit(
    file: str, releases: bool, regions: str | None, process_var: str | None, as_json: bool, **settings: Any
) -> None:
    """Fit a process model: what is known of a crowd before any record of it.

    FILE is a file of counts, or a data set that `dpcrowd data` lists. A model is public, whoever has been counted in
    it: fit it on published data, on people whom the promise does not cover, or on earlier releases (--releases), never
    on raw check-ins of people whom the promise covers. How counts are read (--regions, --slot-length, --round, --gaps,
    --header, --data-dir) is not for --releases.
    """
    from dpcrowd.errors import BadInput
    from dpcrowd.sim.fit import fit as fit_counts
    from dpcrowd.sim.fit_releases import fit_releases

    if settings["source"] is None:
        raise BadInput(_NO_SOURCE)
    given = {key: value for key, value in settings.items() if value is not None}
    arguments = {key: value for key, value in given.items() if value is not False or key == "header"}
    if regions is not None:
        arguments["regions"] = [name.strip() for name in regions.split(",")]
    if releases:
        for name in _OF_COUNTS:
            if name in arguments:
                option = "round" if name == "round_counts" else name.replace("_", "-")
                raise BadInput(f"--{option} is for counts, not for --releases; leave it out.")
        if process_var is not None:
            arguments["process_var"] = options.variances(process_var)
    else:
        for name, value in (("--made-with", arguments.get("made_with")), ("--process-var", process_var)):
            if value is not None:
                raise BadInput(f"{name} is for --releases; counts were not made by filters. Leave it out.")
    model = (fit_releases if releases else fit_counts)(file, **arguments)
    if as_json:
        notes = notes_with_options(model.notes)
        click.echo(json.dumps({"model": {**_plain(model), "notes": notes}, "notes": notes}))
        return
    _print(model, settings, releases=releases)


_NO_SOURCE = (
    "--source is missing. A model is public: say where its data come from and why that costs no privacy budget: "
    "published data, people whom the promise does not cover, or earlier releases, such as --source 'CDC, published'. "
    "The model's file, servers and results repeat it as your assertion."
)
_OF_COUNTS = ("regions", "slot_length", "round_counts", "gaps", "header", "data_dir")
_PLAIN_KEYS = ("season", "variance", "source", "data", "first", "slots", "reason", "region_correlation")


def _plain(model: Any) -> dict[str, Any]:
    """Return the model as plain values, as its file has them; scores and times that are not known are None.

    `in_common` and the `tails` of a region are here under their names in Python, too.
    """
    from dataclasses import asdict

    from dpcrowd.models.file import common_entries, tail_entries, time_text
    from dpcrowd.models.season import SECOND

    scores = {key: value if value == value else None for key, value in asdict(model.scores).items()}  # noqa: PLR0124
    plain = {key: getattr(model, key) for key in _PLAIN_KEYS}
    together = model.in_common
    return {
        **plain,
        **({"earlier_sources": list(model.earlier_sources)} if model.earlier_sources else {}),
        "in_common": None if together is None else asdict(together),
        **common_entries(together),
        "slot": None if model.slot is None else model.slot / SECOND,
        "begins": None if model.begins is None else time_text(model.begins),
        "scores": scores,
        "regions": [{**asdict(region), **tail_entries(region)} for region in model.regions],
    }


def _print(model: Any, settings: dict[str, Any], *, releases: bool) -> None:
    from dpcrowd.cli.console import console, print_columns
    from dpcrowd.models.text import model_rows

    out = settings["out"]
    screen, scores = console(), model.scores
    rows = model_rows(model)
    print_columns(screen, {"model": [name for name, _ in rows], "value": [value for _, value in rows]})
    # Of releases there are no counts to be held out.
    measured = releases and scores.slots > 0
    errors = "errors (sum of |error| / sum of counts) and coverage are of"
    if measured:
        errors = (
            "errors are what the model expects of itself, as a part of the counts; coverage is that of measurements in"
        )
    chosen, _, others = model.reason.partition(": ")
    if others and scores.slots:
        chosen += f" (smallest {'log score' if measured else 'CRPS'} on held-out blocks; --json has the others)"
    where = "not written; give --out FILE.toml to keep it" if out is None else f"written to {out}"
    held_out = (
        f"; {errors} {scores.slots} slots that were held out: what was expected of them follows from the slots before "
        "them, and how deviations move from the other slots."
    )
    for text in (
        f"fitted on {model.span}{held_out if scores.slots else '.'}",
        f"chosen: {chosen if scores.slots else model.reason}.",
        "A model is public. It costs no ε only if it was fitted on published data, on people whom the promise does not "
        f"cover, or on earlier releases. Your assertion: {model.quoted_sources}.",
        *(f"note: {note}" for note in notes_with_options(model.notes)),
        f"{where}.",
    ):
        screen.print(text, style="dim", soft_wrap=not screen.is_terminal, markup=False)
