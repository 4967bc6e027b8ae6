"""Claims of Section "Utility Analysis" (Eq. error analysis), and the cost of a slot of Section "Simulation Setup".

The analysis leaves adaptive sampling out, so it is held against fixed sampling (the points of figure 3): the mean
squared error that was measured, beside the mean of the filter's own variance M. DPCrowd's filter sums the information
of the server and of its neighbours (Y_i over J_i); the printed equation has the server's own only, which is the
recursion of FAST with the same samples.
"""

from __future__ import annotations

from dpcrowd.experiments.claims.asking import equal, falling
from dpcrowd.experiments.claims.cases import Asked, Case, decide, name_of, on, values_of
from dpcrowd.experiments.claims.intervals import Interval, compare, number, ratio
from dpcrowd.experiments.claims.judge import MATCH, Finding, Values, cannot_tell
from dpcrowd.experiments.claims.privacy import epsilon_curve
from dpcrowd.experiments.claims.slot_cost import SlotCost, Timing
from dpcrowd.experiments.claims.verdict import Outcome, Verdict, claim
from dpcrowd.experiments.figures import epsilon_regions
from dpcrowd.experiments.figures import time as over_time
from dpcrowd.experiments.figures.interval import fixed_point
from dpcrowd.experiments.points.plan import Plan
from dpcrowd.experiments.points.point import Point
from dpcrowd.experiments.points.run import Results

__all__ = ["ANALYSIS", "COST", "LIMIT_MS"]

LIMIT_MS = 0.1


def _measured(results: Results, point: Point, label: str) -> Values:
    return Values("measured", values_of(results, point, label, "mse").runs)


def _predicted(results: Results, point: Point, label: str) -> Values:
    return Values("predicted", values_of(results, point, label, "claimed_mse").runs)


def _matches(plan: Plan, results: Results, data: str, predicting: str) -> list[Case]:
    """Measured error of DPCrowd against what the filter of `predicting` says, for each interval."""
    points = [(interval, fixed_point(plan, data, interval)) for interval in plan.intervals]
    return [
        equal(
            f"{on(data)}, I={interval}",
            _measured(results, point, "dpcrowd-fixed"),
            _predicted(results, point, predicting),
        )
        for interval, point in points
    ]


def error_analysis_with_neighbours_matches(plan: Plan, results: Results) -> Verdict:
    """The predicted error, with the neighbours' information that the printed form drops, is the measured one.

    Section "Utility Analysis", Eq. (error analysis), first line: "M_i(t) = 1/(1/P_i(t) + Y_i(t))", where Y_i sums over
    the server and its neighbours.

    Mean squared error of DPCrowd with fixed sampling over the mean of its own M, within 10%, on Linear, where the
    model of the process is true. Interval of the ratio of means by the delta method.
    """
    return decide(
        _matches(plan, results, "linear", "dpcrowd-fixed"),
        lambda asked: _consensus_reason(plan, results, "linear", asked),
    )


def error_analysis_with_neighbours_matches_on_flu(plan: Plan, results: Results) -> Verdict:
    """The predicted error with the neighbours' information is the measured one on Flu, too.

    Section "Utility Analysis", Eq. (error analysis); the paper makes no exception for real data.

    As on Linear; but here Q is an assumption about the series, not the truth.
    """

    def reason(asked: Asked) -> str:
        off = []
        for interval in plan.intervals:
            found = _quotient(results, fixed_point(plan, "flu", interval), "fast-fixed", asked.tests)
            if found is not None and _far_from_one(found):
                off.append(f"{number(found.value)} at I={interval}")
        if not off:
            return _consensus_reason(plan, results, "flu", asked)
        return (
            "A server alone, whose filter has no neighbours to account for, does not have its predicted error either "
            f"(measured over predicted for FAST-fixed: {', '.join(off)}): the random walk with one constant Q is not "
            "how Flu moves."
        )

    return decide(_matches(plan, results, "flu", "dpcrowd-fixed"), reason)


def printed_error_analysis_matches(plan: Plan, results: Results) -> Verdict:
    """The predicted error as printed, with the server's own information only, is the measured one.

    Section "Utility Analysis", Eq. (error analysis), last line: "R̂_i(t)(M_i(t−1)+Q)/(R̂_i(t)+(H_i(t))²(M_i(t−1)+Q))".

    Mean squared error of DPCrowd with fixed sampling over the mean of the printed recursion, within 10%, on Linear.
    """

    def reason(asked: Asked) -> str:
        point = fixed_point(plan, "linear", plan.intervals[0])
        printed, full = (_predicted(results, point, who) for who in ("fast-fixed", "dpcrowd-fixed"))
        gap = None if printed.diverged or full.diverged else compare(full.runs, printed.runs, asked.tests)
        if gap is None or not gap.below:
            return ""
        return (
            "The printed form drops the neighbours' information from Y_i, and so describes a server alone: at "
            f"I={plan.intervals[0]} it predicts {number(printed.mean)}, with the neighbours' information "
            f"{number(full.mean)} ({gap})."
        )

    return decide(_matches(plan, results, "linear", "fast-fixed"), reason)


def _quotient(results: Results, point: Point, label: str, tests: int) -> Interval | None:
    """Measured over predicted error; None where a run diverged."""
    measured, predicted = _measured(results, point, label), _predicted(results, point, label)
    return None if measured.diverged or predicted.diverged else ratio(measured.runs, predicted.runs, tests)


