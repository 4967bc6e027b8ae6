"""Time labels of a table: each slot once, in order, none missing.

Filters and windows count slots, so a missing or repeated week would silently shift time. Labels may be whole numbers,
weeks (2009w40, in the CDC's or the ISO calendar), months (2009-10), quarters (2009 Q4), dates or date-times; their step
is the most common difference between neighbours. Dates that have one day of the month in common, or that are all the
last of their months, are months. Labels of any other form are only checked for duplicates. The order is checked before
gaps are looked for: a slot whose row stands elsewhere is not missing.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise

from dpcrowd.errors import BadInput
from dpcrowd.sim.data.tables import Cell, Table
from dpcrowd.sim.data.weeks import iso_week_end, mmwr_week_end

__all__ = ["are_monthly", "clock_change_hint", "label_text", "missing_labels", "read_labels", "time_order"]

MONTH = re.compile(r"(\d{4})-(\d{2})")
QUARTER = re.compile(r"(\d{4})[- ]?[qQ]([1-4])")
WEEK = re.compile(r"(\d{4})-?[wW]?(\d{2})")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
_HOUR = 3600
_CLOCKS_CHANGE_BEFORE = 4  # o'clock


@dataclass(frozen=True)
class _Kind:
    """A way to read labels as positions on a line, and to write a position as a label again."""

    what: str
    unit: str
    position: Callable[[str], int]
    label: Callable[[int], str]

    def steps(self, number: int) -> str:
        """Return in words how long steps are that have this length in units."""
        unit = self.unit.removesuffix("s") if number == 1 and self.unit != " s" else self.unit
        return f"{number}{unit}"


def read_labels(table: Table, column: int) -> tuple[str, ...]:
    """Return the labels of a column, checked."""
    name = table.header[column] or "slot"
    labels = [label_text(cell) for cell in table.column(column)]
    row_of: dict[str, int] = {}
    for row, label in enumerate(labels):
        if not label:
            raise BadInput(f"{table.where(row)} has no {name}; label every slot.")
        if label in row_of:
            first = table.numbers[row_of[label]]
            raise BadInput(
                f"{table.where(row)}: {name} '{label}' occurs twice (first in {table.unit} {first}); a table "
                "has one row per slot and one column per region; a file with one row per slot and region has the "
                f"columns slot (or time), region and count.{clock_change_hint(label)}"
            )
        row_of[label] = row
    kind = _kind_of(labels, name)
    if kind is MMWR_WEEKS:
        _check_weeks(table, name, labels)
    elif kind is not None:
        _check_order(table, name, labels, kind)
    return tuple(labels)


def time_order(labels: Sequence[str], name: str) -> list[int]:
    """Return the places of labels in the order of time; in the given order, if they are not of one known kind."""
    kind = _kind_of(labels, name)
    kinds = (ISO_WEEKS, MMWR_WEEKS) if kind is MMWR_WEEKS else () if kind is None else (kind,)
    for one in kinds:
        if _all_read(one, labels):
            return sorted(range(len(labels)), key=lambda place: one.position(labels[place]))
    return list(range(len(labels)))


def _check_weeks(table: Table, name: str, labels: Sequence[str]) -> None:
    """Check weeks in both calendars, which differ in the years with 53 weeks; the labels must fit one of them."""
    problems = []
    for kind in (ISO_WEEKS, MMWR_WEEKS):
        try:
            return _check_order(table, name, labels, kind)
        except BadInput as problem:
            problems.append(problem)
    iso, mmwr = problems
    raise iso if _all_read(ISO_WEEKS, labels) else mmwr


def _all_read(kind: _Kind, labels: Sequence[str]) -> bool:
    try:
        return all(kind.position(label) is not None for label in labels)
    except ValueError:
        return False


def missing_labels(table: Table, column: int) -> list[list[str]]:
    """Return the labels that are missing before each row; none where labels do not tell, or are not in order."""
    name = table.header[column] or "slot"
    labels = [label_text(cell) for cell in table.column(column)]
    nothing: list[list[str]] = [[] for _ in labels]
    kind = _kind_of(labels, name) if all(labels) else None
    if kind is None or kind is MMWR_WEEKS or not _all_read(kind, labels):  # a week's label does not follow from its day
        return nothing
    positions = [kind.position(label) for label in labels]
    if any(after <= before for before, after in pairwise(positions)):
        return nothing  # slots that are not missing, but elsewhere, would occur twice
    usual = _usual_step(positions)
    month_ends = kind is MONTHLY and _are_month_ends(labels)
    for row, (before, after) in enumerate(pairwise(positions), start=1):
        if (after - before) % usual == 0:
            places = range(before + usual, after, usual)
            nothing[row] = [_like(labels[0], kind.label(place), month_ends=month_ends) for place in places]
    return nothing


def _like(example: str, label: str, *, month_ends: bool) -> str:
    """Return a label in the form of another one: with its day of the month, or without a time zone."""
    if month_ends:
        year, month = (int(part) for part in label.split("-"))
        return f"{label}-{monthrange(year, month)[1]}{example[10:]}"
    if MONTH.fullmatch(label):
        return label + example[7:]
    if quarter := QUARTER.fullmatch(label):
        return quarter[1] + example[4:-1] + quarter[2]
    moment = label.removesuffix("+00:00")
    if moment != label and datetime.fromisoformat(example).tzinfo is None:
        return moment.replace("T", example[10])
    return label


def _usual_step(positions: Sequence[int]) -> int:
    """Return the most common step forward, the smallest of equals; 0 if there is none."""
    forward = Counter(after - before for before, after in pairwise(positions) if after > before)
    return min(forward, key=lambda step: (-forward[step], step)) if forward else 0


def _check_order(table: Table, name: str, labels: Sequence[str], kind: _Kind) -> None:
    positions = []
    for row, label in enumerate(labels):
        try:
            positions.append(kind.position(label))
        except ValueError:
            raise BadInput(f"{table.where(row)}: {name} '{label}' is not {kind.what}, as the first one is.") from None
    _check_sorted(table, name, labels, positions)
    steps = [after - before for before, after in pairwise(positions)]
    usual = _usual_step(positions)
    for row, step in enumerate(steps, start=1):
        before, after = labels[row - 1], labels[row]
        where = table.where(row)
        if step > usual:
            missing = kind.label(positions[row - 1] + usual)
            hint = clock_change_hint(after) if step - usual == _HOUR else ""
            raise BadInput(
                f"{where}: {name} '{missing}' is missing before '{after}' (each step is {kind.steps(usual)}); fill it "
                "in, end the file before it, or, if nobody was there in missing slots (a place was closed), let them "
                f"count as 0: --gaps zero.{hint}"
            )
        if step < usual:
            raise BadInput(
                f"{where}: {name} '{after}' is {kind.steps(step)} after '{before}', other steps are "
                f"{kind.steps(usual)}."
            )


def _check_sorted(table: Table, name: str, labels: Sequence[str], positions: Sequence[int]) -> None:
    """Refuse slots that occur twice, or rows that are not in the order of time: before that, nothing can be missing."""
    row_of: dict[int, int] = {}
    for row, position in enumerate(positions):
        if position in row_of:
            first = row_of[position]
            raise BadInput(
                f"{table.where(row)}: {name} '{labels[row]}' occurs twice (as '{labels[first]}' in {table.unit} "
                f"{table.numbers[first]}); give each slot once."
            )
        row_of[position] = row
    early = [row for row, (before, after) in enumerate(pairwise(positions), start=1) if after < before]
    if not early:
        return
    row = early[0]
    if len(early) == len(positions) - 1 > 1:
        problem = "all rows are in the reverse order of time"
    elif len(early) == 1:
        problem = "it is the only row that is earlier than the one before it"
    else:
        problem = f"{len(early):,} rows are earlier than the one before them"
    raise BadInput(
        f"{table.where(row)}: {name} '{labels[row]}' comes after '{labels[row - 1]}', which is later; {problem}. Sort "
        "the rows by time."
    )


def _kind_of(labels: Sequence[str], name: str) -> _Kind | None:
    """Return the kind of the first label; every other label must be of that kind."""
    first = labels[0]
    if WEEK.fullmatch(first) and (name.lower() == "week" or not first.isdigit()) and not MONTH.fullmatch(first):
        return MMWR_WEEKS
    # 20021005 is a day in a column of dates, and a number elsewhere.
    dates_first = name.lower() in ("date", "day", "week")
    for kind in (QUARTERS, DAYS, NUMBER, MONTHS, SECONDS) if dates_first else (QUARTERS, NUMBER, MONTHS, DAYS, SECONDS):
        try:
            kind.position(first)
        except ValueError:
            continue
        if kind in (DAYS, SECONDS) and len(labels) > 2 and are_monthly(labels):
            return MONTHLY  # 2009-10-01, 2009-11-01, ...: months are not equally long
        return kind
    return None


def are_monthly(labels: Sequence[str]) -> bool:
    """Whether labels have the same day of the month, or are all the last day of their months."""
    return len({label[7:] for label in labels}) == 1 or _are_month_ends(labels)


def _are_month_ends(labels: Sequence[str]) -> bool:
    """Whether labels are the last days of months, at one time of the day."""
    return len({label[10:] for label in labels}) == 1 and all(_is_month_end(label[:10]) for label in labels)


def _is_month_end(label: str) -> bool:
    if not MONTH.fullmatch(label[:7]):
        return False
    try:
        day = date.fromisoformat(label)
    except ValueError:
        return False
    return day.day == monthrange(day.year, day.month)[1]


def clock_change_hint(label: str) -> str:
    """Return what to do if a slot occurs twice, or is missing, because clocks were changed; empty if that is unlikely.

    Clocks are changed at night, and only local times show it.
    """
    try:
        moment = datetime.fromisoformat(label)
    except ValueError:
        return ""
    if moment.tzinfo is not None or len(label) <= len("2026-03-29") or moment.hour >= _CLOCKS_CHANGE_BEFORE:
        return ""
    return (
        " If these are local times and the clocks were changed in this night, to or from daylight saving time, no slot "
        "is missing or double: write the times in UTC (2026-03-29T01:00Z), and do not give --gaps zero for it."
    )


def label_text(cell: Cell) -> str:
    """Return a cell as a label: a time in ISO 8601, other cells as they are written."""
    if cell is None:
        return ""
    if isinstance(cell, (date, datetime)):
        return cell.isoformat()
    return str(cell).strip()


def _number(label: str) -> int:
    if not label.lstrip("-").isdigit():
        raise ValueError(label)
    return int(label)


def _month(label: str) -> int:
    match = MONTH.fullmatch(label)
    if match is None or not 1 <= int(match[2]) <= 12:
        raise ValueError(label)
    return int(match[1]) * 12 + int(match[2]) - 1


def _month_label(position: int) -> str:
    return f"{position // 12:04d}-{position % 12 + 1:02d}"


def _quarter(label: str) -> int:
    match = QUARTER.fullmatch(label)
    if match is None:
        raise ValueError(label)
    return int(match[1]) * 4 + int(match[2]) - 1


def _week(end: Callable[[int, int], date]) -> Callable[[str], int]:
    def position(label: str) -> int:
        match = WEEK.fullmatch(label)
        if match is None:
            raise ValueError(label)
        return end(int(match[1]), int(match[2])).toordinal() // 7

    return position


def _day(label: str) -> int:
    if len(label) not in (8, 10):
        raise ValueError(label)
    return date.fromisoformat(label).toordinal()


def _second(label: str) -> int:
    moment = datetime.fromisoformat(label)
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - EPOCH) // SECOND


def _week_label(end_weekday: int) -> Callable[[int], str]:
    return lambda position: "ending " + date.fromordinal(position * 7 + end_weekday).isoformat()


NUMBER = _Kind("a whole number", "", _number, str)
MMWR_WEEKS = _Kind("a week of the CDC's calendar", " weeks", _week(mmwr_week_end), _week_label(6))
ISO_WEEKS = _Kind("an ISO week", " weeks", _week(iso_week_end), _week_label(0))
MONTHS = _Kind("a month", " months", _month, _month_label)
QUARTERS = _Kind("a quarter", " quarters", _quarter, lambda position: f"{position // 4:04d} Q{position % 4 + 1}")
MONTHLY = _Kind("a date", " months", lambda label: _month(label[:7]), _month_label)
DAYS = _Kind("a date", " days", _day, lambda position: date.fromordinal(position).isoformat())
SECONDS = _Kind("a date and time", " s", _second, lambda position: (EPOCH + position * SECOND).isoformat())
