"""Claims on the sampling interval (figure 3): Section "Estimation Utility of DPCrowd", Impact of Sampling Strategy."""

from __future__ import annotations

from dpcrowd.experiments.claims.asking import falling, level, lower, under, uneven, valley
from dpcrowd.experiments.claims.cases import Asked, curve_of, decide, decide_most, on
from dpcrowd.experiments.claims.curves import Curve, u_shaped
from dpcrowd.experiments.claims.judge import FLAT
from dpcrowd.experiments.claims.reasons import unspent
from dpcrowd.experiments.claims.verdict import Verdict, claim
from dpcrowd.experiments.figures.interval import adaptive_point, fixed_point
from dpcrowd.experiments.points.plan import Plan
from dpcrowd.experiments.points.run import Results

__all__ = ["CLAIMS", "EFFICIENCY", "adaptive_curve", "fixed_curve", "spare_budget"]


def fixed_curve(plan: Plan, results: Results, data: str, metric: str, label: str = "dpcrowd-fixed") -> Curve:
    """DPCrowd that samples every I slots, over I."""
    swept = [(float(i), fixed_point(plan, data, i)) for i in plan.intervals]
    return curve_of(results, swept, label, metric, "I")


def adaptive_curve(plan: Plan, results: Results, data: str, metric: str) -> Curve:
    """DPCrowd that samples adaptively takes no interval: the same value at each."""
    swept = [(float(i), adaptive_point(plan, data)) for i in plan.intervals]
    return curve_of(results, swept, "dpcrowd-adaptive", metric, "I")


def spare_budget(plan: Plan, results: Results, asked: Asked) -> str:
    """What adaptive sampling leaves unspent on each data set on which it fails."""
    failing = filter(asked.fails_on, plan.single)
    told = (unspent(plan, results, adaptive_point(plan, data), "dpcrowd-adaptive") for data in failing)
    return " ".join(text for text in told if text)


def adaptive_sampling_is_flat(plan: Plan, results: Results) -> Verdict:
    """With adaptive sampling DPCrowd keeps nearly the same error whatever the interval.

    Section "Estimation Utility of DPCrowd", Impact of Sampling Strategy: "Because of the adaptiveness,
    DPCrowd-Adaptive keeps nearly the same error".

    Adaptive sampling takes no interval, so it is the same value at each.
    """
    cases = [
        level(f"{on(data)}, {metric.upper()}", adaptive_curve(plan, results, data, metric))
        for data in plan.single
        for metric in ("are", "ace")
    ]
    return decide(cases)


def fixed_sampling_varies_greatly(plan: Plan, results: Results) -> Verdict:
    """With fixed sampling DPCrowd's ARE varies greatly with the interval.

    Section "Estimation Utility of DPCrowd", Impact of Sampling Strategy: "DPCrowd-fixed varies greatly with different
    sampling intervals".

    Greatly: at some interval less than half of what it is at another. Every pair of intervals is compared.
    """
    return decide([uneven(on(data), fixed_curve(plan, results, data, "are")) for data in plan.single])


def _valley(plan: Plan, results: Results, metric: str, reason: str = "") -> Verdict:
    cases = [valley(f"{on(data)}, {metric.upper()}", fixed_curve(plan, results, data, metric)) for data in plan.single]

    def alone(asked: Asked) -> str:
        """Whether hearing neighbours takes the valley away: a server alone that takes the same samples may have one."""
        told = []
        for data in filter(asked.fails_on, plan.single):
            found = u_shaped(fixed_curve(plan, results, data, metric, "fast-fixed"), asked.tests)
            if found.outcome == "holds":
                told.append(
                    f"On {on(data)} a server alone does have a best interval in between ({found.numbers.rstrip('.')}): "
                    "what neighbours bring makes up for the noise of short intervals."
                )
            elif found.outcome == "does not hold":
                told.append(
                    f"On {on(data)} a server alone has no best interval in between either "
                    f"({found.numbers.rstrip('.')}): there, skipping slots costs more than it saves in noise, with "
                    "neighbours and without."
                )
        return " ".join(told)

    return decide(cases, reason or alone)


