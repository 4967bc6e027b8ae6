"""Claims on the window size (figure 6), in Section "Overall Performance of DPCrowd+", Impact of Windows Size.

Each is judged under both ledgers: the paper's, with what a moving user really pays beside it, and the sound one.
"""

from __future__ import annotations

from dpcrowd.experiments.claims.asking import under
from dpcrowd.experiments.claims.cases import Case, decide, name_of, on
from dpcrowd.experiments.claims.judge import Values
from dpcrowd.experiments.claims.many import PLUS, Sweep
from dpcrowd.experiments.claims.reasons import LESS_OFTEN, falls_apart
from dpcrowd.experiments.claims.verdict import Verdict, claim
from dpcrowd.experiments.figures.regions import LEDGERS
from dpcrowd.experiments.figures.rosters import REGIONS
from dpcrowd.experiments.figures.window import swept
from dpcrowd.experiments.points.plan import Plan
from dpcrowd.experiments.points.run import Results
from dpcrowd.privacy import Accounting

__all__ = ["CLAIMS"]

_OTHERS = tuple(label for label in REGIONS if label != "rescuedp")
_REPUBLISHING = ("dpegasus", "dbd", "dba")


_BLOCKS = (
    "Likely: how windows fall on the stream. A scheme that begins anew with each block of w slots, or spends a window "
    "in a few samples, meets other parts of the data with every w; its error moves by some per cent either way."
)
_FEW_SAMPLES = (
    "Likely: the accounting. Samples that disturb the agreement get fewer as w grows, those that bring news too; which "
    "of the two weighs more depends on how many samples the ledger allows."
)


def _sweep(plan: Plan, results: Results, accounting: Accounting) -> Sweep:
    return Sweep(plan, results, accounting, swept, "w")


def error_grows_with_window(plan: Plan, results: Results, accounting: Accounting) -> Verdict:
    """Every scheme's ARE grows with the window size.

    Section "Overall Performance of DPCrowd+", Impact of Windows Size: "The AREs of all schemes increase with w for both
    datasets".
    """
    sweep = _sweep(plan, results, accounting)
    cases = [case for label in REGIONS for case in sweep.growing(label, "are")]
    return decide(cases, likely=_BLOCKS)


def rescuedp_rises_most(plan: Plan, results: Results, accounting: Accounting) -> Verdict:
    """RescueDP's ARE rises more with the window size than those of DPCrowd+ and DPCrowd_w.

    Section "Overall Performance of DPCrowd+", Impact of Windows Size: "The ARE of RescueDP increases with w sharply
    [...] While DPCrowd+ and DPCrowd_w show relatively steadily increasing trends".

    Increase of ARE from the smallest to the largest window, as drawn on one axis.
    """
    sweep = _sweep(plan, results, accounting)

    def rise(data: str, label: str) -> Values:
        curve = sweep.curve(data, label, "are")
        return Values(f"increase of {name_of(label)}", curve[-1][1].runs - curve[0][1].runs)

    def case(data: str, label: str) -> Case:
        asked = under(f"{on(data)}, {name_of(label)} below RescueDP", rise(data, label), rise(data, "rescuedp"))
        return sweep.noted(asked, data, (label, "rescuedp"))

    cases = [case(data, label) for data in plan.multi for label in (PLUS, "dpcrowd-w")]
    return decide(cases)


def rescuedp_is_worst_at_any_window(plan: Plan, results: Results, accounting: Accounting) -> Verdict:
    """RescueDP has the largest ARE of all at every window size.

    Section "Overall Performance of DPCrowd+", Impact of Windows Size: "The ARE of RescueDP [...] reaches the highest in
    both datasets due to the lack of collaborations among servers".
    """
    sweep = _sweep(plan, results, accounting)
    cases = [case for label in _OTHERS for case in sweep.lower(label, "rescuedp", "are")]
    return decide(cases, lambda asked: sweep.why_not_worst("rescuedp", _OTHERS, asked))


