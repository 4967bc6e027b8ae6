"""`dpcrowd data`: list the data sets, write a synthetic one, download a published one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from dpcrowd.errors import BadInput, unknown_name

__all__ = ["data"]


@click.command(name="data")
@click.argument("name", required=False)
@click.option(
    "--out", type=click.Path(path_type=Path), help="A CSV file for a synthetic set, a folder for a published one."
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of a synthetic set.")
@click.option("--run", type=int, default=0, show_default=True, help="Which run of that seed to write.")
@click.option("--slots", type=int, help="Length of a synthetic set.  [default: 1000]")
@click.option(
    "--from", "source", type=click.Path(path_type=Path), help="Convert a file you got from the publisher; no download."
)
@click.option("--force", is_flag=True, help="Replace a file that is already there.")
@click.option("--json", "as_json", is_flag=True, help="List as JSON.")
def data(
    name: str | None,
    out: Path | None,
    seed: int,
    run: int,
    slots: int | None,
    source: Path | None,
    force: bool,
    as_json: bool,
) -> None:
    """List the data sets, or get one.

    \b
    dpcrowd data                              list names, shapes, sources, terms, and where each one is
    dpcrowd data linear --out linear.csv      write a synthetic set (multi-linear too)
    dpcrowd data flu                          download from the CDC into the cache folder (multi-flu too)
    dpcrowd data flu --from ILINet.csv        convert a file that you downloaded by hand

    Wherever a data set is asked for, the path of any CSV or Parquet file works as well: one row a slot, one column a
    region, an optional first column of time labels; or raw check-ins with the columns user, time, region.
    """
    from dpcrowd.plugins import find_plugin, installed
    from dpcrowd.sim.data.draw import NAMES, SYNTHETIC  # here, so that --help does not load NumPy

    if name is None:
        _list(as_json)
    elif name not in NAMES and find_plugin("data set", name) is None:
        raise unknown_name("data set", name, [*NAMES, *installed("data set")])
    elif name in SYNTHETIC or name not in NAMES:
        if source is not None:
            kind = "synthetic" if name in SYNTHETIC else "that of a package"
            raise BadInput(f"--from was given, but '{name}' is {kind}; leave it out.")
        _write_synthetic(name, out, seed, run, slots, force)
    else:
        if slots is not None:
            raise BadInput(f"--slots was given, but '{name}' is written whole; leave it out.")
        _get_published(name, out, source, force)


def _list(as_json: bool) -> None:
    from dataclasses import asdict

    from dpcrowd.sim.data.catalog import CATALOG, find_location

    plugins, problems = _plugin_sets()
    for problem in problems:
        click.echo(f"problem: {problem}", err=True)
    if as_json:
        rows = [{**asdict(entry), "where": find_location(entry.name)} for entry in CATALOG] + plugins
        click.echo(json.dumps({"data": rows}, indent=2))
        return
    for entry in CATALOG:
        where = find_location(entry.name) or f"not here; get it with: dpcrowd data {entry.name}"
        click.echo(f"{entry.name:<14}{entry.slots} slots x {entry.regions} region{'s' if entry.regions > 1 else ''}")
        for title, text in (("what", entry.what), ("source", entry.source), ("terms", entry.terms), ("where", where)):
            click.echo(f"  {title:<8}{text}")
    for row in plugins:
        click.echo(
            f"{row['name']:<14}{row['slots']} slots x {row['regions']} region{'s' if row['regions'] > 1 else ''}"
        )
        click.echo(f"  {'source':<8}{row['source']}")
    click.echo("Any CSV or Parquet file of counts, or of check-ins (user, time, region), works too: give its path.")


def _plugin_sets() -> tuple[list[dict[str, Any]], list[str]]:
    """Rows of the data sets of other packages, and what is wrong with those that cannot be loaded."""
    from dpcrowd.errors import DpcrowdError
    from dpcrowd.plugins import installed
    from dpcrowd.sim.data.plugin import plugin_data

    rows: list[dict[str, Any]] = []
    problems = []
    for name, plugin in installed("data set").items():
        try:
            loaded = plugin_data(plugin)
        except DpcrowdError as error:
            problems.append(str(error))
            continue
        row = {"name": name, "slots": loaded.slots, "regions": len(loaded.regions)}
        rows.append({**row, "what": "", "source": f"the package {plugin.package}", "terms": "", "where": "installed"})
    return rows, problems


def _write_synthetic(name: str, out: Path | None, seed: int, run: int, slots: int | None, force: bool) -> None:
    from dpcrowd.sim.data.counts import write_counts
    from dpcrowd.sim.data.draw import load
    from dpcrowd.sim.data.seeds import Purpose, generator

    if out is None:
        raise BadInput(f"'{name}' is not downloaded; to write one run of it to a file, give --out {name}.csv.")
    if out.suffix.lower() != ".csv":
        raise BadInput(f"--out is '{out}'; give a file name that ends in .csv.")
    if seed < 0 or run < 0:
        raise BadInput(f"--seed {seed} --run {run}; allowed: 0 or more.")
    _refuse_to_replace(out, force)
    drawn = load(name, slots=slots)
    truth = drawn.truth(generator(seed, run, Purpose.TRUTH))
    write_counts(out, truth, drawn.regions, [str(t) for t in range(drawn.slots)])
    click.echo(f"wrote {out}: {drawn.slots} slots x {len(drawn.regions)} regions, seed {seed}, run {run}")


def _get_published(name: str, out: Path | None, source: Path | None, force: bool) -> None:
    from dpcrowd.sim.data.counts import PUBLISHED, write_counts
    from dpcrowd.sim.data.download import convert, fetch
    from dpcrowd.sim.data.places import ENVIRONMENT, cache_dir, search_path

    folder = cache_dir() if out is None else out
    if folder.is_file() or folder.suffix.lower() == ".csv":
        raise BadInput(f"--out is '{folder}'; for '{name}' give a folder, the file is called {PUBLISHED[name][0]}.")
    path = folder / PUBLISHED[name][0]
    _refuse_to_replace(path, force)
    if source is None:
        click.echo(f"downloading {name} from the CDC ...", err=True)
    series = fetch(name) if source is None else convert(name, source)
    write_counts(path, series.counts, series.regions, series.weeks, label_name="week")
    click.echo(
        f"wrote {path}: {len(series.weeks)} slots x {len(series.regions)} regions; US government work, credit CDC"
    )
    if folder.resolve() not in [known.resolve() for known in search_path()]:
        click.echo(f"to have it found there: set {ENVIRONMENT} to {folder.resolve()}")


def _refuse_to_replace(path: Path, force: bool) -> None:
    if path.exists() and not force:
        raise BadInput(f"'{path}' is already there; give --force to replace it.")
