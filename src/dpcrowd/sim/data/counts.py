"""Counts as a data set, from a CSV or Parquet file or from memory: one row per slot, one column per region.

A file may have a first column of time labels: it is time if its name says so (week, date, time, slot, ...), if none of
its cells is a number, or if it only numbers the rows. A file without a header gets generated region
names, and a note (`first_line`). A file with one row per slot and region is read by `long_counts`.

A privacy claim rests on sensitivity 1, which holds for whole people only: a fraction, a hole or a negative number is
refused here and never silently fixed. `round_counts` and `gaps` fix a file on request, and leave a note.
"""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Iterable, Sequence, Sized
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from dpcrowd.arrays import Truth
from dpcrowd.errors import BadInput, check_switches, counted
from dpcrowd.schemes.tuning import Tuning
from dpcrowd.sim.data.dataset import FixedData, checked_slots, region_indexes
from dpcrowd.sim.data.gaps import fill_gaps, gaps_note
from dpcrowd.sim.data.labels import read_labels
from dpcrowd.sim.data.places import find_published
from dpcrowd.sim.data.separators import fraction_problem, number_hint, thousands_note
from dpcrowd.sim.data.series import series_model
from dpcrowd.sim.data.tables import TIME_NAMES, Cell, Table, is_number, read_table
from dpcrowd.sim.data.times import unknown_times_note
from dpcrowd.sim.data.totals import total_note

__all__ = [
    "LARGEST",
    "PUBLISHED",
    "array_names",
    "counts_from_array",
    "counts_from_table",
    "published",
    "read_counts",
    "reading_notes",
    "series_data",
    "write_counts",
]

FLU_TUNING = Tuning(theta=1.0, xi=0.6, sample_fraction=0.4)
# The table has no theta, xi and T_s for Multi-Flu: FAST and DPCrowd take those of Flu there.
MULTI_FLU_TUNING = Tuning(theta=1.0, xi=0.6, sample_fraction=0.4, rescue_theta=3.0)

PUBLISHED = {"flu": ("flu.csv", FLU_TUNING), "multi-flu": ("multi_flu.csv", MULTI_FLU_TUNING)}
NOTES = {
    "flu": "outpatient visits for influenza-like illness reported to CDC ILINet (credit: CDC). One person may appear "
    "in many weeks.",
    "multi-flu": "deaths with pneumonia or influenza per state, CDC/NCHS (credit: CDC). A person appears once in the "
    "whole stream.",
}

# The filters compute in float64, which holds every whole number up to here.
LARGEST = 2**53

_NAMED_CELLS = 3
"""How many cells without a count a message names beside the first one."""


def published(
    name: str,
    data_dir: str | os.PathLike[str] | None = None,
    *,
    slots: int | None = None,
    process_var: object | None = None,
    regions: Sequence[str] | None = None,
) -> FixedData:
    """Return Flu or Multi-Flu, from where `places` finds it, with the paper's parameters."""
    file, tuning = PUBLISHED[name]
    table = read_table(find_published(name, file, data_dir))
    data = counts_from_table(table, name, slots=slots, process_var=process_var, regions=regions)
    return replace(data, tuning=tuning, notes=(NOTES[name], *data.notes))


def counts_from_table(
    table: Table,
    name: str,
    *,
    slots: int | None = None,
    process_var: object | None = None,
    regions: Sequence[str] | None = None,
    round_counts: bool = False,
    gaps: str = "error",
) -> FixedData:
    """Return a data set from a table of counts; `gaps` as of `load`."""
    if not table.rows:
        raise BadInput(f"{table.file} has a header but no data; expected one {table.unit} for each slot.")
    timed = _has_time(table)
    columns = range(1 if timed else 0, len(table.header))
    names = _region_names(table, columns)
    filled: tuple[str, ...] = ()
    if timed and gaps == "zero":
        table, places = fill_gaps(table, 0)
        filled = gaps_note(table, places)
    labels = read_labels(table, 0) if timed else None
    counts = read_counts(table, columns, round_counts=round_counts)
    data = series_data(
        counts,
        name=name,
        regions=names,
        labels=labels,
        slots=slots,
        process_var=process_var,
        selection=regions,
        source=table.file,
    )
    thousands = thousands_note(table, columns) if round_counts else None
    notes = (*table.notes, *filled, *reading_notes(data, round_counts=round_counts, thousands=thousands))
    return replace(data, notes=(*data.notes, *notes))


def reading_notes(data: FixedData, *, round_counts: bool, thousands: str | None) -> tuple[str, ...]:
    """Return what a reader of results should know about how a file was read; `thousands`: the note of `separators`."""
    rounded = "fractions in the file were rounded to whole people, half to even." if round_counts else None
    notes = rounded, thousands, unknown_times_note(data.slot_labels), total_note(data.counts, data.regions)
    return tuple(note for note in notes if note is not None)


