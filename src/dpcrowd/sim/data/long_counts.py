"""Counts with one row per slot and region, as databases and spreadsheets give them: columns slot, region and count.

The columns may be in any order, and so may the rows; slots are put into the order of time. A pair of slot and region
without a row counts as 0, because a query that counts people has no row where nobody was; a note says how many there
are. A pair with two rows is refused, and so is a slot that is missing in all regions, unless missing slots are to count
as 0 (`gaps`): nobody can tell it from a gap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dpcrowd.errors import BadInput
from dpcrowd.sim.data.counts import read_counts, reading_notes, series_data
from dpcrowd.sim.data.dataset import FixedData
from dpcrowd.sim.data.gaps import fill_gaps, gaps_note
from dpcrowd.sim.data.labels import clock_change_hint, label_text, read_labels, time_order
from dpcrowd.sim.data.separators import thousands_note
from dpcrowd.sim.data.tables import TIME_NAMES, Table

__all__ = ["check_columns", "counts_from_long_table", "is_long"]

_MOST_CELLS = 100_000_000
_COUNT_NAMES = frozenset({"count", "counts", "people"})


def is_long(table: Table) -> bool:
    """Whether the header is a name of time, region and count (or people), in any order."""
    names = {name.lower() for name in table.header}
    others = names - {"region"}
    return (
        len(table.header) == 3
        and len(others) == 2
        and all(others & allowed for allowed in (_COUNT_NAMES, TIME_NAMES - {""}))
    )


def check_columns(table: Table) -> None:
    """Refuse a table of shares or of releases, and one by slot and region with a column too many: several rows share a
    slot.
    """
    titles = [title.lower() for title in table.header]
    if {"server", "share"} <= set(titles) <= {"server", "region", "share"}:
        raise BadInput(
            f"{table.file} has the columns {', '.join(table.header)}: it is a file of shares, and counts are needed. "
            "Shares are given as --shares FILE (in Python: shares=)."
        )
    if {"slot", "region", "estimate"} <= set(titles):
        raise BadInput(
            f"{table.file} has the columns slot, region and estimate: it looks like a table of releases, and counts "
            "are needed here. To fit a model on releases, add --releases to 'dpcrowd fit' (in Python: "
            "dpcrowd.fit_releases); simulate, tune and plan need counts."
        )
    times = [place for place, title in enumerate(titles) if title in TIME_NAMES - {""}]
    counts = [place for place, title in enumerate(titles) if title in _COUNT_NAMES]
    if titles.count("region") != 1 or not times or not counts or len(titles) == 3:
        return
    extra = sorted({*range(len(titles))} - {titles.index("region"), times[0], counts[0]})
    name = f"'{table.header[extra[0]]}'" if titles[extra[0]] else f"number {extra[0] + 1}, which has no name,"
    remedy = "sum the counts over it, or leave it out"
    if extra[0] in times:
        remedy = f"write it and '{table.header[times[0]]}' into one column of times (2026-11-16T09:00), or leave it out"
    raise BadInput(
        f"{table.file}: column {name} is not understood. A file with one row per slot and region has the columns "
        f"'{table.header[times[0]]}', 'region' and '{table.header[counts[0]]}' alone; {remedy}."
    )


def counts_from_long_table(
    table: Table,
    name: str,
    *,
    slots: int | None = None,
    process_var: object | None = None,
    regions: Sequence[str] | None = None,
    round_counts: bool = False,
    gaps: str = "error",
) -> FixedData:
    """Return a data set from a table with one row per slot and region; `gaps` as of `load`."""
    if not table.rows:
        raise BadInput(f"{table.file} has a header but no data; expected one {table.unit} for each slot and region.")
    titles = [title.lower() for title in table.header]
    region_column = titles.index("region")
    (count_column,) = (column for column, title in enumerate(titles) if title in _COUNT_NAMES)
    (time_column,) = {0, 1, 2} - {region_column, count_column}
    values = read_counts(table, [count_column], round_counts=round_counts)[:, 0]
    slot_of, first_rows = _codes(table, time_column)
    region_of, region_rows = _codes(table, region_column)
    _refuse_pairs(table, slot_of * len(region_rows) + region_of, time_column, region_column)
    # A table of the slots alone, each with its first row: labels are checked as those of a wide table.
    names = [label_text(table.rows[row][time_column]) for row in first_rows]
    order = time_order(names, table.header[time_column])
    by_slot = replace(
        table,
        rows=[table.rows[first_rows[place]] for place in order],
        numbers=[table.numbers[first_rows[place]] for place in order],
    )
    places = np.arange(len(order))
    filled: tuple[str, ...] = ()
    if gaps == "zero":
        by_slot, places = fill_gaps(by_slot, time_column)
        filled = gaps_note(by_slot, places)
    labels = read_labels(by_slot, time_column)
    if len(labels) * len(region_rows) > _MOST_CELLS:
        raise BadInput(
            f"{table.file}: {len(labels):,} slots of {len(region_rows):,} regions do not fit into memory; take "
            "longer slots or fewer regions."
        )
    place_of = places[np.argsort(np.array(order))]
    counts = np.zeros((len(labels), len(region_rows)), dtype=np.int64)
    counts[place_of[slot_of], region_of] = values
    pairs = len(order) * len(region_rows)
    missing = pairs - len(table.rows)
    absent = (f"{table.file} has no row for {missing:,} of {pairs:,} pairs of slot and region; these count as 0.",)
    data = series_data(
        counts,
        name=name,
        regions=tuple(label_text(table.rows[row][region_column]) for row in region_rows),
        labels=labels,
        slots=slots,
        process_var=process_var,
        selection=regions,
        source=table.file,
    )
    thousands = thousands_note(table, [count_column]) if round_counts else None
    notes = (
        *(absent if missing else ()),
        *filled,
        *reading_notes(data, round_counts=round_counts, thousands=thousands),
    )
    return replace(data, notes=(*data.notes, *notes))


def _codes(table: Table, column: int) -> tuple[np.ndarray, list[int]]:
    """Return a number for the value in each row, and the first row of each value, in the order of the file."""
    numbers: dict[str, int] = {}
    first_rows: list[int] = []
    codes = np.empty(len(table.rows), dtype=np.int64)
    for row, cell in enumerate(table.column(column)):
        text = label_text(cell)
        if not text:
            raise BadInput(f"{table.where(row)} has no {table.header[column]}; every row needs one.")
        if text not in numbers:
            numbers[text] = len(numbers)
            first_rows.append(row)
        codes[row] = numbers[text]
    return codes, first_rows


def _refuse_pairs(table: Table, pairs: np.ndarray, time_column: int, region_column: int) -> None:
    """Refuse two rows of one slot and region."""
    _, first = np.unique(pairs, return_index=True)
    if len(first) == len(pairs):
        return
    seen = np.zeros(len(pairs), dtype=bool)
    seen[first] = True
    row = int(np.flatnonzero(~seen)[0])
    before = int(np.flatnonzero(pairs[:row] == pairs[row])[0])
    slot, region = (label_text(table.rows[row][column]) for column in (time_column, region_column))
    raise BadInput(
        f"{table.where(row)}: slot '{slot}' of region '{region}' occurs twice (first in {table.unit} "
        f"{table.numbers[before]}); give one row per slot and region, or check-ins (user, time, region)."
        f"{clock_change_hint(slot)}"
    )
