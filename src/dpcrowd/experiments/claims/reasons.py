"""Likely reasons, each worked out from the results or from what they stand on; never a guess without a number."""

from __future__ import annotations

import numpy as np

from dpcrowd.experiments.claims.cases import name_of, on
from dpcrowd.experiments.claims.intervals import number
from dpcrowd.experiments.plan import Plan
from dpcrowd.experiments.point import Point
from dpcrowd.experiments.run import Results
from dpcrowd.network.costs import components
from dpcrowd.network.random_graph import RandomGraph

__all__ = ["against_the_limit", "falls_apart", "mean_of", "overpaid", "overpayment", "unspent"]

_DRAWN = 200


def mean_of(results: Results, point: Point, label: str, metric: str) -> float:
    """Over the runs; NaN if one of them diverged."""
    return float(np.mean(getattr(results[point][label], metric)))


def falls_apart(plan: Plan, density: float) -> str:
    """How often a random network of some density is not connected, by drawing some."""
    drawn = RandomGraph(plan.servers, density, None).draw_unions([np.random.default_rng(plan.seed)], _DRAWN)
    split = sum(int(components(graph).max()) > 0 for graph in drawn)
    if not split:
        return ""
    return (
        f"At ρ={density:g}, {split / _DRAWN:.1%} of {_DRAWN} networks drawn are not connected: in such a slot flooding "
        "reaches only the servers of one part, and the parts differ."
    )


def unspent(plan: Plan, results: Results, point: Point, label: str) -> str:
    """How much of its budget adaptive sampling leaves: it pays ε/T_s a sample, for at most T_s samples."""
    allowed = plan.data[point.data].tuning.sample_fraction
    used = mean_of(results, point, label, "frequency")
    if not used < 0.95 * allowed:
        return ""
    return (
        f"{name_of(label)} samples {used:.1%} of the slots on {on(point.data)} where {allowed:.0%} are paid for: "
        f"{1 - used / allowed:.0%} of its budget is never spent."
    )


def against_the_limit(results: Results, point: Point, mine: str, rival: str, where: str) -> str:
    """Whether the samples or the fusion are to blame: the central filter hears all samples of `mine` at once."""
    own, other, limit = (mean_of(results, point, label, "are") for label in (mine, rival, "central"))
    if not (np.isfinite([own, other, limit]).all() and own > other and own > limit):
        return ""  # a limit that is not below says nothing about the fusion
    if limit > other:
        return (
            f"{where}: even a central filter that hears all samples of {name_of(mine)} has ARE {number(limit)}, above "
            f"{name_of(rival)}'s {number(other)}: what is sampled, and at what ε, decides here, not whom a "
            "server hears."
        )
    return (
        f"{where}: a central filter that hears all samples of {name_of(mine)} has ARE {number(limit)}, below "
        f"{name_of(rival)}'s {number(other)}: hearing only neighbours ({number(own)}) costs more than the samples do."
    )


def overpayment(results: Results, point: Point, label: str) -> float:
    """The largest multiple of ε that a user who moves between regions paid in any run."""
    paid = results[point][label].paid
    return max((p.epsilons()["moving"] / point.epsilon for p in paid), default=0.0)


def overpaid(results: Results, points: list[Point], labels: tuple[str, ...]) -> str:
    """What moving users really pay under the paper's ledger; nothing where it is what was promised."""
    if not points or points[0].accounting == "sound":
        return ""
    most = {label: max(overpayment(results, point, label) for point in points) for label in labels}
    told = ", ".join(f"{name_of(label)} {number(times)} ε" for label, times in most.items() if times > 1.0)
    return f"A moving user really pays up to: {told}." if told else ""
