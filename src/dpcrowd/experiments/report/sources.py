"""The sources of the data, data sets that are missing, and the data on which the parameters were tuned."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpcrowd.experiments.figures.figure import DATA_NAMES
from dpcrowd.experiments.points.plan import RunPlan
from dpcrowd.experiments.report.parameters import PageTable
from dpcrowd.models.model import Model
from dpcrowd.sim.data import PAPER_SETS, DataSet
from dpcrowd.sim.data.catalog import CATALOG
from dpcrowd.sim.data.series import FROM_WHOLE_SERIES
from dpcrowd.sim.data.span import is_drawn_anew
from dpcrowd.sim.fitted import apply_model, in_sample_note, model_note, overlap
from dpcrowd.sim.tuned import Tuned

__all__ = ["MissingData", "data_notes", "data_table", "missing_data", "models_in_use", "origins", "unused_tuning"]


BURN_IN = 20
"""Slots at the beginning that are not scored: the default of every simulation."""


@dataclass(frozen=True)
class MissingData:
    """A data set that was not found, and how to get it."""

    name: str
    text: str


def data_table(plan: RunPlan) -> PageTable:
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
    return PageTable("Data sets", ["Data set", "Slots × regions", "What it is", "Source", "Licence", "Here"], rows)


def data_notes(plan: RunPlan) -> dict[str, list[str]]:
    """Return the notes on the sets in use, by name; what was tuned or fitted stands with the parameters."""
    return {DATA_NAMES.get(name, name): list(data.notes) for name, data in plan.data.items() if data.notes}


def missing_data(plan: RunPlan) -> list[MissingData]:
    """Return the sets that were not found."""
    home = str(Path.home())  # the folders of whoever made the report are private
    return [MissingData(DATA_NAMES.get(name, name), text.replace(home, "~")) for name, text in plan.missing.items()]


def origins(plan: RunPlan) -> dict[str, str]:
    """Return for each set in use where its parameters come from, and whether from the span that is reported."""
    return {
        DATA_NAMES.get(name, name): " ".join(_origins(data, plan.tuned.get(name, ()), plan.models.get(name)))
        for name, data in plan.data.items()
    }


def models_in_use(plan: RunPlan) -> list[dict[str, Any]]:
    """Return the process models that filters know, by the names that `dpcrowd simulate --json` has for them."""
    used = [(name, model) for name, model in plan.models.items() if name in plan.data]
    return [
        {
            "data": name,
            "model": model.file,
            "model_source": model.source,
            **({"model_earlier_sources": list(model.earlier_sources)} if model.earlier_sources else {}),
            "model_span": model.span,
            "model_season": str(model.season),
            "in_sample_slots": overlap(model, apply_model(model, plan.data[name]), BURN_IN),
        }
        for name, model in used
    ]


def unused_tuning(plan: RunPlan) -> list[str]:
    """Return the tuning files of data sets that were not found."""
    tuned = [file.file for name, files in plan.tuned.items() if name not in plan.data for file in files]
    return tuned + [model.file for name, model in plan.models.items() if name not in plan.data]


def _origins(data: DataSet, tuned: Iterable[Tuned], model: Model | None) -> Iterator[str]:
    """Yield the sentences on a data set: its own parameters, those of a model, and what was tuned for a scheme."""
    if model is None:
        yield _own(data)
    else:
        data = apply_model(model, data)
        yield f"{model_note(model)[:1].upper()}{model_note(model)[1:]}"
        text = in_sample_note(model, overlap(model, data, BURN_IN))
        if text is not None:
            yield f"{text[:1].upper()}{text[1:]}"
    for one in tuned:
        covered = f" Its 95% intervals covered {one.coverage_after:.0%} there." if one.coverage_after >= 0 else ""
        values = ", ".join(f"{name} = {value:g}" for name, value in one.tuning.items())
        listed = f" {values[:1].upper()}{values[1:]}." if values else ""
        yield (
            f"{' '.join([one.note(data, f'of {one.scheme}', BURN_IN), *one.other_model_notes(model)])} "
            f"It was tuned on {one.on.removesuffix('.')}.{covered}{listed} Other schemes do not get these parameters."
        )


def _own(data: DataSet) -> str:
    if is_drawn_anew(data):
        return "Q (and A) are those of the process that draws the data: known exactly, not tuned."
    if FROM_WHOLE_SERIES in data.notes:
        return (
            f"Q is the mean square of the one-step changes of the complete series, all {data.slots} slots that are "
            "reported here, including the future: it is in-sample. A = 1."
        )
    return "Q was given by hand; see the notes on the data."
