"""Claims on error over time (figure 1), in Section "Estimation Utility of DPCrowd", Convergence of Estimation."""

from __future__ import annotations

import numpy as np

from dpcrowd.experiments.claims.asking import close, falling, far_lower, noted, under, zero
from dpcrowd.experiments.claims.cases import Asked, curve_of, decide, name_of, on, values_of
from dpcrowd.experiments.claims.curves import Curve
from dpcrowd.experiments.claims.intervals import Floats, number
from dpcrowd.experiments.claims.judge import FAR, Values, below
from dpcrowd.experiments.claims.reasons import falls_apart, few_neighbours
from dpcrowd.experiments.claims.verdict import Verdict, claim
from dpcrowd.experiments.figures.time import point
from dpcrowd.experiments.points.plan import Plan
from dpcrowd.experiments.points.run import Results

__all__ = ["CLAIMS", "settling_slot"]

_SMOOTHED = 10
_SETTLED = 1.25
_SAME_SPEED = 5.0
_SCHEMES = ("fast", "dfast", "dpcrowd")
_MEAN_SHARE = 0.525  # of U(0.05, 1), from which shares are drawn
_FLU_MODEL = (
    "Likely: parameters and data. The paper gives neither the density nor Q of this figure; with ours DPCrowd is "
    "better, but not by half. A random walk with one constant Q is not how Flu moves, which all three schemes assume."
)
_CORRECTED_START = (
    "Likely: the corrected start (corrections 1, 8 and 9). Algorithm 1 as printed begins with the raw count of a "
    "server's own users, which is not private, and does not divide it by the server's share H: a relative error of "
    f"1 − H, {1 - _MEAN_SHARE:.3g} on average for these shares, to recover from. Here every server begins with a noisy "
    "sample, paid like any other and divided by its share."
)


