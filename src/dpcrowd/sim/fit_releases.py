"""`dpcrowd fit --releases`: fit a process model on earlier releases of a network, at no cost in privacy.

The file has one row per slot and region, as the client exports it: slot, region, estimate, and low and high, or
variance; `start`, when the slot opened, is needed for a season.
"""

from __future__ import annotations

import hashlib
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

from dpcrowd.arrays import Floats, Ints
from dpcrowd.errors import BadInput
from dpcrowd.models.estimate import fit_series
from dpcrowd.models.file import read_model, write_model
from dpcrowd.models.model import Model
from dpcrowd.models.releases import measurements, walk_of
from dpcrowd.models.season import SlotTimes
from dpcrowd.schemes.base import Z95
from dpcrowd.sim.data.tables import Table, is_number, read_table
from dpcrowd.sim.export import check_toml_path
from dpcrowd.sim.fit import checked_season, make_model

__all__ = ["fit_releases"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def fit_releases(
    file: str | os.PathLike[str],
    *,
    source: str = "earlier releases of this network",
    season: str | int = "auto",
    made_with: Model | str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] | None = None,
) -> Model:
    """Fit a process model on a table of releases.

    made_with  the process model with which they were released; None: a random walk, as without a model
    """
    if out is not None:
        check_toml_path(Path(out), "a model")
    table = read_table(Path(file))
    slots, regions, mean, variance, times = _pivot(table)
    if len(slots) < 3:
        raise BadInput(f"{table.file} has releases of {len(slots)} slots; a model needs at least 3.")
    first = int(slots[0])
    if made_with is None:
        process = walk_of(variance)
    else:
        model = made_with if isinstance(made_with, Model) else read_model(made_with)
        process = model.process_model(regions, times, first)
    value, noise = measurements(mean, variance, process)
    enough = np.isfinite(noise).sum(axis=0)
    if (enough < 3).any():
        name = regions[int(np.argmin(enough))]
        raise BadInput(
            f"{table.file} has {int(enough.min())} slots in which anything was learned about region '{name}'; a "
            "model needs "
            "at least 3."
        )
    fitted = fit_series(value, noise, times, checked_season(season), first)
    q, a = fitted.estimate.variance, fitted.estimate.transition
    level = fitted.estimate.profile.level if fitted.estimate.kind == "proportional" else 1.0
    found = make_model(
        fitted,
        regions,
        times,
        first=first,
        slots=len(slots),
        data=table.file,
        source=source,
        change_var=2.0 * q * level / (1.0 + a),
        digest=hashlib.sha256(np.ascontiguousarray(np.stack([mean, variance]), dtype="<f8").tobytes()).hexdigest(),
    )
    if out is not None:
        write_model(found, out)
    return found


def _pivot(table: Table) -> tuple[Ints, tuple[str, ...], Floats, Floats, SlotTimes | None]:
    """Return slots (T,), regions, means and variances (T, d), and when the slots begin."""
    names = {name.lower(): column for column, name in enumerate(table.header)}
    for name in ("slot", "region", "estimate"):
        if name not in names:
            raise BadInput(f"{table.file} has no column '{name}'; give releases as the client exports them.")
    if "variance" not in names and not {"low", "high"} <= names.keys():
        raise BadInput(f"{table.file} has neither 'variance' nor 'low' and 'high': releases are useless without them.")
    numbers = [_slot(table, row, names["slot"]) for row in range(len(table.rows))]
    labels = [str(cell) for cell in table.column(names["region"])]
    slots = np.arange(min(numbers), max(numbers) + 1)
    regions = tuple(dict.fromkeys(labels))
    place = {name: number for number, name in enumerate(regions)}
    mean = np.full((len(slots), len(regions)), np.nan)
    variance = np.full(mean.shape, np.inf)
    for row, (slot, label) in enumerate(zip(numbers, labels, strict=True)):
        at = slot - int(slots[0]), place[label]
        mean[at] = _number(table, row, names["estimate"])
        if "variance" in names:
            variance[at] = _number(table, row, names["variance"])
        else:
            width = _number(table, row, names["high"]) - _number(table, row, names["low"])
            variance[at] = np.square(width / (2.0 * Z95))
    variance = np.where(np.isfinite(variance) & np.isfinite(mean) & (variance > 0.0), variance, np.inf)
    mean = np.where(np.isfinite(variance), mean, 0.0)
    times = None
    if "start" in names and len(slots) > 1:
        times = _times(table, numbers, names["start"])
    return slots, regions, mean, variance, times


def _slot(table: Table, row: int, column: int) -> int:
    cell = str(table.rows[row][column]).strip()
    if not cell.isdigit():
        raise BadInput(f"{table.where(row, column)} is '{cell}', not a slot; allowed: a whole number from 0.")
    return int(cell)


def _number(table: Table, row: int, column: int) -> float:
    """Return a number; an empty cell, which the client writes while nothing is known, is NaN."""
    cell = table.rows[row][column]
    if cell is None or str(cell).strip().lower() in ("", "nan", "null", "none"):
        return float("nan")
    if not is_number(cell):
        raise BadInput(f"{table.where(row, column)} is '{cell}', not a number.")
    return float(cell)


def _times(table: Table, numbers: list[int], column: int) -> SlotTimes | None:
    """Return when slots begin, from the first and the last row."""
    rows = (int(np.argmin(numbers)), int(np.argmax(numbers)))
    moments = []
    for row in rows:
        cell = table.rows[row][column]
        try:
            moment = cell if isinstance(cell, datetime) else datetime.fromisoformat(str(cell))
        except ValueError:
            raise BadInput(
                f"{table.where(row, column)} is '{cell}', not a time; allowed: 2026-01-01T00:00:00Z."
            ) from None
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        moments.append((moment - _EPOCH) // timedelta(microseconds=1))
    first, last = (numbers[row] for row in rows)
    if last == first:
        return None
    return SlotTimes(moments[0], (moments[1] - moments[0]) // (last - first))
