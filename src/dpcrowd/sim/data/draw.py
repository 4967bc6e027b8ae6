"""`load` a data set by name or path, and `draw_run` what the servers see in one run.

A run depends on (seed, run) and on what is asked for, never on which runs or schemes are simulated beside it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dpcrowd.arrays import ServerCounts, Shares, Truth
from dpcrowd.errors import BadInput, check_switches, unknown_name
from dpcrowd.plugins import find_plugin, installed
from dpcrowd.sim.data.checkins import CheckIns, checkins_from_table, is_checkins
from dpcrowd.sim.data.counts import PUBLISHED, counts_from_table, published
from dpcrowd.sim.data.dataset import DataSet
from dpcrowd.sim.data.frames import FRAME, is_frame, table_of_frame
from dpcrowd.sim.data.gaps import check_gaps
from dpcrowd.sim.data.gowalla import GOWALLA, gowalla
from dpcrowd.sim.data.long_counts import check_columns, counts_from_long_table, is_long
from dpcrowd.sim.data.observe import KINDS, checked_users, observe
from dpcrowd.sim.data.packaged import PACKAGED, packaged
from dpcrowd.sim.data.plugin import plugin_data
from dpcrowd.sim.data.seeds import Purpose, generator
from dpcrowd.sim.data.series import GIVEN_BY_HAND, believed
from dpcrowd.sim.data.shares import checked_composition, draw_composition, draw_shares, is_partition, normalised
from dpcrowd.sim.data.synthetic import linear, multi_linear, select_regions
from dpcrowd.sim.data.tables import Table, read_table

__all__ = ["NAMES", "PAPER_SETS", "RunData", "draw_run", "is_count_file", "load"]

SYNTHETIC = {"linear": linear, "multi-linear": multi_linear}
PAPER_SETS = (*SYNTHETIC, *PUBLISHED)
"""The data sets of the paper, which are observed as in the paper unless a user asks for something else."""
NAMES = (*PAPER_SETS, *PACKAGED, GOWALLA)
FILE_ENDINGS = (".csv", ".gz", ".parquet", ".pq", ".tsv", ".txt")


@dataclass(frozen=True, eq=False)
class RunData:
    """One run: truth (T, d), counts (T, m, d) and shares; `partition`: counts sum to the truth."""

    truth: Truth
    counts: ServerCounts
    shares: Shares
    partition: bool


def load(
    name_or_path: Any,
    *,
    slots: int | None = None,
    process_var: object | None = None,
    slot_length: str | float | None = None,
    round_counts: bool = False,
    gaps: str = "error",
    data_dir: str | os.PathLike[str] | None = None,
    regions: Sequence[str] | None = None,
    header: bool | None = None,
) -> DataSet:
    """Return a data set by name (one that `dpcrowd data` lists, or a plug-in's), from a CSV or Parquet file, or from a
    DataFrame of pandas or polars, whose columns are those of a file.

    slots         use only this many slots, from the first on
    process_var   Q of the filters' model: a number, (d,) or (d, d)
    slot_length   for raw check-ins (default: 1d) and flights only: 15m, 1h, 1d, 1w, or seconds
    round_counts  round fractions in a file instead of refusing them
    gaps          what to do where a file of counts leaves slots out, such as nights: "error" refuses it, "zero" counts
                  nobody in them
    data_dir      the folder that contains flu.csv, multi_flu.csv and gowalla_nyc_checkins.csv.gz
    regions       use only these regions, in this order
    header        whether the first line of a CSV file has names; default: unless it has numbers alone, or a date and
                  numbers, which are then read as counts, with a note, except where they hardly can be

    >>> data = load("multi-linear", slots=50, regions=["region-1", "region-3"])
    >>> data.slots, data.regions
    (50, ('region-1', 'region-3'))
    """
    check_switches(round_counts=round_counts, header=header)
    if is_frame(name_or_path):
        for option, value in (("header", header), ("data_dir", data_dir)):
            if value is not None:
                raise BadInput(f"{option} is for files; leave it out with a DataFrame.")
        return _from_table(
            table_of_frame(name_or_path),
            FRAME.split()[-1],
            slots,
            process_var,
            slot_length,
            round_counts,
            gaps,
            regions,
        )
    name = _text_of(name_or_path)
    fills = check_gaps(gaps) == "zero"
    if name in NAMES:
        _refuse_options_of_files(name, gaps, header)
    if name in PACKAGED:
        return packaged(name, slots=slots, process_var=process_var, regions=regions, slot_length=slot_length)
    if name == GOWALLA:
        return gowalla(data_dir, slot_length=slot_length, slots=slots, process_var=process_var, regions=regions)
    if name in PAPER_SETS:
        if slot_length is not None:
            raise BadInput(f"a slot length was given, but '{name}' has its own; leave it out (it is for check-ins).")
        if name in PUBLISHED:
            return published(name, data_dir, slots=slots, process_var=process_var, regions=regions)
        return _synthetic(name, slots, process_var, regions)
    path = Path(name)
    if not path.exists() and path.suffix.lower() not in FILE_ENDINGS and path.name == name:
        plugin = find_plugin("data set", name)
        if plugin is not None:
            if slot_length is not None or round_counts or fills or header is not None:
                raise BadInput(
                    f"a slot length, rounding, gaps or a header were given, but '{name}' is not a file; leave it out."
                )
            return plugin_data(plugin, slots=slots, process_var=process_var, regions=regions)
        error = unknown_name("data set", name, [*NAMES, *installed("data set")])
        raise BadInput(f"{error} The path of a CSV or Parquet file is allowed too.")
    table = read_table(_existing(path), header=header)
    return _from_table(table, name, slots, process_var, slot_length, round_counts, gaps, regions)


def _from_table(
    table: Table,
    name: str,
    slots: int | None,
    process_var: object | None,
    slot_length: str | float | None,
    round_counts: bool,
    gaps: str,
    regions: Sequence[str] | None,
) -> DataSet:
    """Return the data set of a table of check-ins or of counts."""
    if is_checkins(table):
        if check_gaps(gaps) == "zero":
            raise BadInput(f"gaps={gaps} is for files of counts; a slot without check-ins counts as 0. Leave it out.")
        length = "1d" if slot_length is None else slot_length
        return checkins_from_table(
            table, name, slot_length=length, slots=slots, process_var=process_var, regions=regions
        )
    if slot_length is not None:
        raise BadInput(f"a slot length was given, but {table.file} has counts; leave it out (it is for check-ins).")
    check_columns(table)
    read = counts_from_long_table if is_long(table) else counts_from_table
    return read(
        table, name, slots=slots, process_var=process_var, regions=regions, round_counts=round_counts, gaps=gaps
    )


def _text_of(name_or_path: str | os.PathLike[str]) -> str:
    """Return a name or path as text; refuse anything else, which Python would call a wrong path."""
    if not isinstance(name_or_path, str | os.PathLike):
        raise BadInput(
            f"data were given as an object of type {type(name_or_path).__name__}; allowed: the name of a data set, the"
            " path of a CSV or Parquet file, a DataFrame, a loaded data set, or an array of counts with a row per slot"
            " (dpcrowd.counts_from_array makes a data set of it)."
        )
    return os.fspath(name_or_path)


def _refuse_options_of_files(name: str, gaps: str, header: bool | None) -> None:
    """Refuse what is said about a file, of a data set that has a name."""
    if gaps == "zero":
        raise BadInput(f"gaps={gaps} is for files of counts, but '{name}' is a data set without gaps; leave it out.")
    if header is not None:
        raise BadInput(f"a header is for files, but '{name}' is a data set; leave it out (--header, --no-header).")


def is_count_file(name_or_path: Any, header: bool | None = None) -> bool:
    """Whether this is the path of a file of counts, which are in slots already, or such a DataFrame; `header` as of
    `load`.
    """
    check_switches(header=header)
    if is_frame(name_or_path):
        return not is_checkins(table_of_frame(name_or_path))
    name, path = os.fspath(name_or_path), Path(name_or_path)
    known = name in PACKAGED or name == GOWALLA or name in PAPER_SETS
    return not known and path.is_file() and not is_checkins(read_table(path, header=header))


def draw_run(
    data: DataSet,
    *,
    seed: int,
    run: int,
    servers: int,
    shares: str | Sequence[float] | Shares = "uniform",
    observation: str = "paper",
    users: str = "pinned",
    turnover: float = 1.0,
    composition: float | None = None,
) -> RunData:
    """Draw truth, shares and counts of run number `run`.

    turnover     the part of the pinned users who are replaced per slot, for binomial counts (`people`)
    composition  makes the shares of a partition differ by region (`shares.draw_composition`); `RunData.shares` are
                 the public ones, one number per server

    Check-ins are always split over the servers (`observation` is not used): shares drawn as 'uniform' or 'per-slot' are
    divided by their sum, explicit ones have to sum to 1.
    """
    if seed < 0 or run < 0:
        raise BadInput(f"seed={seed}, run={run}; allowed: 0 or more.")
    if observation not in KINDS:
        raise unknown_name("observation", observation, KINDS)
    checked_users(users)
    truth = data.truth(generator(seed, run, Purpose.TRUTH))
    server_shares = draw_shares(shares, servers, data.slots, generator(seed, run, Purpose.SHARES))
    rng = generator(seed, run, Purpose.OBSERVATION)
    if composition is not None:
        _check_composition(composition, data, server_shares, observation)
    if isinstance(data, CheckIns):
        if server_shares.ndim == 3:
            raise BadInput(
                "shares by region are for counts; in check-ins each person has one server in all regions. Give one "
                "share per server."
            )
        server_shares = _probabilities(server_shares, explicit=not isinstance(shares, str))
        return RunData(truth, data.split(server_shares, users, rng), server_shares, partition=True)
    by_region = None
    if composition is not None:
        rng_of_shares = generator(seed, run, Purpose.COMPOSITION)
        by_region = draw_composition(server_shares, composition, truth.shape[1], rng_of_shares)
    counts = observe(observation, truth, server_shares, data.change_var, rng, users, turnover, by_region)
    return RunData(truth, counts, server_shares, partition=observation == "binomial" and is_partition(server_shares))


def check_composition(
    composition: float | None,
    data: DataSet,
    servers: int,
    shares: str | Sequence[float] | Shares = "uniform",
    observation: str = "paper",
) -> None:
    """Refuse a composition that no run of a simulation could have; the arguments are those of `draw_run`."""
    if composition is None:
        return
    drawn = draw_shares(shares, servers, data.slots, generator(0, 0, Purpose.SHARES))
    _check_composition(checked_composition(composition), data, drawn, observation)


def _check_composition(composition: float, data: DataSet, shares: Shares, observation: str) -> None:
    if isinstance(data, CheckIns):
        raise BadInput("composition is for counts; check-ins have people of their own. Leave it out.")
    if shares.ndim == 3:
        raise BadInput("composition makes shares differ by region, but the given shares do already; leave it out.")
    if observation != "binomial" or shares.ndim > 1 or not is_partition(shares):
        raise BadInput(
            f"composition={composition:g} needs binomial counts and constant shares that sum to 1: give "
            "shares=partition, and observation=binomial."
        )


def _existing(path: Path) -> Path:
    """Return the path of a file that exists; of another, say that data sets have names, too."""
    if not path.exists():
        raise BadInput(
            f"file '{path}' does not exist; give a CSV or Parquet file, or a name that 'dpcrowd data' lists."
        )
    return path


def _synthetic(name: str, slots: int | None, process_var: object | None, regions: Sequence[str] | None) -> DataSet:
    data = SYNTHETIC[name](slots)
    if regions is not None:
        data = select_regions(data, regions)
    if process_var is not None:
        data = replace(data, model=believed(data.model, process_var), notes=(*data.notes, GIVEN_BY_HAND))
    return data


def _probabilities(shares: Shares, *, explicit: bool) -> Shares:
    if explicit and not is_partition(shares):
        total = float(np.atleast_2d(shares).sum(axis=-1)[0])
        raise BadInput(f"shares sum to {total:g}; for check-ins they must sum to 1, since each user is at one server.")
    return normalised(shares)
