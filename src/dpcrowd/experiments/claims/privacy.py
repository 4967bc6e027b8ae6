"""Claims on the privacy budget (figure 4), in Section "Estimation Utility of DPCrowd", Tradeoff."""

from __future__ import annotations

from dpcrowd.experiments.claims.asking import falling, far_lower, lower, nearly_none, under, zero
from dpcrowd.experiments.claims.cases import Asked, curve_of, decide, decide_most, name_of, on, renamed
from dpcrowd.experiments.claims.curves import Curve
from dpcrowd.experiments.claims.reasons import against_the_limit, falls_apart, few_neighbours
from dpcrowd.experiments.claims.verdict import Verdict, claim
from dpcrowd.experiments.figures.epsilon import point
from dpcrowd.experiments.points.plan import Plan
from dpcrowd.experiments.points.run import Results

__all__ = ["CLAIMS", "epsilon_curve"]


def epsilon_curve(plan: Plan, results: Results, data: str, label: str, metric: str) -> Curve:
    """What a scheme scored over the budgets."""
    return curve_of(results, [(epsilon, point(plan, data, epsilon)) for epsilon in plan.epsilons], label, metric, "ε")


def error_falls_with_epsilon(plan: Plan, results: Results) -> Verdict:
    """The ARE of FAST, DFAST and DPCrowd falls as ε grows.

    Section "Estimation Utility of DPCrowd", Tradeoff between Utility and Privacy: "All AREs decrease with ε".
    """
    cases = [
        falling(f"{on(data)}, {name_of(label)}", epsilon_curve(plan, results, data, label, "are"))
        for data in plan.single
        for label in ("fast", "dfast", "dpcrowd")
    ]
    return decide(cases)


def communication_beats_none(plan: Plan, results: Results) -> Verdict:
    """DPCrowd and DFAST have a lower ARE than FAST at every ε.

    Section "Estimation Utility of DPCrowd", Tradeoff between Utility and Privacy: "the ARE of DPCrowd and DFAST is
    consistently lower than that of FAST".
    """
    cases = [
        lower(
            f"{on(data)}, {name_of(label)} below FAST",
            epsilon_curve(plan, results, data, label, "are"),
            epsilon_curve(plan, results, data, "fast", "are"),
        )
        for data in plan.single
        for label in ("dpcrowd", "dfast")
    ]
    return decide(cases)


def dpcrowd_beats_dfast_mostly(plan: Plan, results: Results) -> Verdict:
    """DPCrowd has a lower ARE than DFAST in most cases.

    Section "Estimation Utility of DPCrowd", Tradeoff between Utility and Privacy: "DPCrowd incurs less ARE than DFAST
    in most cases".

    Most: significantly at more than half of all budgets, over the data sets together.
    """
    cases = [
        under(f"{on(data)}, {at}", mine, other)
        for data in plan.single
        for (at, mine), (_, other) in zip(
            *(epsilon_curve(plan, results, data, label, "are") for label in ("dpcrowd", "dfast")), strict=True
        )
    ]

    def reason(asked: Asked) -> str:
        told = [
            against_the_limit(results, point(plan, data, e), "dpcrowd", "dfast", f"{on(data)}, ε={e:g}", asked.tests)
            for data in plan.single
            for e in plan.epsilons
        ]
        return next((text for text in told if text), "")

    return decide_most(cases, reason)


def linear_is_easiest(plan: Plan, results: Results) -> Verdict:
    """The ARE of each scheme is lower on Linear than on Flu at every ε.

    Section "Estimation Utility of DPCrowd", Tradeoff between Utility and Privacy: "[Linear] has the lowest ARE as the
    synthetic Linear perfectly follows the known process model. Whereas Flu have more fluctuations".
    """

    def on_set(data: str, label: str) -> Curve:
        return renamed(epsilon_curve(plan, results, data, label, "are"), on(data))

    cases = [
        lower(f"{name_of(label)}, Linear below Flu", on_set("linear", label), on_set("flu", label))
        for label in ("fast", "dfast", "dpcrowd")
    ]
    return decide(cases)


def dfast_agrees_at_any_epsilon(plan: Plan, results: Results) -> Verdict:
    """DFAST's servers have almost the same estimates and no consensus error, at every ε.

    Section "Estimation Utility of DPCrowd", Tradeoff between Utility and Privacy: "DFAST can achieve almost the same
    estimation for all servers and therefore incurs no consensus error".

    Almost the same: its ACE is less than 1% of FAST's. None: below a millionth of a person in every run. Both are
    asked.
    """
    cases = []
    for data in plan.single:
        mine, other = (epsilon_curve(plan, results, data, label, "ace") for label in ("dfast", "fast"))
        cases += [nearly_none(f"{on(data)}, almost the same", mine, other), zero(f"{on(data)}, none", mine)]
    return decide(cases, lambda _: falls_apart(plan, plan.default_density))


def dpcrowd_agrees_far_better_than_fast(plan: Plan, results: Results) -> Verdict:
    """DPCrowd's ACE is far below FAST's at every ε.

    Section "Estimation Utility of DPCrowd", Tradeoff between Utility and Privacy: "DPCrowd has much smaller ACE on both
    datasets for all privacy levels".

    Far below: less than half.
    """
    cases = [
        far_lower(on(data), *(epsilon_curve(plan, results, data, label, "ace") for label in ("dpcrowd", "fast")))
        for data in plan.single
    ]
    return decide(cases, likely=few_neighbours(plan))


def consensus_error_falls_with_epsilon(plan: Plan, results: Results) -> Verdict:
    """The ACE of DPCrowd and FAST falls as ε grows.

    Section "Estimation Utility of DPCrowd", Tradeoff between Utility and Privacy: "with the increase of ε, ACE for both
    DPCrowd and FAST drop slowly".
    """
    cases = [
        falling(f"{on(data)}, {name_of(label)}", epsilon_curve(plan, results, data, label, "ace"))
        for data in plan.single
        for label in ("dpcrowd", "fast")
    ]
    return decide(cases)


CLAIMS = (
    claim(error_falls_with_epsilon, 4),
    claim(communication_beats_none, 4),
    claim(dpcrowd_beats_dfast_mostly, 4),
    claim(linear_is_easiest, 4, data=("linear", "flu")),
    claim(dfast_agrees_at_any_epsilon, 4),
    claim(dpcrowd_agrees_far_better_than_fast, 4),
    claim(consensus_error_falls_with_epsilon, 4),
)
