"""`dpcrowd data`: list the data sets, write a data set to a file, or download a published series."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from dpcrowd.cli import options
from dpcrowd.errors import BadInput, unknown_name

__all__ = ["data"]


@click.command(name="data")
@click.argument("name", required=False)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Write to this CSV file, or, of flu and multi-flu, into this folder.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of a synthetic data set.")
@click.option(
    "--run", type=int, default=0, show_default=True, help="Number of the run of that seed to write, from 0 on."
)
@click.option("--slots", type=int, help="Number of slots to write.  [default: 1000 for synthetic data sets, else all]")
@click.option(
    "--slot-length", metavar="1h|1d|…", help="Length of a slot of gowalla or of the flights.  [default: see the list]"
)
@click.option(
    "--from",
    "source",
    type=click.Path(path_type=Path),
    help="Convert this file of the publisher instead of downloading it.",
)
@options.data_dir
@click.option("--force", is_flag=True, help="Replace a file that exists already, or download flu or multi-flu again.")
@click.option("--json", "as_json", is_flag=True, help="List the data sets as JSON.")
def data(
    name: str | None,
    out: Path | None,
    seed: int,
    run: int,
    slots: int | None,
    slot_length: str | None,
    source: Path | None,
    data_dir: Path | None,
    force: bool,
    as_json: bool,
) -> None:
    """List the data sets, write a data set to a file, or download a published series.

    \b
    dpcrowd data                            list names, sizes, sources, terms and places
    dpcrowd data linear --out linear.csv    write a synthetic data set (or multi-linear)
    dpcrowd data flights                    say where a series of a package, or gowalla, is on this machine
    dpcrowd data flights --out flights.csv  write it to a file
    dpcrowd data flu                        download flu (or multi-flu) from the CDC, unless it is there
    dpcrowd data flu --out flu.csv          write it to a file, from the copy that is there, if any
    dpcrowd data flu --from ILINet.csv      convert a file that you have downloaded

    Wherever a data set is expected, the path of a CSV or Parquet file works as well: one row per slot and one column
    per region, after an optional first column of time labels; one row per slot and region, with the columns slot,
    region and count; or raw check-ins with the columns user, time and region.
    """
    from dpcrowd.plugins import find_plugin, installed
    from dpcrowd.sim.data.counts import PUBLISHED  # here, so that --help does not load NumPy
    from dpcrowd.sim.data.draw import NAMES, SYNTHETIC

    if name is not None and name not in SYNTHETIC and (seed or run) and find_plugin("data set", name) is None:
        raise BadInput(f"--seed and --run are for synthetic data sets, but '{name}' is not drawn; leave them out.")
    if name is None:
        _list(as_json, data_dir)
    elif name not in NAMES and find_plugin("data set", name) is None:
        raise unknown_name("data set", name, [*NAMES, *installed("data set")])
    elif name not in PUBLISHED:
        if source is not None:
            kind = "is synthetic" if name in SYNTHETIC else "is not the CDC's"
            raise BadInput(f"--from converts flu and multi-flu, but '{name}' {kind}; leave --from out.")
        _write_counts(name, out, seed, run, {"slots": slots, "slot_length": slot_length, "data_dir": data_dir}, force)
    else:
        if slots is not None:
            raise BadInput(f"--slots is for synthetic data sets, but '{name}' is published; leave --slots out.")
        if slot_length is not None:
            raise BadInput(f"'{name}' has weeks; leave --slot-length out.")
        if data_dir is not None and source is not None:
            raise BadInput(
                "--data-dir says where data sets are, and --from is a file to convert; leave one of them out."
            )
        _get_published(name, out, source, data_dir, force)


def _list(as_json: bool, data_dir: Path | None) -> None:
    from dataclasses import asdict

    from dpcrowd.sim.data.catalog import CATALOG, find_location, how_to_get

    plugins, problems = _plugin_sets()
    for problem in problems:
        click.echo(f"problem: {problem}", err=True)
    if as_json:
        rows = [{**asdict(entry), "where": find_location(entry.name, data_dir)} for entry in CATALOG] + plugins
        click.echo(json.dumps({"data": rows}, indent=2))
        return
    for entry in CATALOG:
        where = find_location(entry.name, data_dir) or f"not on this machine; {how_to_get(entry.name)}"
        click.echo(f"{entry.name:<17} {_shape(entry.slots, entry.regions)}")
        texts = {"what": entry.what, "slot": entry.slot, "source": entry.source, "terms": entry.terms, "where": where}
        for title, text in texts.items():
            click.echo(f"  {title:<8}{text}")
    for row in plugins:
        click.echo(f"{row['name']:<17} {_shape(row['slots'], row['regions'])}")
        click.echo(f"  {'source':<8}{row['source']}")
    click.echo(
        "The path of any CSV or Parquet file of counts (one column per region, or slot, region, count), or of "
        "check-ins (user, time, region), works as well."
    )


def _plugin_sets() -> tuple[list[dict[str, Any]], list[str]]:
    """Return rows for the data sets of other packages, and a problem for each that cannot be loaded."""
    from dpcrowd.errors import DpcrowdError
    from dpcrowd.plugins import installed
    from dpcrowd.sim.data.plugin import plugin_data

    rows: list[dict[str, Any]] = []
    problems = []
    for name, plugin in installed("data set").items():
        try:
            data_set = plugin_data(plugin)
        except DpcrowdError as error:
            problems.append(str(error))
            continue
        row = {"name": name, "slots": data_set.slots, "regions": len(data_set.regions)}
        rows.append(
            {
                **row,
                "what": "",
                "source": f"the package {plugin.package}",
                "terms": "",
                "slot": "",
                "where": "installed",
            }
        )
    return rows, problems


def _write_counts(name: str, out: Path | None, seed: int, run: int, loading: dict[str, Any], force: bool) -> None:
    """Write the truth of a data set as a file of counts: of a synthetic one that of a run, of others the series."""
    from dpcrowd.sim.data.counts import write_counts
    from dpcrowd.sim.data.draw import load
    from dpcrowd.sim.data.seeds import Purpose, generator
    from dpcrowd.sim.data.span import is_drawn_anew
    from dpcrowd.sim.export import check_writable

    if out is None:
        text = _where_it_is(name, loading["data_dir"])
        if seed or run or force or loading["slots"] is not None or loading["slot_length"] is not None:
            raise BadInput(text)  # options of a file that is not written
        click.echo(text)
        return
    if out.suffix.lower() != ".csv":
        raise BadInput(f"--out is '{out}'; allowed: a file name that ends in .csv.")
    if seed < 0 or run < 0:
        raise BadInput(f"--seed is {seed} and --run is {run}; allowed: whole numbers of at least 0.")
    _refuse_to_replace(out, force)
    check_writable(out)
    data_set = load(name, **{option: value for option, value in loading.items() if value is not None})
    truth = data_set.truth(generator(seed, run, Purpose.TRUTH))
    labels = data_set.slot_labels
    write_counts(
        out,
        truth,
        data_set.regions,
        [str(t) for t in range(data_set.slots)] if labels is None else labels,
        label_name="slot" if labels is None else "time",
    )
    drawn = f", seed {seed}, run {run}" if is_drawn_anew(data_set) else ""
    click.echo(f"wrote {out}: {_shape(data_set.slots, len(data_set.regions))}{drawn}")
    _print_terms(name)


def _where_it_is(name: str, data_dir: Path | None) -> str:
    """Return where a set that is not downloaded comes from and what to do; refuse one that is not on this machine."""
    from dpcrowd.plugins import find_plugin
    from dpcrowd.sim.data.draw import SYNTHETIC
    from dpcrowd.sim.data.gowalla import FILE, GOWALLA, REMEDY
    from dpcrowd.sim.data.packaged import PACKAGED, find_packaged
    from dpcrowd.sim.data.places import find_published

    writing = f"--out {name}.csv writes its counts to a file"
    if name in SYNTHETIC:
        where, writing = (
            "is drawn anew in each run, so there is nothing to download",
            f"--out {name}.csv writes one run to a file",
        )
    elif name in PACKAGED:
        where = f"comes from the package {PACKAGED[name].package} and is here already: {find_packaged(name)}"
    elif name == GOWALLA:
        where = f"(of SNAP, for research) is here already: {find_published(name, FILE, data_dir, REMEDY)}"
    else:
        plugin = find_plugin("data set", name)
        where = "is here already" if plugin is None else f"comes from the package {plugin.package}, which is installed"
    return f"{name} {where}. Use it with --data {name}; {writing}."


def _get_published(name: str, out: Path | None, source: Path | None, data_dir: Path | None, force: bool) -> None:
    """Write a published series from a file of its publisher, else from the copy on this machine, else download it."""
    from dpcrowd.sim.data.catalog import find_location
    from dpcrowd.sim.data.cdc import WeeklyCounts
    from dpcrowd.sim.data.counts import PUBLISHED, published, write_counts
    from dpcrowd.sim.data.download import convert, fetch
    from dpcrowd.sim.data.places import ENVIRONMENT, cache_dir, find_published, search_path
    from dpcrowd.sim.export import check_writable

    file = PUBLISHED[name][0]
    path = cache_dir() / file if out is None else _place(name, out, file)
    copy = None
    if source is None:
        copy = find_published(name, file, data_dir) if data_dir is not None or find_location(name) else None
    if copy is not None and out is None and not force:
        click.echo(f"{name} is here already: {copy}. Give --out FILE to copy it, or --force to download it again.")
        return
    _refuse_to_replace(path, force)
    if path == out:  # the cache, and a folder that was asked for, are created
        check_writable(path)
    if source is not None:
        series = convert(name, source)
    elif copy is not None and out is not None and copy.resolve() != path.resolve():
        data_set = published(name, copy)
        assert data_set.slot_labels is not None
        series = WeeklyCounts(data_set.slot_labels, data_set.regions, data_set.counts)
    else:
        click.echo(f"downloading {name} from the CDC ...", err=True)
        series = fetch(name)
    write_counts(path, series.counts, series.regions, series.weeks, label_name="week")
    click.echo(f"wrote {path}: {_shape(len(series.weeks), len(series.regions))}")
    _print_terms(name)
    folder = path.parent.resolve()
    if path.name == file and folder not in [place.resolve() for place in search_path()]:
        click.echo(f"for dpcrowd to find it there, set {ENVIRONMENT} to {folder}")


def _print_terms(name: str) -> None:
    """Print where a series comes from, and its terms: whoever passes the file on has to know both."""
    from dpcrowd.sim.data.catalog import CATALOG
    from dpcrowd.sim.data.draw import SYNTHETIC

    for entry in CATALOG:
        if entry.name == name and name not in SYNTHETIC:
            click.echo(f"source: {entry.source}")
            click.echo(f"terms: {entry.terms}")


def _place(name: str, out: Path, file: str) -> Path:
    """Return the file to write for --out, which is a CSV file or a folder; anything else is refused before all work."""
    if out.suffix.lower() == ".csv" and not out.is_dir():
        return out
    if out.is_file() or (out.suffix and not out.is_dir()):
        raise BadInput(
            f"--out is '{out}'; allowed for '{name}': a file name that ends in .csv, or a folder, into which {file} is "
            "written."
        )
    return out / file


def _shape(slots: Any, regions: int) -> str:
    """Return the size of a data set in words; the number of slots may be a text."""
    return f"{slots} slot{'' if slots == 1 else 's'} x {regions} region{'' if regions == 1 else 's'}"


def _refuse_to_replace(path: Path, force: bool) -> None:
    if path.exists() and not force:
        raise BadInput(f"'{path}' exists already; give --force to replace it.")
