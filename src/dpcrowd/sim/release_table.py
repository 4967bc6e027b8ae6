"""A table of releases, by slot and region: one row per slot and region, as the client exports it.

An empty cell, or NaN, says that nothing is known there. Every other number that no server writes is refused with its
place: whoever changed a table by hand, or with a program, would otherwise get a model of something else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import numpy as np

from dpcrowd.arrays import Bools, Floats, Ints
from dpcrowd.errors import BadInput, counted
from dpcrowd.models.printable import check_printable
from dpcrowd.models.season import SlotTimes
from dpcrowd.schemes.base import Z95
from dpcrowd.sim.data.labels import label_text
from dpcrowd.sim.data.span import Span, read_span, span_text
from dpcrowd.sim.data.tables import Table, is_number
from dpcrowd.sim.data.times import monthly_times

__all__ = ["ReleaseTable", "cut_releases", "read_releases"]

_HOW_TO_EXPORT = (
    "fit counts without --releases (dpcrowd.fit), or export releases: client.estimates(smoothed=True, "
    "measurements=True).to_pandas().to_csv('releases.csv', index=False), or curl -H 'Accept: text/csv' "
    "'http://NODE/v1/estimates?smoothed=true&measurements=true&limit=250000' > releases.csv"
)
_MEASURED = ("measurement", "measurement_variance")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LONGEST_SLOT = 12  # digits of a number
_ALWAYS_READ = 1_000_000  # slots x regions, however few of them have rows
_LARGEST_PART = 100  # slots x regions per row of larger tables


@dataclass(frozen=True, eq=False)
class ReleaseTable:
    """The table of releases.

    slots           (T,)
    regions         (d,) names
    mean, variance  (T, d) of the estimates; 0 and infinite where there is none
    measured        measurements and their variances, (T, d) likewise; None: the table has none
    present         (T, d) whether the table has a row
    times           when slots begin
    notes           what is missing
    """

    slots: Ints
    regions: tuple[str, ...]
    mean: Floats
    variance: Floats
    present: Bools
    times: SlotTimes | None
    notes: tuple[str, ...]
    measured: tuple[Floats, Floats] | None = None


def read_releases(table: Table) -> ReleaseTable:
    """Return the releases by slot and region."""
    names = {name.lower(): column for column, name in enumerate(table.header)}
    for name in ("slot", "region", "estimate"):
        if name not in names:
            raise BadInput(f"{table.file} has no column '{name}', so it is not a table of releases; {_HOW_TO_EXPORT}.")
    if "variance" not in names and not {"low", "high"} <= names.keys():
        raise BadInput(f"{table.file} has neither 'variance' nor 'low' and 'high': releases are useless without them.")
    if not table.rows:
        raise BadInput(
            f"{table.file} has a header but no data; expected one {table.unit} for each slot and region. Export "
            "releases of slots that the server has released."
        )
    numbers = [_slot(table, row, names["slot"]) for row in range(len(table.rows))]
    labels = [str(cell) for cell in table.column(names["region"])]
    regions = tuple(dict.fromkeys(labels))
    for region in regions:
        check_printable(region, table.where(labels.index(region), names["region"]))
    _check_range(table, numbers, names["slot"], len(regions))
    slots = np.arange(min(numbers), max(numbers) + 1)
    place = {name: number for number, name in enumerate(regions)}
    mean = np.full((len(slots), len(regions)), np.nan)
    variance, rows = np.full(mean.shape, np.inf), np.zeros(mean.shape, dtype=np.int64)
    measured = np.zeros(mean.shape), np.full(mean.shape, np.inf)
    columns = [names[name] for name in _MEASURED if name in names]
    if len(columns) == 1:
        raise BadInput(f"{table.file} has only one of the columns {' and '.join(_MEASURED)}; give both, or neither.")
    for row, (slot, label) in enumerate(zip(numbers, labels, strict=True)):
        at = slot - int(slots[0]), place[label]
        rows[at] += 1
        mean[at] = _number(table, row, names["estimate"])
        variance[at] = _variance(table, row, names)
        if columns:
            measured[0][at], measured[1][at] = _measurement(table, row, names)
    variance = np.where(np.isfinite(variance) & np.isfinite(mean) & (variance > 0.0), variance, np.inf)
    mean = np.where(np.isfinite(variance), mean, 0.0)
    times = None
    if "start" in names and len(slots) > 1:
        times = _times(table, numbers, names["start"])
    remarks = _remarks(rows, np.isfinite(variance))
    any_measured = np.isfinite(measured[1]).any()
    return ReleaseTable(slots, regions, mean, variance, rows > 0, times, remarks, measured if any_measured else None)


def cut_releases(releases: ReleaseTable, span: Span, file: str) -> ReleaseTable:
    """Return the releases of a span: of slots by their numbers, or of fractions of the table."""
    text = span_text(span)
    first, slots = int(releases.slots[0]), len(releases.slots)
    begin, end = read_span(text, slots, first)
    if begin >= end:
        raise BadInput(f"span '{text}' contains none of the slots of {file}, {first} to {first + slots - 1}.")
    part = slice(begin, end)
    times, measured = releases.times, releases.measured
    return replace(
        releases,
        slots=releases.slots[part],
        mean=releases.mean[part],
        variance=releases.variance[part],
        present=releases.present[part],
        times=None if times is None else replace(times, start=times.start + begin * times.length),
        measured=None if measured is None else (measured[0][part], measured[1][part]),
    )


def _remarks(rows: Ints, known: Bools) -> tuple[str, ...]:
    """Return what the table lacks; rows (T, d) of each slot and region, and whether the last one has numbers."""
    absent = ~rows.any(axis=1)
    missing = int((rows[~absent] == 0).sum())
    empty = int(((rows > 0) & ~known).sum())
    repeated = int(np.maximum(rows - 1, 0).sum())
    remarks = []
    if absent.any():
        remarks.append(f"{int(absent.sum())} of {len(rows)} slots are missing in the table.")
    if missing:
        remarks.append(
            f"{counted(missing, 'more row')} {'is' if missing == 1 else 'are'} missing: a slot has some regions only."
        )
    if empty:
        remarks.append(
            f"{empty} of {int((rows > 0).sum())} rows have no number as estimate or interval, and were left out."
        )
    if repeated:
        remarks.append(
            f"{counted(repeated, 'row')} replaced an earlier one of the same slot and region; give the releases of one "
            "server only."
        )
    return tuple(remarks)


def _slot(table: Table, row: int, column: int) -> int:
    cell = str(table.rows[row][column]).strip()
    if not cell.isascii() or not cell.isdigit():
        raise BadInput(f"{table.where(row, column)} is '{cell}', not a slot; allowed: a whole number from 0.")
    if len(cell) > _LONGEST_SLOT:
        raise BadInput(f"{table.where(row, column)} is {cell[:40]}, too large for a slot; allowed: 0 to 999999999999.")
    return int(cell)


def _check_range(table: Table, numbers: Sequence[int], column: int, regions: int) -> None:
    """Refuse slots that are so far apart that the table is nearly empty; one with a typing error would fill memory."""
    first, last, known = min(numbers), max(numbers), len(set(numbers))
    cells = (last - first + 1) * regions
    if cells <= max(_ALWAYS_READ, _LARGEST_PART * len(numbers)):
        return
    middle = sorted(numbers)[len(numbers) // 2]
    row = int(np.argmax([abs(number - middle) for number in numbers]))
    raise BadInput(
        f"{table.where(row, column)} is {numbers[row]}, far from the other slots: the table has rows of {known} of the "
        f"{last - first + 1} slots from {first} to {last}. Correct it, or give releases of one stretch of time only."
    )


def _variance(table: Table, row: int, names: Mapping[str, int]) -> float:
    """Return the variance of an estimate, from its own column or from the interval; NaN where nothing is known."""
    if "variance" in names:
        variance = _number(table, row, names["variance"])
        if variance < 0.0:
            raise _wrong(table, row, names, "variance", "a number from 0, or an empty cell where nothing is known")
        return variance
    low, high = (_number(table, row, names[name]) for name in ("low", "high"))
    if low > high:
        cell = str(table.rows[row][names["high"]]).strip()
        raise _wrong(table, row, names, "low", f"at most 'high', which is {cell}")
    return float(np.square((high - low) / (2.0 * Z95)))


def _measurement(table: Table, row: int, names: Mapping[str, int]) -> tuple[float, float]:
    """Return a measurement and its variance, which is infinite where there is none."""
    value, variance = (_number(table, row, names[name]) for name in _MEASURED)
    if variance <= 0.0:
        allowed = "a number above 0, or an empty cell where the region was not measured"
        raise _wrong(table, row, names, "measurement_variance", allowed)
    if np.isfinite(value) and np.isnan(variance):
        allowed = "a number above 0 where there is a measurement; or leave both cells empty"
        raise _wrong(table, row, names, "measurement_variance", allowed)
    if np.isfinite(variance) and not np.isfinite(value):
        allowed = "a finite number where there is a measurement_variance; or leave both cells empty"
        raise _wrong(table, row, names, "measurement", allowed)
    return (value, variance) if np.isfinite(variance) else (0.0, np.inf)


def _wrong(table: Table, row: int, names: Mapping[str, int], name: str, allowed: str) -> BadInput:
    """Return the error for a number that no server writes."""
    slot, region, cell = (table.rows[row][names[key]] for key in ("slot", "region", name))
    text = "" if cell is None else str(cell).strip()
    return BadInput(
        f"{table.where(row, names[name])} (slot {slot}, region '{region}') is {text or 'empty'}; allowed: {allowed}."
    )


def _number(table: Table, row: int, column: int) -> float:
    """Return a number; an empty cell, which the client writes while nothing is known, is NaN."""
    cell = table.rows[row][column]
    if cell is None or str(cell).strip().lower() in ("", "nan", "null", "none"):
        return float("nan")
    if not is_number(cell):
        raise BadInput(f"{table.where(row, column)} is '{cell}', not a number.")
    return float(cell)


def _times(table: Table, numbers: list[int], column: int) -> SlotTimes | None:
    """Return when slots begin, from the first and the last row; from all of them where they are months or years, which
    are not equally long, and are read as they are in counts.
    """
    monthly = monthly_times({slot: label_text(table.rows[row][column]) for row, slot in enumerate(numbers)})
    if monthly is not None:
        return monthly
    rows = (int(np.argmin(numbers)), int(np.argmax(numbers)))
    moments = []
    for row in rows:
        cell = table.rows[row][column]
        try:
            moment = cell if isinstance(cell, datetime) else datetime.fromisoformat(str(cell))
        except ValueError:
            raise BadInput(
                f"{table.where(row, column)} is '{'' if cell is None else cell}', not a time; allowed: such as "
                "2026-01-01T00:00:00Z. If times are not known, leave the column out."
            ) from None
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        moments.append((moment - _EPOCH) // timedelta(microseconds=1))
    first, last = (numbers[row] for row in rows)
    if last == first:
        return None
    return SlotTimes(moments[0], (moments[1] - moments[0]) // (last - first))
