"""Claims on network density (figure 2), in Section "Estimation Utility of DPCrowd", Impact of Network Density."""

from __future__ import annotations

from dpcrowd.experiments.claims.asking import falling, level, lower, zero
from dpcrowd.experiments.claims.cases import Case, absent, curve_of, decide, on, renamed
from dpcrowd.experiments.claims.curves import Curve
from dpcrowd.experiments.claims.intervals import number
from dpcrowd.experiments.claims.reasons import falls_apart, mean_of
from dpcrowd.experiments.claims.verdict import Verdict, claim
from dpcrowd.experiments.figures.density import point
from dpcrowd.experiments.plan import Plan
from dpcrowd.experiments.run import Results

__all__ = ["CLAIMS"]


def _curve(plan: Plan, results: Results, data: str, epsilon: float, label: str, metric: str) -> Curve:
    swept = [(density, point(data, epsilon, density)) for density in plan.densities]
    return curve_of(results, swept, label, metric, "ρ")


def _strong(plan: Plan) -> float:
    return min(plan.density_epsilons)


def _weak(plan: Plan) -> float:
    return max(plan.density_epsilons)


def dfast_error_is_unchanged_by_density(plan: Plan, results: Results) -> Verdict:
    """DFAST's ARE is the same at every density.

    Section "Estimation Utility of DPCrowd", Impact of Network Density: "the ARE of DFAST remains unchanged for
    different ρ".

    The same: no two means differ by more than 20%.
    """
    cases = [
        level(f"{on(data)}, ε={epsilon:g}", _curve(plan, results, data, epsilon, "dfast", "are"))
        for data in plan.single
        for epsilon in plan.density_epsilons
    ]
    return decide([*cases, *absent(plan, "linear", "flu")], lambda: falls_apart(plan, plan.densities[0]))


def dfast_agrees_at_any_density(plan: Plan, results: Results) -> Verdict:
    """DFAST's ACE is zero at every density.

    Section "Estimation Utility of DPCrowd", Impact of Network Density: "its ACE is as small as zero".

    Zero: below a millionth of a person in every run.
    """
    cases = [
        zero(f"{on(data)}, ε={epsilon:g}", _curve(plan, results, data, epsilon, "dfast", "ace"))
        for data in plan.single
        for epsilon in plan.density_epsilons
    ]

    def reason() -> str:
        told = [falls_apart(plan, density) for density in plan.densities]
        return " ".join(text for text in told if text)

    return decide([*cases, *absent(plan, "linear", "flu")], reason)


def _falls_with_density(plan: Plan, results: Results, metric: str) -> Verdict:
    epsilon = _strong(plan)
    cases = [
        falling(f"{on(data)}, ε={epsilon:g}", _curve(plan, results, data, epsilon, "dpcrowd", metric))
        for data in plan.single
    ]
    return decide([*cases, *absent(plan, "linear", "flu")])


def dpcrowd_error_falls_with_density(plan: Plan, results: Results) -> Verdict:
    """DPCrowd's ARE falls as the network gets denser (ε=0.1).

    Section "Estimation Utility of DPCrowd", Impact of Network Density: "On both datasets, both the ARE and ACE of
    DPCrowd decrease with ρ".
    """
    return _falls_with_density(plan, results, "are")


def dpcrowd_consensus_error_falls_with_density(plan: Plan, results: Results) -> Verdict:
    """DPCrowd's ACE falls as the network gets denser (ε=0.1).

    Section "Estimation Utility of DPCrowd", Impact of Network Density: "On both datasets, both the ARE and ACE of
    DPCrowd decrease with ρ".
    """
    return _falls_with_density(plan, results, "ace")


