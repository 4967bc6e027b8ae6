"""Seasons: which row of a profile a slot belongs to.

    day           hour of the day: 24 rows, or one per slot if slots are longer than an hour
    hour-of-week  hour of the week: 168 rows, or one per slot
    week          day of the week: 7 rows
    year          week of the year: 52 rows of a little more than 7 days, or 12 for slots of a month
    a number n    n slots, counted from the first slot of the series; of data without times, only this one is possible
    none          one row: a constant level

Time is counted in microseconds since 1970 UTC. A season of local time (opening hours) therefore moves by an hour when
the clocks are changed. A year is the mean year of the calendar, so that every year has the same rows; the row of a
slot is that of its beginning.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpcrowd.arrays import Ints
from dpcrowd.errors import BadInput, counted

__all__ = [
    "LABEL_SLOTS",
    "SEASONS",
    "SeasonKind",
    "SeasonTiming",
    "SlotTimes",
    "check_seen_twice",
    "duration_text",
    "is_calendar_season",
    "possible_seasons",
    "row_of",
    "seasons_seen",
    "timing",
]

SeasonKind = str | int
SEASONS = ("none", "day", "week", "hour-of-week", "year")
LABEL_SLOTS = "label their slots with dates or times"
"""What to do about data without times, for messages."""

SECOND = 1_000_000
HOUR, DAY, WEEK, YEAR = 3_600 * SECOND, 86_400 * SECOND, 604_800 * SECOND, 31_556_952 * SECOND
MONDAY = 4 * DAY  # 1970-01-05
NEW_YEAR = 10_957 * DAY  # 2000-01-01
MONTH = YEAR // 12
_LENGTHS = {"day": DAY, "week": WEEK, "hour-of-week": WEEK, "year": YEAR}
_BEGINNINGS = {"day": 0, "week": MONDAY, "hour-of-week": MONDAY, "year": NEW_YEAR}
_MOST_ROWS = {"day": 24, "week": 7, "hour-of-week": 168, "year": 52}
_ABOUT = 0.02  # of a season's length by which a number of slots may miss it, and is still taken for it
_LONGEST_SLOT = {"day": 12 * HOUR, "week": DAY, "hour-of-week": 12 * HOUR, "year": YEAR // 4}


@dataclass(frozen=True)
class SlotTimes:
    """When slots begin: slot t begins at `start` + t `length`, in microseconds since 1970 UTC."""

    start: int
    length: int

    def __post_init__(self) -> None:
        if self.length < 1:
            raise BadInput(f"a slot is {self.length} microseconds long; allowed: at least 1.")

    def at(self, slot: int) -> int:
        """Return when a slot begins."""
        return self.start + slot * self.length


@dataclass(frozen=True)
class SeasonTiming:
    """How slots run through a season: rows of the profile, and the ticks of `filters.Course`."""

    rows: int
    season: int = 1
    offset: int = 0
    step: int = 0


def timing(season: SeasonKind, times: SlotTimes | None, first: int = 0) -> SeasonTiming:
    """Return how slots run through a season.

    times  when the slots begin; None: unknown
    first  the number of the first slot in its series, for a season that is counted in slots
    """
    if isinstance(season, int):
        if season < 2:
            raise BadInput(f"a season of {counted(season, 'slot')} was given; allowed: 2 or more.")
        return SeasonTiming(season, season, first % season, 1)
    if season == "none":
        return SeasonTiming(1)
    if times is None:
        raise BadInput(
            f"season '{season}' needs the time of each slot, which these data do not have; {LABEL_SLOTS}, or give the "
            "season as a number of slots."
        )
    if times.length > _LONGEST_SLOT[season]:
        raise BadInput(
            f"slots of {duration_text(times.length)} are too long for season '{season}'; allowed: slots of at most "
            f"{duration_text(_LONGEST_SLOT[season])}."
        )
    rows = max(2, min(_MOST_ROWS[season], round(_LENGTHS[season] / times.length)))
    return SeasonTiming(rows, _LENGTHS[season], (times.start - _BEGINNINGS[season]) % _LENGTHS[season], times.length)


def row_of(place: SeasonTiming, slots: int) -> Ints:
    """Return the row of the profile that each of so many slots belongs to, (T,).

    >>> row_of(SeasonTiming(3, 3, 1, 1), 5).tolist()
    [1, 2, 0, 1, 2]
    """
    ticks = (place.offset + place.step * np.arange(slots)) % place.season * place.rows // place.season
    return np.asarray(ticks, dtype=np.int64)


def possible_seasons(times: SlotTimes | None, slots: int) -> list[SeasonKind]:
    """Return the seasons that fit at least twice into this number of slots, "none" first."""
    seasons: list[SeasonKind] = ["none"]
    if times is not None:
        for season, length in _LENGTHS.items():
            if times.length <= _LONGEST_SLOT[season] and slots * times.length >= 2 * length:
                seasons.append(season)
    return seasons


def is_calendar_season(number: int, times: SlotTimes | None, slots: int) -> bool:
    """Whether a season of so many slots is about as long as one of the calendar that fits into them.

    >>> from dpcrowd.models.season import DAY, WEEK
    >>> [is_calendar_season(number, SlotTimes(0, WEEK), 300) for number in (7, 52, 53)]
    [False, True, True]
    >>> [is_calendar_season(number, SlotTimes(0, DAY), 300) for number in (6, 7, 14)]
    [False, True, False]
    """
    if times is None:
        return False
    lengths = (_LENGTHS[season] / times.length for season in possible_seasons(times, slots) if season in _LENGTHS)
    return any(abs(number - length) < max(1.0, _ABOUT * length) for length in lengths)


def seasons_seen(season: SeasonKind, slot: int | None, slots: int) -> float | None:
    """Return how many seasons this number of slots covers; None for a constant level."""
    if isinstance(season, int):
        return slots / season
    return None if season == "none" or slot is None else slots * slot / _LENGTHS[season]


def check_seen_twice(season: SeasonKind, slot: int | None, slots: int) -> None:
    """Refuse a season that does not fit twice into this number of slots; "auto" takes no such season."""
    if season == "auto" or (isinstance(season, int) and season < 2):  # `timing` refuses the latter
        return
    seen = seasons_seen(season, slot, slots)
    if seen is None or seen >= 2.0:
        return
    season_text = f"a season of {season} slots" if isinstance(season, int) else f"season '{season}'"
    rounded = f"{int(10.0 * seen) / 10.0 if seen >= 1.0 else seen:.2g}"  # downwards: 1.99 is less than twice
    times = "once" if rounded == "1" else f"{rounded} times"
    names = ["auto", *possible_seasons(None if slot is None else SlotTimes(0, slot), slots)]
    numbers = f", or a number of slots from 2 to {slots // 2}" if slots >= 4 else ""
    raise BadInput(
        f"{season_text} fits {times} into the {slots} slots to be fitted, and a profile that was seen less than twice "
        f"cannot be told from chance; allowed: {', '.join(map(str, names))}{numbers}. Give a longer span, or another "
        "season."
    )


def duration_text(micros: int) -> str:
    """Return a length of time as people write it: 15m, 1h, 1d, 1w, 1 month, or seconds."""
    if micros and micros % MONTH == 0:
        return counted(micros // MONTH, "month")
    for length, unit in ((WEEK, "w"), (DAY, "d"), (HOUR, "h"), (60 * SECOND, "m"), (SECOND, "s")):
        if micros % length == 0:
            return f"{micros // length}{unit}"
    return f"{micros / SECOND:.6f}".rstrip("0") + "s"
