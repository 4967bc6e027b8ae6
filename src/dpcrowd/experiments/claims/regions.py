"""Claims on ε for many regions (figure 7), in Section "Overall Performance of DPCrowd+", Tradeoff.

Each is judged under both ledgers: the paper's, with what a moving user really pays beside it, and the sound one.
"""

from __future__ import annotations

import numpy as np

from dpcrowd.experiments.claims.asking import lower
from dpcrowd.experiments.claims.cases import decide, on
from dpcrowd.experiments.claims.curves import Curve
from dpcrowd.experiments.claims.judge import FAR, Values
from dpcrowd.experiments.claims.many import PLUS, Sweep
from dpcrowd.experiments.claims.reasons import LESS_OFTEN, LITTLE_TO_GROUP, falls_apart
from dpcrowd.experiments.claims.verdict import Verdict, claim
from dpcrowd.experiments.figures.epsilon_regions import swept
from dpcrowd.experiments.figures.regions import LEDGERS
from dpcrowd.experiments.figures.rosters import REGIONS
from dpcrowd.experiments.points.plan import MULTI, Plan
from dpcrowd.experiments.points.run import Results
from dpcrowd.privacy import Accounting

__all__ = ["CLAIMS", "EFFICIENCY"]

_RIVALS = tuple(label for label in REGIONS if label != PLUS)
_OTHERS = tuple(label for label in REGIONS if label != "rescuedp")
_FLOODING = ("drescuedp", "dbd", "dba", "dpegasus")


def _sweep(plan: Plan, results: Results, accounting: Accounting) -> Sweep:
    return Sweep(plan, results, accounting, swept, "ε")


def rescuedp_is_worst_at_any_epsilon(plan: Plan, results: Results, accounting: Accounting) -> Verdict:
    """RescueDP has the largest ARE of all at every ε.

    Section "Overall Performance of DPCrowd+", Tradeoff between Utility and Privacy: "For various ε, the ARE of
    independent estimation scheme RescueDP is the largest".
    """
    sweep = _sweep(plan, results, accounting)
    cases = [case for label in _OTHERS for case in sweep.lower(label, "rescuedp", "are")]
    return decide(cases, lambda asked: sweep.why_not_worst("rescuedp", _OTHERS, asked))


def plus_beats_dpcrowd_w_at_any_epsilon(plan: Plan, results: Results, accounting: Accounting) -> Verdict:
    """DPCrowd+ has a lower ARE than DPCrowd_w at every ε.

    Section "Overall Performance of DPCrowd+", Tradeoff between Utility and Privacy: "DPCrowd+ can further reduce the
    overdose noise on dimensions with small values by adopting the dynamic grouping strategy".
    """
    sweep = _sweep(plan, results, accounting)
    cases = sweep.lower(PLUS, "dpcrowd-w", "are")
    return decide(cases, lambda asked: sweep.why_beaten(PLUS, ("dpcrowd-w",), asked), likely=LITTLE_TO_GROUP)


def plus_beats_drescuedp_at_any_epsilon(plan: Plan, results: Results, accounting: Accounting) -> Verdict:
    """DPCrowd+ has a lower ARE than DRescueDP at every ε.

    Section "Overall Performance of DPCrowd+", Tradeoff between Utility and Privacy: "compared with DRescueDP that
    directly average the whole-network estimations, DPCrowd+ can better fuse the neighboring estimations".
    """
    sweep = _sweep(plan, results, accounting)
    cases = sweep.lower(PLUS, "drescuedp", "are")
    return decide(cases, lambda asked: sweep.why_beaten(PLUS, ("drescuedp",), asked))


def plus_is_best_at_any_epsilon(plan: Plan, results: Results, accounting: Accounting) -> Verdict:
    """DPCrowd+ has the smallest ARE of all (DPCrowd_w, DRescueDP, DPeGaSus, DBD, DBA, RescueDP) at every ε.

    Section "Overall Performance of DPCrowd+", Tradeoff between Utility and Privacy: "DPCrowd+ shows the smallest ARE
    among all aforementioned schemes".
    """
    sweep = _sweep(plan, results, accounting)
    cases = [case for label in _RIVALS for case in sweep.lower(PLUS, label, "are")]
    return decide(cases, lambda asked: sweep.why_beaten(PLUS, _RIVALS, asked))


