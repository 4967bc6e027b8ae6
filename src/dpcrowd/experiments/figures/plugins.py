"""Figure 10: schemes, data sets and a network of other packages beside the paper's schemes, at equal promises.

It is drawn only when users ask a reproduction to add something. Every scheme protects a complete stream: a scheme that
takes only a window gets all slots as its window, as Uniform and Sample do in the other figures.
"""

from __future__ import annotations

from collections.abc import Sequence

from dpcrowd.experiments.figures.figure import ERRORS, METRIC_NAMES, Panel, Sweep
from dpcrowd.experiments.figures.rosters import AT_ONCE, single, with_at_once
from dpcrowd.experiments.points.plan import RunPlan
from dpcrowd.experiments.points.point import Point, SchemeEntry
from dpcrowd.experiments.points.run import Results
from dpcrowd.plugins import package_of, scheme_class

__all__ = ["plugin_panels", "plugin_sweeps"]


def plugin_sweeps(plan: RunPlan) -> list[Sweep]:
    """Return sweeps of the added schemes and the paper's over the budgets; on Linear if no data set was added."""
    added = plan.added
    roster = (*single("fast", "dfast", "dpcrowd"), *_entries(added.schemes))

    def point(data: str, epsilon: float) -> Point:
        return Point(data, roster, epsilon=epsilon, density=plan.default_density, graph=added.graph)

    return [
        Sweep(data, "ε", with_at_once((epsilon, point(data, epsilon)) for epsilon in plan.epsilons))
        for data in added.data or ("linear",)
    ]


def _entries(names: Sequence[str]) -> list[SchemeEntry]:
    labels = {entry.label for entry in (*single("fast", "dfast", "dpcrowd"), AT_ONCE)}
    entries = {}
    for name in names:
        scheme = scheme_class(name)
        if scheme.name not in labels:
            entries[scheme.name] = SchemeEntry(scheme.name, name, stream_window=scheme.kinds == frozenset({"window"}))
    return list(entries.values())


def plugin_panels(sweeps: Sequence[Sweep], results: Results) -> list[Panel]:
    """Return one row per sweep, ARE and ACE; the curve of another package's scheme says who makes its promise."""
    return [
        Panel(
            f"{sweep.name}: {metric.upper()}",
            "privacy budget ε",
            METRIC_NAMES[metric],
            tuple(sweep.curve(results, label, metric, _note(sweep, results, label)) for label in sweep.labels),
            row=row,
        )
        for row, sweep in enumerate(sweeps)
        for metric in ERRORS
    ]


def _note(sweep: Sweep, results: Results, label: str) -> str:
    """Return "claimed by PACKAGE" or "promised by PACKAGE"; an empty text for dpcrowd's own schemes."""
    point = sweep.of(label)[0][1]
    (name,) = (entry.scheme for entry in point.entries if entry.label == label)
    promise = results[point].guarantees[label]
    return "" if promise is None or package_of(scheme_class(name)) is None else promise.partition(",")[0]
