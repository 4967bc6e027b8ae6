"""Results on disk: one Parquet file per batch of runs of a point, so that interrupted work can be resumed.

A file is written under another name and then renamed: it is complete or absent. A file that cannot be read nevertheless
counts as absent, and its runs are repeated.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dpcrowd.privacy import Paid
from dpcrowd.sim.export import parquet_library, refuse_failed_write
from dpcrowd.sim.recorder import RunRecords
from dpcrowd.sim.result import METRICS, merge_records

__all__ = ["Store"]

_NUMBERS = (*METRICS, "missing")
_BY_SLOT = ("are_by_slot", "ace_by_slot")
_PAID = ("staying", "moving", "roaming")
_PURPOSE = "storing results on disk"


class Store:
    """A folder with one folder per point, named by its key."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        parquet_library(_PURPOSE)  # raises at once if pyarrow is missing, not after the first batch

    def runs_on_disk(self, key: str) -> set[int]:
        """Return the runs of a point that are on disk."""
        return {run for path in self._files(key) for run in _runs(path)}

    def write(self, key: str, records: Sequence[RunRecords], *, by_slot: bool) -> None:
        """Store one batch: the records of every scheme of the point, on the same runs."""
        arrow, parquet = parquet_library()
        runs = records[0].runs.tolist()
        columns: dict[str, list[Any]] = {name: [] for name in _columns(by_slot)}
        for record in records:
            columns["label"] += [record.label] * len(runs)
            columns["run"] += record.runs.tolist()
            for name in _NUMBERS:
                columns[name] += getattr(record, name).tolist()
            for name in _PAID:
                columns[name] += [getattr(payment, name) for payment in record.paid] or [None] * len(runs)
            columns["seconds"] += [record.seconds / len(runs)] * len(runs)
            columns["server_slots"] += [record.server_slots // len(runs)] * len(runs)
            for name in _BY_SLOT if by_slot else ():
                columns[name] += getattr(record, name).tolist()
        # The schema is explicit: a scheme without privacy has no payments, and would leave columns without a type.
        types = {"label": arrow.string(), "run": arrow.int64(), "server_slots": arrow.int64()}
        types |= dict.fromkeys(_PAID, arrow.int64()) | dict.fromkeys(_BY_SLOT, arrow.list_(arrow.float64()))
        schema = arrow.schema([(name, types.get(name, arrow.float64())) for name in columns])
        schema = schema.with_metadata({"runs": json.dumps(runs)})
        path = self.folder / key / f"{runs[0]:06d}-{runs[-1]:06d}-{len(runs)}.parquet"
        partial = path.with_suffix(f".{os.getpid()}.part")
        with refuse_failed_write(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            parquet.write_table(arrow.table(columns, schema=schema), partial)
            os.replace(partial, path)

    def read(self, key: str, runs: int) -> dict[str, RunRecords]:
        """Return the records of runs 0 to `runs` - 1 of a point, by label."""
        parts: dict[str, list[RunRecords]] = {}
        read_runs: set[int] = set()
        for path in self._files(key):
            for record in _read(path, read_runs, runs):
                parts.setdefault(record.label, []).append(record)
            read_runs.update(_runs(path))
        return {label: merge_records(records) for label, records in parts.items()}

    def _files(self, key: str) -> list[Path]:
        return [path for path in sorted((self.folder / key).glob("*.parquet")) if _runs(path)]


def _columns(by_slot: bool) -> tuple[str, ...]:
    return ("label", "run", *_NUMBERS, *_PAID, "seconds", "server_slots", *(_BY_SLOT if by_slot else ()))


def _runs(path: Path) -> list[int]:
    """Return the runs in a file; none if it is damaged."""
    arrow, parquet = parquet_library()
    try:
        metadata = parquet.read_schema(path).metadata or {}
        return [int(run) for run in json.loads(metadata[b"runs"])]
    except (arrow.ArrowInvalid, OSError, KeyError, ValueError):
        return []


def _read(path: Path, read_runs: set[int], limit: int) -> list[RunRecords]:
    """Return the records of a file, without runs that were read already and without runs from `limit` on."""
    _, parquet = parquet_library()
    # One file, not a data set: folder names must not become columns.
    table = parquet.ParquetFile(path).read().to_pydict()
    labels = list(dict.fromkeys(table["label"]))
    records = []
    for label in labels:
        rows = [
            row
            for row, (name, run) in enumerate(zip(table["label"], table["run"], strict=True))
            if name == label and run not in read_runs and run < limit
        ]
        if not rows:
            continue
        columns = {name: [values[row] for row in rows] for name, values in table.items()}
        payments = zip(*(columns[name] for name in _PAID), strict=True)
        no_slots = np.full((len(rows), 0), np.nan)
        numbers: dict[str, Any] = {name: np.array(columns[name], dtype=np.float64) for name in _NUMBERS}
        for name in _BY_SLOT:
            numbers[name] = np.array(columns[name], dtype=np.float64) if name in columns else no_slots
        records.append(
            RunRecords(
                label=label,
                runs=np.array(columns["run"], dtype=np.int64),
                paid=tuple(Paid(*amounts) for amounts in payments if amounts[0] is not None),
                seconds=sum(columns["seconds"]),
                server_slots=sum(columns["server_slots"]),
                **numbers,
            )
        )
    return records