def series_data(
    counts: Truth,
    *,
    name: str,
    regions: Sequence[str],
    labels: Sequence[str] | None,
    slots: int | None = None,
    process_var: object | None = None,
    selection: Sequence[str] | None = None,
    source: str | None = None,
    notes: tuple[str, ...] = (),
) -> FixedData:
    """Return counts (T, d) as a data set: the first `slots` of them, and the regions of `selection`.

    source  what an error message calls the data; default: their name
    """
    place = f"'{name}'" if source is None else source
    used = checked_slots(slots, len(counts), place)
    columns = region_indexes(regions, selection)
    names = tuple(regions)
    if columns is not None:
        counts, names = counts[:, columns], tuple(regions[k] for k in columns)
    counts = counts[:used].copy()
    counts.setflags(write=False)  # every run shares this array
    model, change_var, note = series_model(counts, process_var, place)
    return FixedData(
        name=name,
        regions=names,
        slots=used,
        model=model,
        tuning=Tuning(),
        notes=(*notes, note),
        change_var=change_var,
        slot_labels=None if labels is None else tuple(labels[:used]),
        counts=counts,
    )


def counts_from_array(
    counts: object,
    *,
    slots: int | None = None,
    process_var: object | None = None,
    regions: Sequence[str] | None = None,
    round_counts: bool = False,
    times: Iterable[object] | None = None,
) -> FixedData:
    """Return a data set from counts (T,) or (T, d) in memory; `regions` names the columns.

    times  the label of each slot, as in the first column of a file: dates, times, or texts such as "2026-11-16"

    >>> data = counts_from_array([[40, 7], [42, 5], [39, 9]], regions=["hall", "garden"])
    >>> data.slots, data.regions, data.truth(np.random.default_rng(0))[0].tolist()
    (3, ('hall', 'garden'), [40, 7])
    """
    check_switches(round_counts=round_counts)
    try:
        array = np.asarray(counts)
    except ValueError:
        raise BadInput(_uneven_rows(counts)) from None
    array = array[:, None] if array.ndim == 1 else array
    if array.ndim != 2 or not array.size or array.dtype.kind not in "iuf":
        what = f"no numbers, in shape {array.shape}" if not array.size else f"{array.dtype} in shape {array.shape}"
        raise BadInput(
            f"counts must be numbers of shape (T,) or (T, d), with at least one slot and one region; given {what}."
        )
    wrong = np.argwhere(~((array >= 0) & (array <= 2**53)))
    if len(wrong):
        slot, region = wrong[0].tolist()
        raise BadInput(
            f"counts must be whole numbers from 0 to 2^53; given {array[slot, region]} in row {slot}, column {region}"
            f"{f' (and {len(wrong) - 1} more such numbers)' if len(wrong) > 1 else ''}."
        )
    rounded = np.rint(array)
    if not round_counts and (rounded != array).any():
        raise BadInput("counts must be whole numbers; given fractions. Round them, or give round_counts=True.")
    names = tuple(regions) if regions is not None else array_names(array.shape[1])
    if len(names) != array.shape[1] or len(set(names)) != len(names):
        raise BadInput(
            f"{counted(len(names), 'region name')} {'was' if len(names) == 1 else 'were'} given for "
            f"{counted(array.shape[1], 'column')}; give each column its own name."
        )
    labels = None if times is None else _labels_of(list(times), len(array))
    length = checked_slots(slots, len(array), "the array")
    values = rounded[:length].astype(np.int64)
    model, change_var, note = series_model(values, process_var, "the array")
    return FixedData(
        name="array",
        regions=names,
        slots=length,
        model=model,
        tuning=Tuning(),
        notes=(note,),
        change_var=change_var,
        slot_labels=None if labels is None else labels[:length],
        counts=values,
    )


def _uneven_rows(counts: object) -> str:
    """Return what is wrong with rows of which NumPy makes no array."""
    rows = list(counts) if isinstance(counts, Iterable) else []
    lengths = [len(row) if isinstance(row, Sized) and not isinstance(row, str) else None for row in rows]
    other = next((number for number, length in enumerate(lengths) if length != lengths[0]), None)
    if other is None:  # what the rows hold is uneven
        return "counts must have a row per slot, with one number per region; given rows of something else."
    what = ["a single number" if length is None else counted(length, "number") for length in lengths]
    return (
        f"counts must have a row per slot, with the same number of regions in each; given {what[0]} in row 0, and "
        f"{what[other]} in row {other}."
    )


def _labels_of(times: list[object], slots: int) -> tuple[str, ...]:
    """Return the labels of an array's slots, checked as those of a file."""
    if len(times) != slots:
        raise BadInput(f"{counted(len(times), 'time')} for {counted(slots, 'slot')} of the array; give one per slot.")
    return read_labels(Table("times", ("time",), [[time] for time in times], range(slots), "slot"), 0)


def array_names(number: int) -> tuple[str, ...]:
    """Return the names of the columns of an array that has none."""
    return tuple(f"region {k}" for k in range(number))


def write_counts(
    path: Path, counts: Truth, regions: Sequence[str], labels: Sequence[str], label_name: str = "slot"
) -> None:
    """Write a file that `counts_from_table` can read, completely or not at all."""
    partial = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("w", newline="", encoding="utf-8") as handle:
            writer = csv.writer(handle, lineterminator="\n")
            writer.writerow([label_name, *regions])
            writer.writerows([label, *row] for label, row in zip(labels, counts.tolist(), strict=True))
        partial.replace(path)
    except OSError as error:
        raise BadInput(f"cannot write '{path}': {error.strerror or error}.") from None
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)


