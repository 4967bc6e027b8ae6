"""Raw check-ins (user, time, region): divide them into slots, and their users among servers.

A user counts in one region per slot: the last check-in of the slot wins (of two at the same instant, the later row).
That makes the sensitivity of a slot's counts 1. Each (user, slot) belongs to exactly one server, so the servers'
counts are a partition of the truth:

    pinned   a user always belongs to one server, drawn with probability = share
    roaming  the server is drawn anew for each user and slot

Slots are aligned to UTC: a day starts at 00:00, a week on Monday. A slot without check-ins is a slot of zeros.

A time is an RFC 3339 / ISO 8601 date-time (UTC if it has no offset), a date, or a number: seconds since 1970, or
milliseconds from 1e11 on (as seconds that would be the year 5138).
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta

import numpy as np

from dpcrowd.arrays import Ints, ServerCounts, Shares, Truth
from dpcrowd.errors import BadInput
from dpcrowd.schemes.tuning import Tuning
from dpcrowd.sim.data.dataset import DataSet, checked_slots, region_indexes
from dpcrowd.sim.data.series import series_model
from dpcrowd.sim.data.tables import Cell, Table, is_number

__all__ = ["CheckIns", "checkins_from_table", "is_checkins", "iso_labels", "read_times", "slot_length_us"]

SECOND = 1_000_000
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
MILLISECONDS_FROM = 1e11
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
PLAIN = re.compile(r"\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?)?Z?")

HEADER = frozenset({"user", "time", "region"})
WEEK = 7 * 86_400 * SECOND
MONDAY = 4 * 86_400 * SECOND  # 1970-01-05
MOST_CELLS = 200_000_000  # 1.6 GB of counts
MOST_SLOTS = 1_000_000


@dataclass(frozen=True, eq=False, kw_only=True)
class CheckIns(DataSet):
    """One entry per user and slot with a check-in: entry_slot, entry_user, entry_region."""

    entry_slot: Ints
    entry_user: Ints
    entry_region: Ints
    users: int

    def truth(self, rng: np.random.Generator) -> Truth:
        """Return the distinct users per slot and region; the same in every run."""
        return _count(self.entry_slot * len(self.regions) + self.entry_region, (self.slots, len(self.regions)))

    def split(self, shares: Shares, users: str, rng: np.random.Generator) -> ServerCounts:
        """Return the counts (T, m, d) of the servers; shares (m,) or (T, m) are probabilities that sum to 1."""
        m, d = shares.shape[-1], len(self.regions)
        if self.slots * m * d > MOST_CELLS:
            raise BadInput(
                f"{self.name}: {self.slots:,} slots x {m:,} servers x {d:,} regions do not fit into memory; "
                "take longer slots, fewer slots or fewer servers."
            )
        cumulative = np.cumsum(shares, axis=-1)
        if users == "pinned":
            if shares.ndim == 2:
                raise BadInput("users are pinned, but the shares change from slot to slot; choose roaming users.")
            server_of = np.minimum(np.searchsorted(cumulative, rng.random(self.users), side="right"), m - 1)
            server = server_of[self.entry_user]
        else:
            # One sorted line for all slots: slot t owns [t, t + 1). The clip keeps rounding inside the slot.
            line = (np.broadcast_to(cumulative, (self.slots, m)) + np.arange(self.slots)[:, None]).ravel()
            place = np.searchsorted(line, rng.random(len(self.entry_slot)) + self.entry_slot, side="right")
            server = np.clip(place - self.entry_slot * m, 0, m - 1)
        return _count((self.entry_slot * m + server) * d + self.entry_region, (self.slots, m, d))


def is_checkins(table: Table) -> bool:
    """Whether the header is exactly user, time, region, in any order."""
    return len(table.header) == len(HEADER) and {name.lower() for name in table.header} == HEADER


def checkin_columns(table: Table) -> Table:
    """Return the columns user, time and region of a table that may have others, too."""
    names = [name.lower() for name in table.header]
    if any(names.count(name) != 1 for name in HEADER):
        raise BadInput(f"{table.file}: the first line has to name the columns user, time and region, each once.")
    places = [place for place, name in enumerate(names) if name in HEADER]
    rows = [[row[place] for place in places] for row in table.rows]
    return replace(table, header=tuple(table.header[place] for place in places), rows=rows)


def checkins_from_table(
    table: Table,
    name: str,
    *,
    slot_length: str | float = "1d",
    slots: int | None = None,
    process_var: object | None = None,
    regions: Sequence[str] | None = None,
) -> CheckIns:
    """Return a data set from raw check-ins."""
    if not table.rows:
        raise BadInput(f"{table.file} has a header but no check-ins.")
    column = {title.lower(): index for index, title in enumerate(table.header)}
    length = slot_length_us(slot_length)
    times = read_times(table, column["time"])
    user, users = _codes(_filled(table, column["user"]))
    region, names = _regions(_filled(table, column["region"]))
    slot, origin, total = _slots(times, length, len(names), table.file, slot_length)

    # Latest first (later rows first among equals): the first entry of a (slot, user) pair is then the one that wins.
    latest_first = np.argsort(times, kind="stable")[::-1]
    _, first = np.unique((slot * users + user)[latest_first], return_index=True)
    winners = latest_first[first]
    used = checked_slots(slots, total, f"{table.file} in slots of {slot_length}")
    winners = winners[slot[winners] < used]
    columns = region_indexes(names, regions)
    if columns is not None:
        new_index = np.full(len(names), -1)
        new_index[columns] = np.arange(len(columns))
        region, names = new_index[region], tuple(names[k] for k in columns)
        winners = winners[region[winners] >= 0]

    truth = _count(slot[winners] * len(names) + region[winners], (used, len(names)))
    model, change_var, note = series_model(truth, process_var, f"{table.file} in slots of {slot_length}")
    notes = (
        f"check-ins in slots of {slot_length}: a user counts in one region per slot (the last check-in wins) and at "
        "one server, so the servers' counts sum to the truth and the shares to 1.",
        note,
    )
    return CheckIns(
        name=name,
        regions=names,
        slots=used,
        model=model,
        tuning=Tuning(),
        notes=notes,
        change_var=change_var,
        slot_labels=iso_labels(origin + length * np.arange(used)),
        entry_slot=slot[winners],
        entry_user=user[winners],
        entry_region=region[winners],
        users=users,
    )


def _slots(times: Ints, length: int, d: int, file: str, length_text: str | float) -> tuple[Ints, int, int]:
    """Return (slot of each check-in, start of slot 0, number of slots)."""
    offset = MONDAY if length % WEEK == 0 else 0
    index = (times - offset) // length
    first, last = int(index.min()), int(index.max())
    total = last - first + 1
    if total > MOST_SLOTS or total * d > MOST_CELLS:
        raise BadInput(
            f"{file}: slots of {length_text} give {total:,} slots x {d:,} regions, too many; take a longer slot."
        )
    return index - first, first * length + offset, total


def _filled(table: Table, column: int) -> list[Cell]:
    cells = [cell.strip() if type(cell) is str else cell for cell in table.column(column)]
    for row, cell in enumerate(cells):
        if cell is None or cell == "" or cell != cell:  # noqa: PLR0124  (NaN is the value unequal to itself)
            raise BadInput(f"{table.where(row, column)} is empty; each check-in needs a {table.header[column]}.")
    return cells


def _codes(cells: Iterable[Hashable]) -> tuple[Ints, int]:
    """Number the distinct values by first appearance; strings and ids of any size are allowed."""
    code: dict[Hashable, int] = {}
    numbers = np.array([code.setdefault(cell, len(code)) for cell in cells], dtype=np.int64)
    return numbers, len(code)


def _regions(cells: Sequence[Cell]) -> tuple[Ints, tuple[str, ...]]:
    """Return each cell's region, in the order of the names: numeric if all are whole numbers, else alphabetic."""
    distinct = sorted({str(cell) for cell in cells})
    if all(name.isascii() and name.isdigit() for name in distinct):
        distinct.sort(key=int)
    index = {name: k for k, name in enumerate(distinct)}
    return np.array([index[str(cell)] for cell in cells], dtype=np.int64), tuple(distinct)