def _insensitive(plan: Plan, results: Results, metric: str) -> Verdict:
    epsilon = _weak(plan)
    cases = [
        level(f"{on(data)}, ε={epsilon:g}", _curve(plan, results, data, epsilon, "dpcrowd", metric))
        for data in plan.single
    ]

    def reason() -> str:
        told = []
        for data in plan.single:
            ends = [point(data, epsilon, density) for density in (plan.densities[0], plan.densities[-1])]
            sparse, dense = (
                mean_of(results, p, "dpcrowd", "are") / mean_of(results, p, "central", "are") for p in ends
            )
            if sparse > 1.2 and sparse > dense:
                told.append(
                    f"on {on(data)} {number(sparse)} times at ρ={plan.densities[0]:g} and {number(dense)} times at "
                    f"ρ={plan.densities[-1]:g}"
                )
        if not told:
            return ""
        return (
            f"At ε={epsilon:g}, too, a server learns much from more neighbours: beside the ARE of a central filter "
            f"that hears all samples, DPCrowd's is {', '.join(told)}."
        )

    return decide([*cases, *absent(plan, "linear", "flu")], reason)


def dpcrowd_error_is_insensitive_to_density(plan: Plan, results: Results) -> Verdict:
    """With weak privacy (ε=1) DPCrowd's ARE does not depend on the density.

    Section "Estimation Utility of DPCrowd", Impact of Network Density: "When ε=1, both ARE and ACE are not sensitive
    to ρ".

    Not sensitive: no two means differ by more than 20%.
    """
    return _insensitive(plan, results, "are")


def dpcrowd_consensus_is_insensitive_to_density(plan: Plan, results: Results) -> Verdict:
    """With weak privacy (ε=1) DPCrowd's ACE does not depend on the density.

    Section "Estimation Utility of DPCrowd", Impact of Network Density: "When ε=1, both ARE and ACE are not sensitive
    to ρ".

    Not sensitive: no two means differ by more than 20%.
    """
    return _insensitive(plan, results, "ace")


def stronger_privacy_costs_error(plan: Plan, results: Results) -> Verdict:
    """DPCrowd's errors at ε=0.1 exceed those at ε=1, at every density.

    Section "Estimation Utility of DPCrowd", Impact of Network Density: "Both errors in the stronger privacy regime
    (ε=0.1) are larger than those in the weaker privacy regime (ε=1)".
    """

    def case(data: str, metric: str) -> Case:
        weak, strong = (
            renamed(_curve(plan, results, data, e, "dpcrowd", metric), f"at ε={e:g}")
            for e in (_weak(plan), _strong(plan))
        )
        return lower(f"{on(data)}, {metric.upper()} at ε={_weak(plan):g} below ε={_strong(plan):g}", weak, strong)

    cases = [case(data, metric) for data in plan.single for metric in ("are", "ace")]
    return decide([*cases, *absent(plan, "linear", "flu")])


def flu_is_harder_than_linear(plan: Plan, results: Results) -> Verdict:
    """DPCrowd's ARE and ACE are higher on Flu than on Linear, at every density.

    Section "Estimation Utility of DPCrowd", Impact of Network Density: "unlike Linear, the higher ARE and ACE of
    DPCrowd on Flu result from the large fluctuations".
    """

    def case(epsilon: float, metric: str) -> Case:
        easy, hard = (
            renamed(_curve(plan, results, data, epsilon, "dpcrowd", metric), on(data)) for data in ("linear", "flu")
        )
        return lower(f"ε={epsilon:g}, {metric.upper()} on Linear below Flu", easy, hard)

    return decide([case(epsilon, metric) for epsilon in plan.density_epsilons for metric in ("are", "ace")])


CLAIMS = (
    claim(dfast_error_is_unchanged_by_density, 2),
    claim(dfast_agrees_at_any_density, 2),
    claim(dpcrowd_error_falls_with_density, 2),
    claim(dpcrowd_consensus_error_falls_with_density, 2),
    claim(stronger_privacy_costs_error, 2),
    claim(dpcrowd_error_is_insensitive_to_density, 2),
    claim(dpcrowd_consensus_is_insensitive_to_density, 2),
    claim(flu_is_harder_than_linear, 2, data=("linear", "flu")),
)