def _has_time(table: Table) -> bool:
    first = table.header[0].lower()
    return first in TIME_NAMES or not any(is_number(cell) for cell in table.column(0)) or _numbered(table)


def _numbered(table: Table) -> bool:
    """Whether the first of several columns only numbers the rows, 0, 1, 2, ... or 1, 2, 3, ..."""
    cells = [str(cell).strip() for cell in table.column(0)]
    counted = [[str(number + start) for number in range(len(cells))] for start in (0, 1)]
    return len(table.header) > 1 and len(cells) > 1 and cells in counted


def _separators(table: Table) -> str:
    """Say what separates columns, to whoever has a file of a single one."""
    if len(table.header) > 1 or table.file.lower().endswith(".parquet"):
        return ""
    return " Columns of a CSV file are separated by commas, semicolons or tabs."


def _region_names(table: Table, columns: Sequence[int]) -> tuple[str, ...]:
    if not columns:
        raise BadInput(
            f"{table.file} has no region columns beside '{table.header[0]}'; expected one for each "
            f"region.{_separators(table)}"
        )
    names = tuple(table.header[column] for column in columns)
    for column, name in zip(columns, names, strict=True):
        if not name:
            raise BadInput(f"{table.file}: column {column + 1} has no name; give each region a name in the first line.")
        if names.count(name) > 1:
            raise BadInput(f"{table.file} has two columns '{name}'; give each region a name of its own.")
    return names


def read_counts(table: Table, columns: Sequence[int], *, round_counts: bool = False) -> Truth:
    """Return the counts of some columns, int64 (T, d)."""
    counts = np.empty((len(table.rows), len(columns)), dtype=np.int64)
    for k, column in enumerate(columns):
        for t, cell in enumerate(table.column(column)):
            # The usual case first: plain digits, few enough to be below LARGEST.
            if type(cell) is str and len(cell) < 16 and cell.isascii() and cell.isdigit():
                counts[t, k] = int(cell)
            elif _is_blank(cell):
                raise _blank_cells(table, columns)
            else:
                counts[t, k] = _count(cell, table, t, columns, column, round_counts)
    return counts


def _is_blank(cell: Cell) -> bool:
    """Whether a cell says nothing: it is empty, or NaN."""
    text = "" if cell is None else str(cell).strip()
    return not text or (is_number(text) and math.isnan(float(text)))


def _blank_cells(table: Table, columns: Sequence[int]) -> BadInput:
    """Return what to do about cells that say nothing: how many there are, and the places of the first ones."""
    blank = [(t, column) for t, row in enumerate(table.rows) for column in columns if _is_blank(row[column])]
    row, column = blank[0]
    text = str(table.rows[row][column] or "").strip()
    problem = f"{table.where(row, column)} is {'NaN' if text else 'empty'}"
    value = "0 if nobody was there, else an estimate, such as the count of the slot before"
    if len(blank) == 1:
        return BadInput(f"{problem}; fill it in ({value}), take its region out of the file, or end the file before it.")
    others = [table.where(*place).removeprefix(f"{table.file} ") for place in blank[1 : 1 + _NAMED_CELLS]]
    rest = len(blank) - 1 - len(others)
    places = "; ".join([*others, *([f"and {rest:,} more"] if rest else [])])
    return BadInput(
        f"{problem}, as {'is' if len(blank) == 2 else 'are'} {len(blank) - 1:,} more of "
        f"{len(table.rows) * len(columns):,} counts ({places}); fill them in ({value}), take their regions out of the "
        "file, or end the file before them."
    )


def _count(cell: Cell, table: Table, row: int, columns: Sequence[int], column: int, round_counts: bool) -> int:
    where = table.where(row, column)
    text = str(cell).strip()
    if isinstance(cell, bool):
        raise BadInput(f"{where} is '{text}', not a count; allowed: whole numbers from 0.")
    number = _plain_int(text)
    if number is None:
        if not is_number(text):
            raise BadInput(f"{where} is '{text}', not a count; allowed: whole numbers from 0.{number_hint(text)}")
        value = float(text)
        if math.isinf(value) or abs(value) > LARGEST:
            raise BadInput(f"{where} is {text}, too large for a count; allowed: 0 to 2^53.")
        if value < 0:
            raise BadInput(f"{where} is {text}; a count cannot be negative.")
        if value != int(value) and not round_counts:
            raise BadInput(f"{where} is {fraction_problem(text, table, columns)}")
        return round(value)  # half to even
    if number < 0:
        raise BadInput(f"{where} is {text}; a count cannot be negative.")
    if number > LARGEST:
        raise BadInput(f"{where} is {text}, too large for a count; allowed: 0 to 2^53.")
    return number


def _plain_int(text: str) -> int | None:
    """Return int(text) for an optional sign and digits only: '1_000', which int() accepts, is not a count."""
    digits = text[1:] if text[0] in "+-" else text
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) < 400 else None