def _count(flat: Ints, shape: tuple[int, ...]) -> Ints:
    return np.bincount(flat, minlength=int(np.prod(shape))).astype(np.int64).reshape(shape)


# --------------------------------------------------------------------------------------------------------------- times


def slot_length_us(length: str | float) -> int:
    """Return the microseconds of '15m', '1h', '1d', '1w' or a number of seconds."""
    text = str(length).strip().lower()
    number, unit = (text[:-1], text[-1]) if text and text[-1] in UNITS else (text, "s")
    try:
        micros = round(float(number) * UNITS[unit] * SECOND)
    except (ValueError, OverflowError):
        micros = 0
    if not 0 < micros < 2**62:
        raise BadInput(f"slot length '{length}' is not allowed; give a number and s, m, h, d or w: 15m, 1h, 1d.")
    return micros


def read_times(table: Table, column: int) -> Ints:
    """Return the times of a column, in microseconds; an error names the cell that is not a time."""
    cells = table.column(column)
    if all(type(cell) is str and PLAIN.fullmatch(cell) for cell in cells):
        try:  # the usual case in one go; NumPy takes no 'Z'
            moments = np.array([cell.removesuffix("Z") for cell in cells], dtype="datetime64[us]")
        except ValueError:  # an impossible date such as 2009-02-30: the loop below names it
            pass
        else:
            return moments.astype(np.int64)
    return np.array([_micros(cell, table, row, column) for row, cell in enumerate(cells)], dtype=np.int64)


def iso_labels(micros: Ints) -> tuple[str, ...]:
    """Return labels such as 2009-04-24 at midnight, else 2009-04-24T13:00:00Z.

    >>> iso_labels(np.array([0, 1_500_000, 3_600_000_000]))
    ('1970-01-01', '1970-01-01T00:00:01.500000Z', '1970-01-01T01:00:00Z')
    """
    texts: list[str] = np.datetime_as_string(micros.astype("datetime64[us]")).tolist()
    short = (text.removesuffix(".000000") for text in texts)
    return tuple(text.removesuffix("T00:00:00") if text.endswith("T00:00:00") else f"{text}Z" for text in short)


def _micros(cell: Cell, table: Table, row: int, column: int) -> int:
    text = "" if cell is None else str(cell).strip()
    if not text:
        raise BadInput(f"{table.where(row, column)} is empty; each check-in needs a time.")
    try:
        if isinstance(cell, datetime):
            moment = cell
        elif isinstance(cell, date):
            moment = datetime(cell.year, cell.month, cell.day)
        elif is_number(cell):
            number = float(text)
            unit = timedelta(milliseconds=1) if abs(number) >= MILLISECONDS_FROM else timedelta(seconds=1)
            moment = EPOCH + number * unit
        else:
            moment = datetime.fromisoformat(text)
        return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - EPOCH) // timedelta(microseconds=1)
    except (ValueError, OverflowError):
        what = "allowed: 2009-04-24T12:35:54Z, 2009-04-24, or seconds or milliseconds since 1970"
        raise BadInput(f"{table.where(row, column)} is '{text}', not a time; {what}.") from None