def plus_leads_most_on_multi_flu(plan: Plan, results: Results, accounting: Accounting) -> Verdict:
    """DPCrowd+ has the smallest ARE of all on Multi-Flu, and by more than on Multi-Linear, at every ε.

    Section "Overall Performance of DPCrowd+", Tradeoff between Utility and Privacy: "DPCrowd+ shows the smallest ARE
    [...], especially on Multi-Flu [...] because Multi-Flu has more dimensions and is much sparser".

    On Multi-Flu its ARE is below that of every other scheme; and its ratio to the lowest ARE that any other has in the
    same run is smaller on Multi-Flu than on Multi-Linear.
    """
    sweep = _sweep(plan, results, accounting)
    multi_linear, multi_flu = MULTI

    def lead(data: str) -> Curve:
        rivals = [sweep.curve(data, label, "are") for label in _RIVALS]
        curve = []
        for i, (at, mine) in enumerate(sweep.curve(data, PLUS, "are")):
            best = np.min([rival[i][1].runs for rival in rivals], axis=0)
            curve.append((at, Values(f"on {on(data)}", mine.runs / best)))
        return curve

    cases = [case for label in _RIVALS for case in sweep.lower(PLUS, label, "are", data=(multi_flu,))]
    name = "Multi-Flu below Multi-Linear, ARE over the lowest ARE of the others"
    cases.append(sweep.noted(lower(name, lead(multi_flu), lead(multi_linear)), multi_flu, (PLUS,)))
    return decide(cases, lambda asked: sweep.why_beaten(PLUS, _RIVALS, asked))


def flooding_agrees_at_any_epsilon(plan: Plan, results: Results, accounting: Accounting) -> Verdict:
    """DRescueDP, DBD, DBA and DPeGaSus have nearly no consensus error at any ε.

    Section "Overall Performance of DPCrowd+", Tradeoff between Utility and Privacy: "DRescueDP, DBD/DBA, and DPeGaSus
    have nearly no consensus error since expensive all-to-all communications are realized".

    Nearly none: less than 1% of RescueDP's ACE, which does not communicate.
    """
    sweep = _sweep(plan, results, accounting)
    cases = [case for label in _FLOODING for case in sweep.nearly_none(label, "rescuedp", "ace")]
    return decide(cases, lambda _: falls_apart(plan, plan.default_density))


def consensus_error_falls_with_epsilon_in_regions(plan: Plan, results: Results, accounting: Accounting) -> Verdict:
    """The ACE of DPCrowd+, DPCrowd_w and RescueDP falls as ε grows.

    Section "Overall Performance of DPCrowd+", Tradeoff between Utility and Privacy: "The ACEs of DPCrowd+, DPCrowd_w,
    and the independent estimation scheme RescueDP drops with the increase of ε".
    """
    sweep = _sweep(plan, results, accounting)
    cases = [case for label in (PLUS, "dpcrowd-w", "rescuedp") for case in sweep.falling(label, "ace")]
    return decide(cases)


def rescuedp_agrees_least_at_any_epsilon(plan: Plan, results: Results, accounting: Accounting) -> Verdict:
    """RescueDP has the largest ACE of all at every ε.

    Section "Overall Performance of DPCrowd+", Tradeoff between Utility and Privacy: "RescueDP has the largest ACE
    because of no communication among servers".
    """
    sweep = _sweep(plan, results, accounting)
    cases = [case for label in _OTHERS for case in sweep.lower(label, "rescuedp", "ace")]
    return decide(cases)


def plus_agrees_far_better_than_dpcrowd_w(plan: Plan, results: Results, accounting: Accounting) -> Verdict:
    """DPCrowd+ has a much smaller ACE than DPCrowd_w at every ε.

    Section "Overall Performance of DPCrowd+", Tradeoff between Utility and Privacy: "DPCrowd+ has much smaller
    consensus error as it combines the collaborative correction [...] and dynamic grouping".

    Much smaller: less than half.
    """
    sweep = _sweep(plan, results, accounting)
    cases = sweep.lower(PLUS, "dpcrowd-w", "ace", FAR)
    return decide(cases, likely=LESS_OFTEN)


def plus_saves_communication(plan: Plan, results: Results, accounting: Accounting) -> Verdict:
    """DPCrowd+ has a lower latency and far fewer packets than the flooding schemes.

    Section "Estimation Efficiency of DPCrowd", Communication Frequency Reduction: "similar reduction in both
    communication latency and overhead can also be achieved by DPCrowd+ when compared to its counterpart DRescueDP";
    the same is said of DBD/DBA and DPeGaSus.

    Far fewer: less than half, at every ε.
    """
    sweep = _sweep(plan, results, accounting)
    cases = []
    for label in _FLOODING:
        cases += sweep.lower(PLUS, label, "latency_ms")
        cases += sweep.lower(PLUS, label, "packets_per_slot", FAR)
    return decide(cases)


EFFICIENCY = tuple(claim(plus_saves_communication, 7, ledger=ledger) for ledger in LEDGERS)
CLAIMS = tuple(
    claim(function, 7, data=MULTI if function is plus_leads_most_on_multi_flu else (), ledger=ledger)
    for function in (
        rescuedp_is_worst_at_any_epsilon,
        plus_beats_dpcrowd_w_at_any_epsilon,
        plus_beats_drescuedp_at_any_epsilon,
        plus_is_best_at_any_epsilon,
        plus_leads_most_on_multi_flu,
        flooding_agrees_at_any_epsilon,
        consensus_error_falls_with_epsilon_in_regions,
        rescuedp_agrees_least_at_any_epsilon,
        plus_agrees_far_better_than_dpcrowd_w,
    )
    for ledger in LEDGERS
)
