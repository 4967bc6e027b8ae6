"""Epidemiological (MMWR) weeks of the CDC, and ISO weeks, as the Saturday or Sunday that ends them.

An MMWR week runs from Sunday to Saturday and belongs to the year that holds at least four of its days, so week 1 is
the one with 4 January. An ISO week is the same with Monday to Sunday.
"""

from __future__ import annotations

from datetime import date, timedelta

__all__ = ["iso_week_end", "mmwr_range", "mmwr_week_end"]

WEEK = timedelta(days=7)


def mmwr_week_end(year: int, week: int) -> date:
    """Return the Saturday that ends an MMWR week; ValueError if the year has no such week."""
    end = _first_mmwr_end(year) + (week - 1) * WEEK
    if week < 1 or end >= _first_mmwr_end(year + 1):
        raise ValueError(f"{year} has no MMWR week {week}")
    return end


def iso_week_end(year: int, week: int) -> date:
    """Return the Sunday that ends an ISO week; ValueError if the year has no such week."""
    return date.fromisocalendar(year, week, 7)


def mmwr_range(first: tuple[int, int], last: tuple[int, int]) -> list[date]:
    """Return the ends of all weeks from `first` to `last`, both (year, week) and both included."""
    start, stop = mmwr_week_end(*first), mmwr_week_end(*last)
    return [start + k * WEEK for k in range((stop - start) // WEEK + 1)]


def _first_mmwr_end(year: int) -> date:
    fourth = date(year, 1, 4)
    return fourth + timedelta(days=(5 - fourth.weekday()) % 7)
