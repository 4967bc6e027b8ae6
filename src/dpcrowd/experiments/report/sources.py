"""The sources of the data, data sets that are missing, and the data on which the parameters were tuned."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dpcrowd.experiments.figures.figure import DATA_NAMES
from dpcrowd.experiments.points.plan import RunPlan
from dpcrowd.experiments.report.parameters import Table
from dpcrowd.sim.data import PAPER_SETS, DataSet
from dpcrowd.sim.data.catalog import CATALOG
from dpcrowd.sim.data.series import FROM_WHOLE_SERIES
from dpcrowd.sim.data.span import is_drawn_anew
from dpcrowd.sim.tuned import Tuned

__all__ = ["MissingData", "data_notes", "data_table", "missing_data", "origins", "unused_tuning"]


@dataclass(frozen=True)
class MissingData:
    """A data set that was not found, and how to get it."""

    name: str
    text: str


def data_table(plan: RunPlan) -> Table:
    """Return the sources and licences of the paper's sets."""
    rows = [
        [
            DATA_NAMES.get(entry.name, entry.name),
            f"{entry.slots} × {entry.regions}",
            entry.what,
            entry.source,
            entry.terms,
            "used" if entry.name in plan.data else "missing",
        ]
        for entry in CATALOG
        if entry.name in PAPER_SETS
    ]
    return Table("Data sets", ["Data set", "Slots × regions", "What it is", "Source", "Licence", "Here"], rows)


def data_notes(plan: RunPlan) -> dict[str, list[str]]:
    """Return the notes on the sets in use, by name; the note of a tuning file stands with the parameters."""
    notes = {
        DATA_NAMES.get(name, name): [
            note for note in data.notes if name not in plan.tuned or note != plan.tuned[name].note(data)
        ]
        for name, data in plan.data.items()
    }
    return {name: texts for name, texts in notes.items() if texts}


def missing_data(plan: RunPlan) -> list[MissingData]:
    """Return the sets that were not found."""
    home = str(Path.home())  # the folders of whoever made the report are private
    return [MissingData(DATA_NAMES.get(name, name), text.replace(home, "~")) for name, text in plan.missing.items()]


def origins(plan: RunPlan) -> dict[str, str]:
    """Return for each set in use where its parameters come from, and whether from the span that is reported."""
    return {DATA_NAMES.get(name, name): _origin(data, plan.tuned.get(name)) for name, data in plan.data.items()}


def unused_tuning(plan: RunPlan) -> list[str]:
    """Return the tuning files of data sets that were not found."""
    return [file.file for name, file in plan.tuned.items() if name not in plan.data]


def _origin(data: DataSet, tuned: Tuned | None) -> str:
    if tuned is not None:
        covered = f" Its 95% intervals covered {tuned.coverage_after:.0%} there." if tuned.coverage_after >= 0 else ""
        return f"{tuned.note(data)} It was tuned on {tuned.on.removesuffix('.')}.{covered}"
    if is_drawn_anew(data):
        return "Q (and A) are those of the process that draws the data: known exactly, not tuned."
    if FROM_WHOLE_SERIES in data.notes:
        return (
            f"Q is the mean square of the one-step changes of the complete series, all {data.slots} slots that are "
            "reported here, including the future: it is in-sample. A = 1."
        )
    return "Q was given by hand; see the notes on the data."