def settling_slot(by_slot: Floats) -> Floats:
    """First slot of each run from which 10 slots on average have an error of at most 1.25 times its level.

    The level is the mean over the last quarter of the stream; NaN for a run that diverged.
    """
    slots = by_slot.shape[1]
    width = min(_SMOOTHED, slots)
    sums = np.cumsum(np.pad(by_slot, ((0, 0), (1, 0))), axis=1)
    smooth = (sums[:, width:] - sums[:, :-width]) / width
    level = by_slot[:, -max(slots // 4, 1) :].mean(axis=1, keepdims=True)
    first = (smooth <= _SETTLED * level).argmax(axis=1).astype(np.float64)
    return np.where(np.isfinite(by_slot).all(axis=1), first, np.nan)


def relative_error_falls_with_time(plan: Plan, results: Results) -> Verdict:
    """The relative error of FAST, DFAST and DPCrowd falls with time on Linear.

    Section "Estimation Utility of DPCrowd", Convergence of Estimation: "the relative error of distributed servers in
    all three schemes gradually drops with time".

    Mean ARE over slots 0-9, from there to the middle, and over the second half must fall from each span to the next.
    """
    result = results[point(plan, "linear")]

    def spans(label: str) -> Curve:
        by_slot = result[label].are_by_slot
        middle = by_slot.shape[1] // 2
        cuts = ((0, 10), (10, middle), (middle, by_slot.shape[1]))
        return [(f"slots {a} to {b - 1}", Values(name_of(label), by_slot[:, a:b].mean(axis=1))) for a, b in cuts]

    def reason(asked: Asked) -> str:
        told = []
        for label in _SCHEMES:
            by_slot = result[label].are_by_slot
            start, late = by_slot[:, 0], by_slot[:, by_slot.shape[1] // 2 :].mean(axis=1)
            if below(Values("", start), Values("", late), asked.tests).outcome == "holds":
                told.append(f"{name_of(label)} {number(start.mean())} against {number(late.mean())}")
        if not told:
            return ""
        return f"ARE is lower in slot 0 than in the second half of the stream ({'; '.join(told)}). {_CORRECTED_START}"

    return decide([falling(f"Linear, {name_of(label)}", spans(label)) for label in _SCHEMES], reason)


def fast_converges_slower(plan: Plan, results: Results) -> Verdict:
    """FAST converges slower than DPCrowd on Linear.

    Section "Estimation Utility of DPCrowd", Convergence of Estimation: "servers in FAST can only observe their own
    measurements and perform independent estimation, thus converging slowly"; "DPCrowd [...] shows fast convergence".

    A run has converged at the first slot from which ARE, averaged over 10 slots, is at most 1.25 times its level over
    the last quarter of the stream. Slots may be 0, so differences are judged; equal is not slower.
    """
    mine, other = (_settled(plan, results, "linear", label) for label in ("dpcrowd", "fast"))
    case = noted(under("Linear, slot of convergence", mine, other), _at_once(mine, other))
    return decide([case], lambda _: _CORRECTED_START, undecided=_CORRECTED_START if _at_once(mine, other) else "")


def fast_has_much_more_consensus_error(plan: Plan, results: Results) -> Verdict:
    """FAST has much more consensus error than DPCrowd on Linear.

    Section "Estimation Utility of DPCrowd", Convergence of Estimation: "converging slowly with much higher consensus
    error".

    Much: DPCrowd's ACE is less than half of FAST's.
    """
    at = [(plan.default_epsilon, point(plan, "linear"))]
    mine, other = (curve_of(results, at, label, "ace", "ε") for label in ("dpcrowd", "fast"))
    return decide([far_lower("Linear, ACE", mine, other)], likely=few_neighbours(plan))


def dfast_beats_fast(plan: Plan, results: Results) -> Verdict:
    """DFAST has a lower relative error than FAST.

    Section "Estimation Utility of DPCrowd", Convergence of Estimation: "DFAST simply collects and averages the
    independent estimations [...] Despite the reduced relative error via averaging".
    """
    cases = []
    for data in plan.single:
        mine, other = (values_of(results, point(plan, data), label, "are") for label in ("dfast", "fast"))
        cases.append(under(f"{on(data)}, ARE", mine, other))
    return decide(cases)


def dfast_converges_as_fast(plan: Plan, results: Results) -> Verdict:
    """DFAST converges as fast as FAST does.

    Section "Estimation Utility of DPCrowd", Convergence of Estimation: "it still has the same convergence speed as
    FAST, which is determined by the independent estimation".

    The slots at which the two have converged (as for FAST and DPCrowd) differ by less than 5 on average. Schemes that
    are at their level from the start have the same speed, but nothing to show it by: the case says how many runs do.
    """
    first, second = (_settled(plan, results, "linear", label) for label in ("dfast", "fast"))
    case = close("Linear, slot of convergence", first, second, _SAME_SPEED, "slots")
    return decide([noted(case, _at_once(first, second))], lambda _: _CORRECTED_START)


def dfast_reaches_absolute_consensus(plan: Plan, results: Results) -> Verdict:
    """DFAST has no consensus error at all.

    Section "Estimation Utility of DPCrowd", Convergence of Estimation: "DFAST can achieve absolute consensus".

    None at all: below a millionth of a person in every run.
    """
    cases = [
        zero(f"{on(data)}, ACE", [("", values_of(results, point(plan, data), "dfast", "ace"))]) for data in plan.single
    ]

    return decide(cases, lambda _: falls_apart(plan, plan.default_density))


def dpcrowd_converges_better_on_flu(plan: Plan, results: Results) -> Verdict:
    """DPCrowd converges much better on Flu: far earlier than FAST, and to an error far below FAST's and DFAST's.

    Section "Estimation Utility of DPCrowd", Convergence of Estimation: "Flu has more periodic fluctuations.
    Nonetheless, [...] DPCrowd still shows much better estimation convergence".

    Much: less than half, of the slot of convergence (as on Linear) and of the level, which is ARE over the last quarter
    of the stream.
    """

    def late(label: str) -> Values:
        by_slot = results[point(plan, "flu")][label].are_by_slot
        return Values(name_of(label), by_slot[:, -max(by_slot.shape[1] // 4, 1) :].mean(axis=1))

    first, second = (_settled(plan, results, "flu", label) for label in ("dpcrowd", "fast"))
    cases = [noted(under("Flu, slot of convergence against FAST", first, second, FAR), _at_once(first, second))]
    cases += [
        under(f"Flu, level against {name_of(label)}", late("dpcrowd"), late(label), FAR) for label in ("fast", "dfast")
    ]

    def reason(asked: Asked) -> str:
        return _CORRECTED_START if any("slot" in name for name in asked.failed) else ""

    return decide(cases, reason, likely=_FLU_MODEL)


def _settled(plan: Plan, results: Results, data: str, label: str) -> Values:
    return Values(name_of(label), settling_slot(results[point(plan, data)][label].are_by_slot))


def _at_once(*settled: Values) -> str:
    """Whether there is any convergence to compare."""
    at_once = np.all([values.runs == 0 for values in settled], axis=0).mean() if settled[0].runs.size else 0.0
    if at_once < 0.5:
        return ""
    names = " and ".join(values.name for values in settled)
    return f"In {at_once:.0%} of the runs {names} are at their level from slot 0 on: there is nothing to converge from."


CLAIMS = (
    claim(relative_error_falls_with_time, 1, data=("linear",)),
    claim(fast_converges_slower, 1, data=("linear",)),
    claim(fast_has_much_more_consensus_error, 1, data=("linear",)),
    claim(dfast_beats_fast, 1),
    claim(dfast_converges_as_fast, 1, data=("linear",)),
    claim(dfast_reaches_absolute_consensus, 1),
    claim(dpcrowd_converges_better_on_flu, 1, data=("flu",)),
)
