"""When the slots of a data set begin, from their labels: what a season is counted from.

Labels are dates, times, months, quarters, or weeks of the CDC's or the ISO calendar; of other labels, such as plain
numbers, the times are unknown. Months are taken as twelfths of a mean year.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta

from dpcrowd.models.season import DAY, MONTH, NEW_YEAR, WEEK, SlotTimes
from dpcrowd.sim.data.labels import EPOCH, are_monthly
from dpcrowd.sim.data.labels import MONTH as MONTH_LABEL
from dpcrowd.sim.data.labels import QUARTER as QUARTER_LABEL
from dpcrowd.sim.data.labels import WEEK as WEEK_LABEL
from dpcrowd.sim.data.weeks import iso_week_end

__all__ = ["monthly_times", "slot_times", "unknown_times_note"]

_MICROSECOND = timedelta(microseconds=1)
_FEWEST_MONTHS = 3  # of two dates, nobody knows whether they are months, or 31 days


def slot_times(labels: Sequence[str] | None) -> SlotTimes | None:
    """Return when slots begin; None if the labels do not say."""
    if labels is None or len(labels) < 2:
        return None
    try:
        moments = [_moment(labels[place]) for place in (0, 1, -1)]
        months = [_months(labels[place]) for place in (0, 1, -1)]
    except ValueError:
        return None
    if None not in months and are_monthly(labels):
        begin, after, end = (month for month in months if month is not None)
        step = after - begin
        alike = step > 0 and end - begin == step * (len(labels) - 1)
        return SlotTimes(NEW_YEAR + begin * MONTH, step * MONTH) if alike else None
    start, second, last = moments
    length = (last - start) // (len(labels) - 1)
    return SlotTimes(start, length) if length == second - start and length > 0 else None


def monthly_times(labels: Mapping[int, str]) -> SlotTimes | None:
    """Return when slots of whole months begin, of labels by the numbers of their slots, of which some may be missing;
    None if they are something else, or fewer than three.

    >>> times = monthly_times({4: "1903-01-01", 5: "1904-01-01", 8: "1907-01-01"})
    >>> times is not None and times.length == 12 * MONTH
    True
    """
    if len(labels) < _FEWEST_MONTHS or not are_monthly(list(labels.values())):
        return None
    months = {slot: _months(label) for slot, label in labels.items()}
    first, last = min(labels), max(labels)
    begin, end = months[first], months[last]
    if begin is None or end is None:
        return None
    step = (end - begin) // (last - first)
    alike = step > 0 and all(month == begin + step * (slot - first) for slot, month in months.items())
    return SlotTimes(NEW_YEAR + begin * MONTH, step * MONTH) if alike else None


def unknown_times_note(labels: Sequence[str] | None) -> str | None:
    """Return a note on labels that look like times to a reader, but not to us; None: times, plain numbers or none."""
    for label in () if labels is None else labels[:1]:
        try:
            _moment(label)
        except ValueError:
            if not label.lstrip("-").isdigit():
                return (
                    f"labels such as '{label}' are not understood as times, so these data have none; ISO 8601 is "
                    "understood: 2026-11-16, 2026-11-16T09:00Z, 2026-11 or 2026-W47, and quarters: 2026 Q4."
                )
    return None


def _months(label: str) -> int | None:
    """Return the months from 2000 to a label that begins with a month, or is a quarter; None: neither."""
    quarter, month = QUARTER_LABEL.fullmatch(label), MONTH_LABEL.fullmatch(label[:7])
    if quarter is not None:
        return (int(quarter[1]) - 2000) * 12 + 3 * (int(quarter[2]) - 1)
    return None if month is None else (int(month[1]) - 2000) * 12 + int(month[2]) - 1


def _moment(label: str) -> int:
    """Return the microseconds from 1970 to a label; ValueError if it is no time."""
    quarter = QUARTER_LABEL.fullmatch(label)
    if quarter is not None:
        label = f"{quarter[1]}-{3 * int(quarter[2]) - 2:02d}"
    week = WEEK_LABEL.fullmatch(label)
    if week is not None and not label.isdigit() and not MONTH_LABEL.fullmatch(label):
        # The ends of the CDC's weeks and of ISO weeks are a day apart, which makes no difference to a week of the year.
        end = iso_week_end(int(week[1]), min(int(week[2]), 52))
        return (end - date(1970, 1, 1)).days * DAY - WEEK + DAY
    if MONTH_LABEL.fullmatch(label):
        label += "-01"
    if label.lstrip("-").isdigit() and len(label) != 8:
        raise ValueError(label)
    moment = datetime.fromisoformat(label)
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - EPOCH) // _MICROSECOND