def plus_beats_dpcrowd_w_at_any_window(plan: Plan, results: Results, accounting: Accounting) -> Verdict:
    """DPCrowd+ has a lower ARE than DPCrowd_w at every window size.

    Section "Overall Performance of DPCrowd+", Impact of Windows Size: "DPCrowd+, compared with DPCrowd_w, can not only
    utilize neighbors' knowledge, but also reduce the error via adapting dynamic grouping strategy".
    """
    sweep = _sweep(plan, results, accounting)
    cases = sweep.lower(PLUS, "dpcrowd-w", "are")
    return decide(cases, lambda asked: sweep.why_beaten(PLUS, ("dpcrowd-w",), asked))


def plus_beats_republishing_at_any_window(plan: Plan, results: Results, accounting: Accounting) -> Verdict:
    """DPCrowd+ has a lower ARE than DPeGaSus, DBD and DBA at every window size.

    Section "Overall Performance of DPCrowd+", Impact of Windows Size: "DPCrowd+ shows superior performance than
    DPeGaSus and DBD/BA".
    """
    sweep = _sweep(plan, results, accounting)
    cases = [case for label in _REPUBLISHING for case in sweep.lower(PLUS, label, "are")]
    return decide(cases, lambda asked: sweep.why_beaten(PLUS, _REPUBLISHING, asked))


def flooding_agrees_at_any_window(plan: Plan, results: Results, accounting: Accounting) -> Verdict:
    """DPeGaSus, DBD and DBA have almost no consensus error at any window size.

    Section "Overall Performance of DPCrowd+", Impact of Windows Size: "DPeGaSus and DBD/BA have almost no consensus
    error with the cost of whole-network broadcast".

    Almost none: less than 1% of RescueDP's ACE, which does not communicate.
    """
    sweep = _sweep(plan, results, accounting)
    cases = [case for label in _REPUBLISHING for case in sweep.nearly_none(label, "rescuedp", "ace")]
    return decide(cases, lambda _: falls_apart(plan, plan.default_density))


def consensus_error_grows_with_window(plan: Plan, results: Results, accounting: Accounting) -> Verdict:
    """The ACE of RescueDP, DPCrowd_w and DPCrowd+ grows with the window size.

    Section "Overall Performance of DPCrowd+", Impact of Windows Size: "the ACEs of all other schemes increase with w
    due to less privacy budget allocated on each timestamp".
    """
    sweep = _sweep(plan, results, accounting)
    cases = [case for label in ("rescuedp", "dpcrowd-w", PLUS) for case in sweep.growing(label, "ace")]
    return decide(cases, likely=_FEW_SAMPLES)


def rescuedp_agrees_least_at_any_window(plan: Plan, results: Results, accounting: Accounting) -> Verdict:
    """RescueDP has the largest ACE of all at every window size.

    Section "Overall Performance of DPCrowd+", Impact of Windows Size: "RescueDP shows the largest ACE since there is no
    collaboration".
    """
    sweep = _sweep(plan, results, accounting)
    cases = [case for label in _OTHERS for case in sweep.lower(label, "rescuedp", "ace")]
    return decide(cases)


def plus_agrees_better_than_dpcrowd_w_at_any_window(plan: Plan, results: Results, accounting: Accounting) -> Verdict:
    """DPCrowd+ has a lower ACE than DPCrowd_w at every window size.

    Section "Overall Performance of DPCrowd+", Impact of Windows Size: "with the dynamic dimension reduction, DPCrowd+
    can achieve better consensus".
    """
    return decide(_sweep(plan, results, accounting).lower(PLUS, "dpcrowd-w", "ace"), likely=LESS_OFTEN)


CLAIMS = tuple(
    claim(function, 6, ledger=ledger)
    for function in (
        error_grows_with_window,
        rescuedp_is_worst_at_any_window,
        rescuedp_rises_most,
        plus_beats_dpcrowd_w_at_any_window,
        plus_beats_republishing_at_any_window,
        flooding_agrees_at_any_window,
        consensus_error_grows_with_window,
        rescuedp_agrees_least_at_any_window,
        plus_agrees_better_than_dpcrowd_w_at_any_window,
    )
    for ledger in LEDGERS
)