def _far_from_one(found: Interval) -> bool:
    return found.low > 1 + MATCH or found.high < 1 - MATCH


def _close_to_one(found: Interval) -> bool:
    return found.low > 1 - MATCH and found.high < 1 + MATCH


def _consensus_reason(plan: Plan, results: Results, data: str, asked: Asked) -> str:
    """Where DPCrowd's ratio is off: is that of a filter without the consensus term right?"""
    told = []
    for interval in plan.intervals:
        point = fixed_point(plan, data, interval)
        fused, alone = (_quotient(results, point, who, asked.tests) for who in ("dpcrowd-fixed", "fast-fixed"))
        if fused is not None and alone is not None and _far_from_one(fused) and _close_to_one(alone):
            told.append(f"{number(fused.value)} at I={interval}, where FAST-fixed has {number(alone.value)}")
    if not told:
        return ""
    return (
        f"Measured over predicted error is {'; '.join(told)}: a filter without the consensus term is right about "
        "itself. Likely: the pull towards the neighbours' priors, C·Σ(x̄_j − x̄_i), brings what they heard earlier, and "
        "M does not count it."
    )


def error_variance_falls_with_epsilon(plan: Plan, results: Results) -> Verdict:
    """DPCrowd's squared error falls as ε grows.

    Section "Utility Analysis": "With the increase of ε, observation noise variance R̂_i(t) decreases, and so does the
    error variance".

    The measured mean squared error, with adaptive sampling (figure 4).
    """
    cases = [falling(on(data), epsilon_curve(plan, results, data, "dpcrowd", "mse")) for data in plan.single]
    return decide(cases)


def slot_costs_less_than_a_tenth_of_a_millisecond(
    plan: Plan, results: Results, slot_cost: SlotCost | None = None
) -> Verdict:
    """A slot of one server costs less than 0.1 ms, in DPCrowd and in DPCrowd+.

    Section "Simulation Setup", footnote: "[the core algorithms] consume less than 0.1ms when executed on a real
    machine".

    Judged for a server-slot in the simulator's batches (all work divided by the number of server-slots), and for one
    live server with five neighbours: holds if three quarters of its slots take less, fails if three quarters take more.
    """
    cases = []
    if "linear" in plan.data:
        cases.append(_batch(results, over_time.point(plan, "linear"), "dpcrowd", 1))
    for data in plan.multi:
        point = dict(epsilon_regions.swept(plan, data, "sound"))[plan.epsilons[-1]]
        cases.append(_batch(results, point, "dpcrowd-plus", len(plan.data[data].regions)))
    timings = () if slot_cost is None else slot_cost.timings
    machine = "" if slot_cost is None else slot_cost.machine
    cases += [_live(timing, timings, machine) for timing in timings if not timing.secure]
    if not timings:
        cases.append(
            Case("one live server", 0, lambda _: cannot_tell("Not timed.", "", "A live server was not timed."))
        )

    def reason(_: Asked) -> str:
        plain = [timing for timing in timings if not timing.secure and timing.median >= LIMIT_MS]
        if len(plain) < 2 or plain[-1].median > 3 * plain[0].median:
            return ""
        return (
            f"One live server takes {number(plain[0].median)} ms for {plain[0].regions} region and "
            f"{number(plain[-1].median)} ms for {plain[-1].regions}: its time depends little on how much is computed. "
            "Likely: it goes into calls of interpreted code, which the simulator shares among all servers of a batch."
        )

    return decide(cases, reason)


def _batch(results: Results, point: Point, label: str, regions: int) -> Case:
    record = results[point][label]

    def ask(_: int) -> Finding:
        if record.server_slots < 1:
            return cannot_tell("No server-slots were counted.", "", "No server-slots were counted.")
        cost = 1000.0 * record.seconds / record.server_slots
        outcome: Outcome = "holds" if cost < LIMIT_MS else "does not hold"
        return Finding(
            outcome, f"{number(cost)} ms a server-slot.", f"total time of {record.server_slots:,} server-slots"
        )

    return Case(f"simulator, {name_of(label)}, {regions} region{'s' * (regions > 1)}", 0, ask)


def _live(timing: Timing, timings: tuple[Timing, ...], machine: str) -> Case:
    secure = [t for t in timings if t.secure and (t.scheme, t.regions) == (timing.scheme, timing.regions)]

    def ask(_: int) -> Finding:
        outcome: Outcome = "undecided"
        if timing.high < LIMIT_MS:
            outcome = "holds"
        elif timing.low > LIMIT_MS:
            outcome = "does not hold"
        told = f"Median {number(timing.median)} ms, quartiles {number(timing.low)} and {number(timing.high)} ms"
        told += "".join(f"; with the exact noise of real data {number(t.median)} ms (not judged)" for t in secure)
        return Finding(outcome, f"{told}.", f"{timing.slots} slots on this machine ({machine})")

    plural = "s" * (timing.regions > 1)
    return Case(f"one live server, {name_of(timing.scheme)}, {timing.regions} region{plural}", 0, ask)


ANALYSIS = (
    claim(error_analysis_with_neighbours_matches, 3, instead=(5, 9), data=("linear",)),
    claim(error_analysis_with_neighbours_matches_on_flu, 3, instead=(5, 9), data=("flu",)),
    claim(printed_error_analysis_matches, 3, instead=(5, 9), data=("linear",)),
    claim(error_variance_falls_with_epsilon, 4),
)
COST = (claim(slot_costs_less_than_a_tenth_of_a_millisecond, 1, 7, timed=True),)
