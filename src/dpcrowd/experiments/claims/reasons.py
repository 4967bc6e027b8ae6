"""Likely reasons, each worked out from the results or from what they stand on; never a guess without a number.

Where a reason compares, it takes the intervals of the claim: what they do not decide is not said.
"""

from __future__ import annotations

import numpy as np

from dpcrowd.experiments.claims.cases import name_of, on, values_of
from dpcrowd.experiments.claims.intervals import Gap, compare, number
from dpcrowd.experiments.points.plan import Plan
from dpcrowd.experiments.points.point import Point
from dpcrowd.experiments.points.run import Results
from dpcrowd.network.costs import components
from dpcrowd.network.random_graph import RandomGraph

__all__ = [
    "LESS_OFTEN",
    "LITTLE_TO_GROUP",
    "against_the_limit",
    "falls_apart",
    "few_neighbours",
    "mean_of",
    "overpaid",
    "overpayment",
    "unspent",
    "versus",
]

_DRAWN = 200
_LIMIT = "central"
LESS_OFTEN = (
    "Likely: the accounting and the network. Under the sound ledger DPCrowd+ can pay for fewer samples than under the "
    "paper's, and estimates drift apart between them; grouping takes noise out of small regions, while most of the "
    "ACE, which counts people, comes from large ones."
)
LITTLE_TO_GROUP = (
    "Likely: the data. Grouping helps where regions have few people; most regions of Multi-Linear have many, and there "
    "is little to gain."
)


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


def few_neighbours(plan: Plan) -> str:
    """What to suspect where servers agree less than the paper says."""
    heard = plan.default_density * (plan.servers - 1)
    return (
        f"Likely: a parameter. The paper gives neither the density nor the consensus step of this figure. At "
        f"ρ={plan.default_density:g} a server hears {heard:.2g} others on average, and figure 2 shows that more "
        "neighbours bring servers closer."
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


def versus(results: Results, point: Point, first: str, second: str, tests: int, metric: str = "are") -> Gap | None:
    """Two schemes at a point, with the interval that the claim itself would take; None where a run diverged."""
    a, b = (values_of(results, point, label, metric) for label in (first, second))
    return None if a.diverged or b.diverged else compare(a.runs, b.runs, tests)


def against_the_limit(results: Results, point: Point, mine: str, rival: str, where: str, tests: int) -> str:
    """Whether the samples or the fusion are to blame: the central filter hears all samples of `mine` at once.

    Only if `mine` is shown to lose to its rival and to the central filter, and these two are shown to differ.
    """
    lost, apart, limit = (
        versus(results, point, *pair, tests) for pair in ((mine, rival), (mine, _LIMIT), (_LIMIT, rival))
    )
    if lost is None or apart is None or limit is None or not (lost.above and apart.above):
        return ""
    if limit.above:
        return (
            f"{where}: even a central filter that hears all samples of {name_of(mine)} has a higher ARE than "
            f"{name_of(rival)} ({limit}): what is sampled, and at what ε, decides here, not whom a server hears."
        )
    if limit.below:
        return (
            f"{where}: a central filter that hears all samples of {name_of(mine)} has a lower ARE than "
            f"{name_of(rival)} ({limit}), {name_of(mine)} a higher one ({lost}): what it loses, it loses by hearing "
            "only neighbours."
        )
    return ""


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
