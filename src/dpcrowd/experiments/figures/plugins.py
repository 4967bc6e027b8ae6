"""Figure 10: schemes, data sets and a network of other packages beside the paper's schemes, at equal promises.

It is drawn only when a reproduction is asked to add something. Every scheme protects a whole stream: one that takes a
window only gets all slots as its window, as Uniform and Sample do in the other figures.
"""

from __future__ import annotations

from dataclasses import replace

from dpcrowd.experiments.figures.figure import DATA_NAMES, METRIC_NAMES, Curve, Figure, Panel, sweep
from dpcrowd.experiments.plan import Plan
from dpcrowd.experiments.point import Entry, Point
from dpcrowd.experiments.rosters import single
from dpcrowd.experiments.run import Results
from dpcrowd.plugins import package_of, scheme_class

__all__ = ["FIGURE"]


def _roster(plan: Plan) -> tuple[Entry, ...]:
    known = single("fast", "dfast", "dpcrowd")
    labels = {entry.label for entry in known}
    added = []
    for name in plan.added.schemes:
        scheme = scheme_class(name)
        if scheme.name not in labels:
            labels.add(scheme.name)
            added.append(Entry(scheme.name, name, whole=scheme.kinds == frozenset({"window"})))
    return (*known, *added)


def _point(plan: Plan, data: str, epsilon: float) -> Point:
    return Point(data, _roster(plan), epsilon=epsilon, density=plan.default_density, graph=plan.added.graph)


def _data(plan: Plan) -> tuple[str, ...]:
    return plan.added.data or ("linear",)


def _points(plan: Plan) -> list[Point]:
    return [_point(plan, data, epsilon) for data in _data(plan) for epsilon in plan.epsilons]


def _panels(plan: Plan, results: Results) -> list[Panel]:
    panels = []
    for row, data in enumerate(_data(plan)):
        points = [(epsilon, _point(plan, data, epsilon)) for epsilon in plan.epsilons]
        promises = results[points[0][1]].guarantees
        for metric in ("are", "ace"):
            curves = sweep(results, points, metric, [entry.label for entry in _roster(plan)])
            noted = tuple(_noted(curve, plan, promises[curve.label]) for curve in curves)
            title = f"{DATA_NAMES.get(data, data)}: {metric.upper()}"
            panels.append(Panel(title, "privacy budget ε", METRIC_NAMES[metric], noted, row=row))
    return panels


def _noted(curve: Curve, plan: Plan, promise: str | None) -> Curve:
    """The curve of another package's scheme says who makes its promise: "claimed by PACKAGE", or "promised by"."""
    names = {entry.label: entry.scheme for entry in _roster(plan)}
    if package_of(scheme_class(names[curve.label])) is None or promise is None:
        return curve
    return replace(curve, note=promise.partition(",")[0])


FIGURE = Figure(
    10,
    "plugins",
    "Schemes, data and networks of other packages",
    "none: what was added to this report",
    _points,
    _panels,
    "ε for all check-ins of a user at one server over the whole stream. A scheme of another package is named with that "
    "package, which answers for its promise: it is 'promised by' the package where the scheme passes dpcrowd's checks, "
    "and 'claimed by' it where it does not.",
)