def fixed_sampling_has_a_best_interval(plan: Plan, results: Results) -> Verdict:
    """With fixed sampling DPCrowd's ARE is U-shaped in the interval: short and long intervals are both worse.

    Section "Estimation Utility of DPCrowd", Impact of Sampling Strategy: "When the interval is small (such as 1), it
    incurs high perturbation error [...] with the further increase of intervals, the ARE of DPCrowd-fixed increases
    gradually".

    Some interval between the shortest and the longest has an ARE below both.
    """
    return _valley(plan, results, "are")


def long_intervals_lose_to_adaptive_sampling(plan: Plan, results: Results) -> Verdict:
    """At long intervals fixed sampling has a higher ARE than adaptive sampling.

    Section "Estimation Utility of DPCrowd", Impact of Sampling Strategy: "the ARE of DPCrowd-fixed increases gradually
    and goes beyond that of DPCrowd-Adaptive".

    Judged at the longest interval.
    """
    cases = [
        lower(
            f"{on(data)}, adaptive below fixed",
            adaptive_curve(plan, results, data, "are")[-1:],
            fixed_curve(plan, results, data, "are")[-1:],
        )
        for data in plan.single
    ]
    return decide(cases, lambda asked: spare_budget(plan, results, asked))


def consensus_error_follows_the_same_trend(plan: Plan, results: Results) -> Verdict:
    """The ACE of fixed sampling is U-shaped in the interval, as its ARE is.

    Section "Estimation Utility of DPCrowd", Impact of Sampling Strategy: "Similar trends can be observed in the ACE
    comparison".

    Some interval between the shortest and the longest has an ACE below both. The paper then says the opposite (the
    next claim but one); both are judged.
    """
    return _valley(
        plan,
        results,
        "ace",
        "The paper goes on to say that longer intervals naturally lead to better consensus: the two sentences do not "
        "agree with each other; see the claim that ACE falls with the interval.",
    )


def fixed_sampling_agrees_better(plan: Plan, results: Results) -> Verdict:
    """Fixed sampling has a lower ACE than adaptive sampling at most intervals.

    Section "Estimation Utility of DPCrowd", Impact of Sampling Strategy: "DPCrowd-fixed seems to show a smaller
    consensus error".

    Most: at more than half of the intervals, over the data sets together.
    """
    cases = [
        under(f"{on(data)}, {at}", mine, other)
        for data in plan.single
        for (at, mine), (_, other) in zip(
            fixed_curve(plan, results, data, "ace"), adaptive_curve(plan, results, data, "ace"), strict=True
        )
    ]
    return decide_most(cases)


def fixed_consensus_error_falls_with_interval(plan: Plan, results: Results) -> Verdict:
    """With fixed sampling ACE falls as the interval grows.

    Section "Estimation Utility of DPCrowd", Impact of Sampling Strategy: "larger sampling interval means more
    non-sampling points and less dynamic changes, which naturally lead to better consensus".
    """
    cases = [falling(on(data), fixed_curve(plan, results, data, "ace")) for data in plan.single]
    return decide(cases)


def adaptive_sampling_finds_the_best_interval(plan: Plan, results: Results) -> Verdict:
    """Adaptive sampling is about as good as the best fixed interval.

    Section "Estimation Efficiency of DPCrowd", Communication Frequency Reduction: "adaptive sampling can better find an
    optimal sampling interval for DPCrowd".

    About as good: its ARE is less than 1.2 times that of every fixed interval.
    """
    cases = [
        lower(
            on(data),
            adaptive_curve(plan, results, data, "are"),
            fixed_curve(plan, results, data, "are"),
            1 / (1 + FLAT),
        )
        for data in plan.single
    ]
    return decide(cases, lambda asked: spare_budget(plan, results, asked))


CLAIMS = (
    claim(adaptive_sampling_is_flat, 3, instead=(5,), by_construction=True),
    claim(fixed_sampling_varies_greatly, 3, instead=(5, 9)),
    claim(fixed_sampling_has_a_best_interval, 3, instead=(5, 9)),
    claim(long_intervals_lose_to_adaptive_sampling, 3, instead=(5,)),
    claim(consensus_error_follows_the_same_trend, 3, instead=(5, 9)),
    claim(fixed_sampling_agrees_better, 3, instead=(5,)),
    claim(fixed_consensus_error_falls_with_interval, 3, instead=(5, 9)),
)
EFFICIENCY = (claim(adaptive_sampling_finds_the_best_interval, 3, instead=(5,)),)
