"""The list that `dpcrowd data` prints: shape, source and terms of each named set, and where it is on this machine."""

from __future__ import annotations

import os
from dataclasses import dataclass

from dpcrowd.errors import BadInput
from dpcrowd.sim.data.counts import PUBLISHED
from dpcrowd.sim.data.places import find_published

__all__ = ["CATALOG", "DataSetEntry", "find_location"]


@dataclass(frozen=True)
class DataSetEntry:
    """One named data set, as `dpcrowd data` lists it."""

    name: str
    slots: int
    regions: int
    what: str
    source: str
    terms: str


CATALOG = (
    DataSetEntry(
        "linear",
        1000,
        1,
        "a random walk with Q = 1e5 from 20,000, reflected at 0",
        "drawn anew in each run",
        "no terms",
    ),
    DataSetEntry(
        "multi-linear",
        1000,
        6,
        "six regions from 20,000 down to 100 between which people move",
        "drawn anew in each run",
        "no terms",
    ),
    DataSetEntry(
        "flu",
        791,
        1,
        "weekly outpatient visits for influenza-like illness, USA, 2002w40-2017w47",
        "CDC FluView, ILINet, column ILITOTAL",
        "US government work; credit CDC",
    ),
    DataSetEntry(
        "multi-flu",
        441,
        51,
        "weekly deaths with pneumonia or influenza, 50 states and DC, 2009w40-2018w11",
        "CDC/NCHS mortality surveillance, table pp7x-dyj2",
        "US government work; credit CDC",
    ),
)


def find_location(name: str, data_dir: str | os.PathLike[str] | None = None) -> str | None:
    """Return where a published set's file is; 'built in' for synthetic sets; None if it has to be downloaded."""
    if name not in PUBLISHED:
        return "built in"
    try:
        return str(find_published(name, PUBLISHED[name][0], data_dir))
    except BadInput:
        return None
