"""Curves over the density, and why one that should be level is not."""

from __future__ import annotations

from dpcrowd.experiments.claims.cases import Asked, curve_of, on
from dpcrowd.experiments.claims.curves import Curve
from dpcrowd.experiments.claims.intervals import compare, number, ratio_by_run
from dpcrowd.experiments.claims.judge import FLAT
from dpcrowd.experiments.claims.reasons import versus
from dpcrowd.experiments.figures.density import point
from dpcrowd.experiments.points.plan import Plan
from dpcrowd.experiments.points.run import Results

__all__ = ["as_with_more_noise", "beside_the_limit", "density_curve", "dpcrowd_curve", "strong", "weak"]


def density_curve(plan: Plan, results: Results, data: str, epsilon: float, label: str, metric: str) -> Curve:
    """What a scheme scored over the densities."""
    swept = [(density, point(data, epsilon, density)) for density in plan.densities]
    return curve_of(results, swept, label, metric, "ρ")


def dpcrowd_curve(plan: Plan, results: Results, data: str, epsilon: float, metric: str) -> Curve:
    """ACE at densities below 1 only: at ρ=1 every server hears every other, and all agree whatever the scheme."""
    curve = density_curve(plan, results, data, epsilon, "dpcrowd", metric)
    if metric != "ace":
        return curve
    return [at for at, density in zip(curve, plan.densities, strict=True) if density < 1]


def strong(plan: Plan) -> float:
    """The ε of the stronger privacy."""
    return min(plan.density_epsilons)


def weak(plan: Plan) -> float:
    """The ε of the weaker privacy."""
    return max(plan.density_epsilons)


def beside_the_limit(plan: Plan, results: Results, asked: Asked) -> str:
    """Whether a sparse network keeps from a server what a central filter makes of the same samples."""
    epsilon, told = weak(plan), []
    for data in filter(asked.fails_on, plan.single):
        ends = [point(data, epsilon, density) for density in (plan.densities[0], plan.densities[-1])]
        sparse, dense = (versus(results, end, "dpcrowd", "central", asked.tests) for end in ends)
        if sparse is None or dense is None or not (sparse.by_ratio and dense.by_ratio):
            continue
        if sparse.interval.low > max(1 + FLAT, dense.interval.high):
            told.append(
                f"on {on(data)} {number(sparse.interval.value)} times (interval {sparse.interval}) at "
                f"ρ={plan.densities[0]:g} and {number(dense.interval.value)} times at ρ={plan.densities[-1]:g}"
            )
    if not told:
        return ""
    return (
        f"At ε={epsilon:g}, too, a server learns much from more neighbours: beside the ARE of a central filter that "
        f"hears all samples, DPCrowd's is {', '.join(told)}."
    )


def as_with_more_noise(plan: Plan, results: Results, asked: Asked) -> str:
    """The paper explains it by less noise: does ACE fall with the density more, not less, where there is less noise?"""
    told = []
    for data in filter(asked.fails_on, plan.single):
        (start, end), (_, noisy) = ends = [
            (curve[0], curve[-1])
            for curve in (dpcrowd_curve(plan, results, data, epsilon, "ace") for epsilon in (weak(plan), strong(plan)))
        ]
        if any(values.diverged for pair in ends for _, values in pair):
            continue
        kept = [ratio_by_run(last.runs, first.runs, asked.tests) for (_, first), (_, last) in ends]
        if kept[0] is None or kept[1] is None:
            continue
        gap = compare(end[1].runs * ends[1][0][1].runs, start[1].runs * noisy[1].runs, asked.tests)
        if gap is not None and gap.below:
            told.append(
                f"on {on(data)} from {start[0]} to {end[0]} to {number(kept[0].value)} times at ε={weak(plan):g} and "
                f"to {number(kept[1].value)} times at ε={strong(plan):g}"
            )
    if not told:
        return ""
    return (
        "The paper's reason, that with less noise few neighbours are enough to agree, is not borne out. ACE falls more "
        f"where there is less noise: {', '.join(told)}."
    )
