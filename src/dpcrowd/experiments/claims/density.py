"""Claims on network density (figure 2), in Section "Estimation Utility of DPCrowd", Impact of Network Density."""

from __future__ import annotations

from dpcrowd.experiments.claims.asking import falling, level, lower, zero
from dpcrowd.experiments.claims.cases import Asked, Case, decide, on, renamed
from dpcrowd.experiments.claims.density_curves import (
    as_with_more_noise,
    beside_the_limit,
    density_curve,
    dpcrowd_curve,
    strong,
    weak,
)
from dpcrowd.experiments.claims.reasons import falls_apart
from dpcrowd.experiments.claims.verdict import Verdict, claim
from dpcrowd.experiments.points.plan import Plan
from dpcrowd.experiments.points.run import Results

__all__ = ["CLAIMS"]


def dfast_error_is_unchanged_by_density(plan: Plan, results: Results) -> Verdict:
    """DFAST's ARE is the same at every density.

    Section "Estimation Utility of DPCrowd", Impact of Network Density: "the ARE of DFAST remains unchanged for
    different ρ".

    The same: at no density more than 1.2 times what it is at another.
    """
    cases = [
        level(f"{on(data)}, ε={epsilon:g}", density_curve(plan, results, data, epsilon, "dfast", "are"))
        for data in plan.single
        for epsilon in plan.density_epsilons
    ]
    return decide(cases, lambda _: falls_apart(plan, plan.densities[0]))


def dfast_agrees_at_any_density(plan: Plan, results: Results) -> Verdict:
    """DFAST's ACE is zero at every density.

    Section "Estimation Utility of DPCrowd", Impact of Network Density: "its ACE is as small as zero".

    Zero: below a millionth of a person in every run.
    """
    cases = [
        zero(f"{on(data)}, ε={epsilon:g}", density_curve(plan, results, data, epsilon, "dfast", "ace"))
        for data in plan.single
        for epsilon in plan.density_epsilons
    ]

    def reason(_: Asked) -> str:
        told = [falls_apart(plan, density) for density in plan.densities]
        return " ".join(text for text in told if text)

    return decide(cases, reason)


def _falls_with_density(plan: Plan, results: Results, metric: str) -> Verdict:
    epsilon = strong(plan)
    cases = [
        falling(f"{on(data)}, ε={epsilon:g}", dpcrowd_curve(plan, results, data, epsilon, metric))
        for data in plan.single
    ]
    return decide(cases)


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

    Judged at densities below 1: at ρ=1 every server hears every other, and ACE is 0 whatever the scheme.
    """
    return _falls_with_density(plan, results, "ace")


def _insensitive(plan: Plan, results: Results, metric: str) -> Verdict:
    epsilon = weak(plan)
    cases = [
        level(f"{on(data)}, ε={epsilon:g}", dpcrowd_curve(plan, results, data, epsilon, metric)) for data in plan.single
    ]

    return decide(
        cases, lambda asked: (beside_the_limit if metric == "are" else as_with_more_noise)(plan, results, asked)
    )


def dpcrowd_error_is_insensitive_to_density(plan: Plan, results: Results) -> Verdict:
    """With weak privacy (ε=1) DPCrowd's ARE does not depend on the density.

    Section "Estimation Utility of DPCrowd", Impact of Network Density: "When ε=1, both ARE and ACE are not sensitive
    to ρ".

    Not sensitive: at no density more than 1.2 times what it is at another.
    """
    return _insensitive(plan, results, "are")


def dpcrowd_consensus_is_insensitive_to_density(plan: Plan, results: Results) -> Verdict:
    """With weak privacy (ε=1) DPCrowd's ACE does not depend on the density.

    Section "Estimation Utility of DPCrowd", Impact of Network Density: "When ε=1, both ARE and ACE are not sensitive
    to ρ".

    Not sensitive: at no density more than 1.2 times what it is at another. Judged at densities below 1: at ρ=1 every
    server hears every other, and ACE is 0 whatever the scheme.
    """
    return _insensitive(plan, results, "ace")


def stronger_privacy_costs_error(plan: Plan, results: Results) -> Verdict:
    """DPCrowd's errors at ε=0.1 exceed those at ε=1, at every density.

    Section "Estimation Utility of DPCrowd", Impact of Network Density: "Both errors in the stronger privacy regime
    (ε=0.1) are larger than those in the weaker privacy regime (ε=1)".

    ACE is judged at densities below 1: at ρ=1 every server hears every other, and ACE is 0 whatever the scheme.
    """

    def case(data: str, metric: str) -> Case:
        low, high = (
            renamed(dpcrowd_curve(plan, results, data, epsilon, metric), f"at ε={epsilon:g}")
            for epsilon in (weak(plan), strong(plan))
        )
        return lower(f"{on(data)}, {metric.upper()} at ε={weak(plan):g} below ε={strong(plan):g}", low, high)

    cases = [case(data, metric) for data in plan.single for metric in ("are", "ace")]
    return decide(cases)


def flu_is_harder_than_linear(plan: Plan, results: Results) -> Verdict:
    """DPCrowd's ARE and ACE are higher on Flu than on Linear, at every density.

    Section "Estimation Utility of DPCrowd", Impact of Network Density: "unlike Linear, the higher ARE and ACE of
    DPCrowd on Flu result from the large fluctuations".

    ACE is judged at densities below 1: at ρ=1 every server hears every other, and ACE is 0 whatever the scheme.
    """

    def case(epsilon: float, metric: str) -> Case:
        easy, hard = (
            renamed(dpcrowd_curve(plan, results, data, epsilon, metric), on(data)) for data in ("linear", "flu")
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
