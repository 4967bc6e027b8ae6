"""Where the data come from, what is missing, and on what the parameters were tuned."""

from __future__ import annotations

from pathlib import Path

from dpcrowd.experiments.figures.figure import DATA_NAMES
from dpcrowd.experiments.points.plan import Plan
from dpcrowd.experiments.report.html import Html, items, join, table, tag, terms
from dpcrowd.sim.data import DataSet
from dpcrowd.sim.data.catalog import CATALOG
from dpcrowd.sim.data.series import FROM_WHOLE_SERIES
from dpcrowd.sim.data.span import is_drawn_anew
from dpcrowd.sim.tuned import Tuned

__all__ = ["data_section", "tuned_section"]

_DEFAULTS = (
    "All other parameters are those of the paper's table, where it has them. The paper chose them by minimising the "
    "error on its own data: for the real series that is the span reported here, as far as its weeks are known."
)


def data_section(plan: Plan) -> Html:
    """Sources and licences, and the notes of the sets in use."""
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
    ]
    head = ["Data set", "Slots × regions", "What it is", "Source", "Licence", "Here"]
    noted = [(DATA_NAMES.get(name, name), items(notes)) for name in plan.data if (notes := _notes(plan, name))]
    parts = [table("Data sets", head, rows), _missing(plan)]
    if noted:
        parts += [tag("h3", "Notes"), terms(noted)]
    return join(parts)


def _notes(plan: Plan, name: str) -> list[str]:
    """Of a set in use; what its tuning file has to say is told with the parameters."""
    data, tuned = plan.data[name], plan.tuned.get(name)
    return [note for note in data.notes if tuned is None or note != tuned.told(data)]


def _missing(plan: Plan) -> Html:
    """What is missing and how to get it; nothing if all is there."""
    if not plan.missing:
        return Html("")
    home = str(Path.home())  # of whoever made the report: nobody else's business
    told = ((DATA_NAMES.get(name, name), text.replace(home, "~")) for name, text in plan.missing.items())
    return tag(
        "div",
        tag("p", tag("strong", "Missing, and how to get it:")),
        items(join([tag("b", name), f": {text}"]) for name, text in told),
        class_="notice",
    )


def tuned_section(plan: Plan) -> Html:
    """For each set in use: where its parameters come from, and whether that is the span reported."""
    told = [
        (DATA_NAMES.get(name, name), tag("p", _origin(data, plan.tuned.get(name)))) for name, data in plan.data.items()
    ]
    unused = [file.file for name, file in plan.tuned.items() if name not in plan.data]
    parts = [tag("p", "Nothing was tuned while this report was made."), terms(told)]
    if any(name not in plan.tuned for name in plan.data):
        parts.append(tag("p", _DEFAULTS))
    if unused:
        parts.append(tag("p", f"Given but not used, since their data are missing: {', '.join(unused)}."))
    return join(parts)


def _origin(data: DataSet, tuned: Tuned | None) -> str:
    if tuned is not None:
        return f"{tuned.told(data)} It was tuned on {tuned.on.removesuffix('.')}."
    if is_drawn_anew(data):
        return "Q (and A) are those of the process that draws the data: known exactly, not tuned."
    if FROM_WHOLE_SERIES in data.notes:
        return (
            f"Q is the mean square of the one-step changes of the whole series, all {data.slots} slots that are "
            "reported here, future included: it is in-sample. A = 1."
        )
    return "Q was given by hand; see the notes on the data."
