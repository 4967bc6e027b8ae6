"""Claims on error over time (figure 1), in Section "Estimation Utility of DPCrowd", Convergence of Estimation."""

from __future__ import annotations

import numpy as np

from dpcrowd.experiments.claims.asking import close, falling, far_lower, lower, under, zero
from dpcrowd.experiments.claims.cases import absent, curve_of, decide, name_of, on, values_of
from dpcrowd.experiments.claims.curves import Curve
from dpcrowd.experiments.claims.intervals import Floats, number
from dpcrowd.experiments.claims.judge import Values
from dpcrowd.experiments.claims.reasons import falls_apart
from dpcrowd.experiments.claims.verdict import Verdict, claim
from dpcrowd.experiments.figures.time import point
from dpcrowd.experiments.plan import Plan
from dpcrowd.experiments.run import Results

__all__ = ["CLAIMS", "settling_slot"]

_SMOOTHED = 10
_SETTLED = 1.25
_SAME_SPEED = 5.0
_SCHEMES = ("fast", "dfast", "dpcrowd")


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

    def reason() -> str:
        told = []
        for label in _SCHEMES:
            by_slot = result[label].are_by_slot
            start, late = float(by_slot[:, 0].mean()), float(by_slot[:, by_slot.shape[1] // 2 :].mean())
            if start < late:
                told.append(f"{name_of(label)} {number(start)} against {number(late)} in the second half")
        if not told:
            return ""
        often = ", ".join(f"{name_of(label)} {float(result[label].frequency.mean()):.1%}" for label in _SCHEMES)
        return (
            f"There is no rough start to fall from: in slot 0, where every server samples, ARE is already lower "
            f"than later ({'; '.join(told)}). After the start fewer slots are sampled ({often}), and errors level out "
            "higher."
        )

    return decide([falling(f"Linear, {name_of(label)}", spans(label)) for label in _SCHEMES], reason)


def fast_converges_slower(plan: Plan, results: Results) -> Verdict:
    """FAST converges slower than DPCrowd on Linear.

    Section "Estimation Utility of DPCrowd", Convergence of Estimation: "servers in FAST can only observe their own
    measurements and perform independent estimation, thus converging slowly"; "DPCrowd [...] shows fast convergence".

    A run has converged at the first slot from which ARE, averaged over 10 slots, is at most 1.25 times its level over
    the last quarter of the stream.
    """
    return _settles_earlier(plan, results, "linear", ("fast",))


def fast_has_much_more_consensus_error(plan: Plan, results: Results) -> Verdict:
    """FAST has much more consensus error than DPCrowd on Linear.

    Section "Estimation Utility of DPCrowd", Convergence of Estimation: "converging slowly with much higher consensus
    error".

    Much: DPCrowd's ACE is less than half of FAST's.
    """
    at = [(plan.default_epsilon, point(plan, "linear"))]
    mine, other = (curve_of(results, at, label, "ace", "ε") for label in ("dpcrowd", "fast"))
    return decide([far_lower("Linear, ACE", mine, other)], _ace_reason(mine, other))


def _ace_reason(mine: Curve, other: Curve) -> str:
    quotient = mine[0][1].mean / other[0][1].mean
    return f"DPCrowd's ACE is {number(quotient)} times FAST's: lower, but not by half." if 0.5 <= quotient < 1 else ""


def dfast_beats_fast(plan: Plan, results: Results) -> Verdict:
    """DFAST has a lower relative error than FAST.

    Section "Estimation Utility of DPCrowd", Convergence of Estimation: "DFAST simply collects and averages the
    independent estimations [...] Despite the reduced relative error via averaging".
    """
    cases = []
    for data in plan.single:
        mine, other = (values_of(results, point(plan, data), label, "are") for label in ("dfast", "fast"))
        cases.append(under(f"{on(data)}, ARE", mine, other))
    return decide([*cases, *absent(plan, "linear", "flu")])


def dfast_converges_as_fast(plan: Plan, results: Results) -> Verdict:
    """DFAST converges as fast as FAST does.

    Section "Estimation Utility of DPCrowd", Convergence of Estimation: "it still has the same convergence speed as
    FAST, which is determined by the independent estimation".

    The slots at which the two have converged (as for FAST and DPCrowd) differ by less than 5 on average.
    """
    first, second = (_settled(plan, results, "linear", label) for label in ("dfast", "fast"))
    return decide([close("Linear, slot of convergence", first, second, _SAME_SPEED, "slots")])


def dfast_reaches_absolute_consensus(plan: Plan, results: Results) -> Verdict:
    """DFAST has no consensus error at all.

    Section "Estimation Utility of DPCrowd", Convergence of Estimation: "DFAST can achieve absolute consensus".

    None at all: below a millionth of a person in every run.
    """
    cases = [
        zero(f"{on(data)}, ACE", [("", values_of(results, point(plan, data), "dfast", "ace"))]) for data in plan.single
    ]

    def reason() -> str:
        return falls_apart(plan, plan.default_density)

    return decide([*cases, *absent(plan, "linear", "flu")], reason)


def dpcrowd_converges_better_on_flu(plan: Plan, results: Results) -> Verdict:
    """DPCrowd converges better than FAST and DFAST on Flu, too: earlier than FAST, and to a lower error than both.

    Section "Estimation Utility of DPCrowd", Convergence of Estimation: "Flu has more periodic fluctuations.
    Nonetheless, [...] DPCrowd still shows much better estimation convergence".

    Slot of convergence as on Linear; the level is ARE over the last quarter of the stream.
    """

    def late(label: str) -> Curve:
        by_slot = results[point(plan, "flu")][label].are_by_slot
        return [("last quarter", Values(name_of(label), by_slot[:, -(by_slot.shape[1] // 4) :].mean(axis=1)))]

    first, second = (_settled(plan, results, "flu", label) for label in ("dpcrowd", "fast"))
    cases = [under("Flu, slot of convergence against FAST", first, second)]
    cases += [
        lower(f"Flu, level against {name_of(label)}", late("dpcrowd"), late(label)) for label in ("fast", "dfast")
    ]
    return decide(cases, lambda: _at_once(first, second))


def _settled(plan: Plan, results: Results, data: str, label: str) -> Values:
    return Values(name_of(label), settling_slot(results[point(plan, data)][label].are_by_slot))


def _settles_earlier(plan: Plan, results: Results, data: str, rivals: tuple[str, ...]) -> Verdict:
    mine = _settled(plan, results, data, "dpcrowd")
    others = [_settled(plan, results, data, rival) for rival in rivals]
    cases = [under(f"{on(data)}, slot of convergence", mine, other) for other in others]
    return decide(cases, lambda: _at_once(mine, *others))


def _at_once(*settled: Values) -> str:
    """Whether there is any convergence to compare."""
    at_once = np.all([values.runs == 0 for values in settled], axis=0).mean()
    if at_once < 0.5:
        return ""
    names = " and ".join(values.name for values in settled)
    return (
        f"In {at_once:.0%} of the runs {names} are at their level from slot 0 on: the first estimates come from a "
        "sample of every server, and there is little to converge from."
    )


CLAIMS = (
    claim(relative_error_falls_with_time, 1, data=("linear",)),
    claim(fast_converges_slower, 1, data=("linear",)),
    claim(fast_has_much_more_consensus_error, 1, data=("linear",)),
    claim(dfast_beats_fast, 1),
    claim(dfast_converges_as_fast, 1, data=("linear",)),
    claim(dfast_reaches_absolute_consensus, 1),
    claim(dpcrowd_converges_better_on_flu, 1, data=("flu",)),
)
