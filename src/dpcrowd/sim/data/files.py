"""Counts from a CSV or Parquet file: one row a slot, one column a region, an optional first column of time labels.

The first column is time if its name says so (week, date, time, slot, ...), if none of its cells is a number, or if it
only numbers the rows. A file without a header is taken as it is, with made-up region names.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from dpcrowd.errors import BadInput
from dpcrowd.schemes.tuning import Tuning
from dpcrowd.sim.data.counts import read_counts
from dpcrowd.sim.data.dataset import Counts, FixedData, checked_slots, region_indexes
from dpcrowd.sim.data.labels import read_labels
from dpcrowd.sim.data.places import find_published
from dpcrowd.sim.data.series import series_model
from dpcrowd.sim.data.tables import TIME_NAMES, Table, is_number, read_table

__all__ = ["PUBLISHED", "counts_from_table", "published", "write_counts"]

FLU_TUNING = Tuning(theta=1.0, xi=0.6, sample_fraction=0.4)
# The table has no theta, xi and T_s for Multi-Flu: FAST and DPCrowd take those of Flu there.
MULTI_FLU_TUNING = Tuning(theta=1.0, xi=0.6, sample_fraction=0.4, rescue_theta=3.0)

PUBLISHED = {"flu": ("flu.csv", FLU_TUNING), "multi-flu": ("multi_flu.csv", MULTI_FLU_TUNING)}
NOTES = {
    "flu": "Outpatient visits for influenza-like illness reported to CDC ILINet (credit: CDC). One person may appear "
    "in many weeks.",
    "multi-flu": "Deaths with pneumonia or influenza per state, CDC/NCHS (credit: CDC). A person appears once in the "
    "whole stream.",
}


def published(
    name: str,
    data_dir: str | os.PathLike[str] | None = None,
    *,
    slots: int | None = None,
    process_var: object | None = None,
    regions: Sequence[str] | None = None,
) -> FixedData:
    """Flu or Multi-Flu, from where `places` finds it, with the paper's parameters."""
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
) -> FixedData:
    """A data set from a table of counts."""
    if not table.rows:
        raise BadInput(f"{table.file} has a header but no data; expected one {table.unit} for each slot.")
    timed = _has_time(table)
    columns = range(1 if timed else 0, len(table.header))
    names = _region_names(table, columns)
    labels = read_labels(table, 0) if timed else None
    counts = read_counts(table, columns, round_counts=round_counts)
    used = checked_slots(slots, len(counts), table.file)
    chosen = region_indexes(names, regions)
    if chosen is not None:
        counts, names = counts[:, chosen], tuple(names[k] for k in chosen)
    counts = counts[:used].copy()
    counts.setflags(write=False)  # every run shares this array
    model, change_var, note = series_model(counts, process_var, table.file)
    rounded = ("Fractions in the file were rounded to whole people, half to even.",) if round_counts else ()
    return FixedData(
        name=name,
        regions=names,
        slots=used,
        model=model,
        tuning=Tuning(),
        notes=(note, *rounded),
        change_var=change_var,
        slot_labels=None if labels is None else labels[:used],
        counts=counts,
    )


def write_counts(
    path: Path, counts: Counts, regions: Sequence[str], labels: Sequence[str], label_name: str = "slot"
) -> None:
    """Write a file that `counts_from_table` reads back; complete or not at all."""
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


def _region_names(table: Table, columns: Sequence[int]) -> tuple[str, ...]:
    if not columns:
        raise BadInput(f"{table.file} has no region columns beside '{table.header[0]}'; expected one for each region.")
    names = tuple(table.header[column] for column in columns)
    for column, name in zip(columns, names, strict=True):
        if not name:
            raise BadInput(f"{table.file}: column {column + 1} has no name; give each region a name in the first line.")
        if names.count(name) > 1:
            raise BadInput(f"{table.file} has two columns '{name}'; give each region a name of its own.")
    return names
