"""Seasons: which row of a profile a slot belongs to."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from dpcrowd.errors import BadInput
from dpcrowd.filters import Course
from dpcrowd.models.season import (
    MONTH,
    SeasonTiming,
    SlotTimes,
    check_seen_twice,
    duration_text,
    possible_seasons,
    seasons_seen,
    timing,
)

SECOND = 1_000_000


def times(text: str, seconds: int) -> SlotTimes:
    moment = datetime.fromisoformat(text).replace(tzinfo=UTC)
    return SlotTimes(round(moment.timestamp()) * SECOND, seconds * SECOND)


def row(place: SeasonTiming, slot: int) -> int:
    import numpy as np

    return Course(np.zeros((place.rows, 1)), np.ones((place.rows, 1)), place.season, place.offset, place.step).row(slot)


def test_hours_and_days() -> None:
    """A profile that is shifted by an hour or a day would expect crowds at night."""
    hourly = times("2026-07-01T05:00", 3600)  # a Wednesday
    assert [row(timing("day", hourly), slot) for slot in (0, 1, 19, 24)] == [5, 6, 0, 5]
    assert [row(timing("week", hourly), slot) for slot in (0, 18, 19, 24 * 5)] == [2, 2, 3, 0]
    assert row(timing("hour-of-week", hourly), 0) == 2 * 24 + 5
    assert row(timing("hour-of-week", hourly), -54) == 167, "the slots before slot 0 belong to the same week"


def test_slots_longer_than_an_hour_have_fewer_rows() -> None:
    """Rows that no slot ever falls into could not be fitted."""
    assert timing("day", times("2026-01-01", 6 * 3600)).rows == 4
    assert timing("hour-of-week", times("2026-01-01", 6 * 3600)).rows == 28
    assert timing("year", times("2026-01-01", 7 * 86400)).rows == 52
    assert timing("day", times("2026-01-01", 900)).rows == 24, "four slots of an hour share a row"


def test_weeks_of_the_year_do_not_drift() -> None:
    """52 weeks are a day short of a year: counted in slots, the flu season would move by a week every six years."""
    place = timing("year", times("2002-10-05", 7 * 86400))
    week = row(place, 0)
    for years in range(1, 16):
        slot = round(years * 365.2425 / 7)
        assert abs((row(place, slot) - week + 26) % 52 - 26) <= 1


def test_a_season_of_slots_needs_no_times() -> None:
    """Data without labels may have a season, too; it is counted from the first slot of the complete series."""
    assert [row(timing(7, None, 10), slot) for slot in range(5)] == [3, 4, 5, 6, 0]
    with pytest.raises(BadInput, match="season 'week' needs the time of each slot"):
        timing("week", None)
    with pytest.raises(BadInput, match="a season of 1 slot was given; allowed: 2 or more"):
        timing(1, None)
    with pytest.raises(BadInput, match="slots of 1d are too long for season 'day'"):
        timing("day", times("2026-01-01", 86400))


def test_two_seasons_have_to_be_seen() -> None:
    """From ten days nobody can tell a year's season."""
    hourly = times("2026-01-01", 3600)
    assert possible_seasons(hourly, 240) == ["none", "day"]
    assert possible_seasons(hourly, 24 * 15) == ["none", "day", "week", "hour-of-week"]
    assert possible_seasons(None, 10**6) == ["none"]
    assert possible_seasons(times("2000-01-01", 7 * 86400), 120) == ["none", "year"]


def test_how_many_seasons_were_seen() -> None:
    """Whoever asks for a season by name has to learn that the span is too short for it."""
    assert seasons_seen("week", 86_400 * SECOND, 10) == pytest.approx(10 / 7)
    assert seasons_seen(500, None, 504) == pytest.approx(1.008)
    assert seasons_seen("none", 3_600 * SECOND, 10) is None
    with pytest.raises(BadInput, match=r"allowed: auto, none, day, or a number of slots from 2 to 120\. Give"):
        check_seen_twice("year", 3_600 * SECOND, 240)
    with pytest.raises(BadInput, match=r"a season of 101 slots fits 1\.9 times into the 201 slots"):
        check_seen_twice(101, None, 201)


def test_lengths_in_words() -> None:
    """Messages say 15m and not 900000000."""
    texts = [duration_text(seconds * SECOND) for seconds in (1, 90, 900, 3600, 86400, 604800)]
    assert texts == ["1s", "90s", "15m", "1h", "1d", "1w"]
    assert duration_text(1_500_000) == "1.5s"
    assert [duration_text(number * MONTH) for number in (1, 3)] == ["1 month", "3 months"]
