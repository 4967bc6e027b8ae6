"""Likely reasons for failing claims, each derived from the results or their setting; none is a guess without a number.

A reason that compares uses the intervals of the claim, and says nothing that they do not decide. A reason that the
results do not support is an empty text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache

import numpy as np

from dpcrowd.experiments.claims.cases import Failures
from dpcrowd.experiments.claims.claim import REASON_TEXTS
from dpcrowd.experiments.claims.evidence import Evidence
from dpcrowd.experiments.claims.findings import FLAT, MATCH, Points, below, u_shaped
from dpcrowd.experiments.claims.intervals import Gap, Interval, compare, number, ratio, ratio_by_run
from dpcrowd.experiments.claims.slot_cost import LIMIT_MS
from dpcrowd.experiments.figures import Sweep
from dpcrowd.experiments.figures.figure import DATA_NAMES
from dpcrowd.experiments.figures.rosters import name_of
from dpcrowd.experiments.points.plan import RunPlan
from dpcrowd.experiments.points.point import Point
from dpcrowd.experiments.points.run import Results
from dpcrowd.network.costs import components
from dpcrowd.network.random_graph import LATENCY_MS, RandomGraph

__all__ = ["REASONS", "convergence_note", "payment_note"]

_NETWORKS = 200


# -------------------------------------------------------------------------------------------------------- the network


def _disconnected_networks(plan: RunPlan, density: float) -> str:
    """Say how often a random network of some density is not connected, by drawing some."""
    split = _count_disconnected(plan.servers, density, plan.seed)
    if not split:
        return ""
    return (
        f"At ρ={density:g}, {split / _NETWORKS:.1%} of {_NETWORKS} random networks are not connected: in such a slot "
        "flooding reaches only the servers of one part, and the parts disagree."
    )


@cache
def _count_disconnected(servers: int, density: float, seed: int) -> int:
    """Return how many of the drawn networks are not connected; several claims ask for the same networks."""
    networks = RandomGraph(servers, density, None).draw_unions([np.random.default_rng(seed)], _NETWORKS)
    return sum(int(components(graph).max()) > 0 for graph in networks)


def _few_neighbours(evidence: Evidence, _: Failures) -> str:
    """Name the parameter to suspect where servers agree less than the paper says."""
    plan = evidence.plan
    return (
        f"Likely: a parameter. The paper gives neither the density nor the consensus step of this figure. At "
        f"ρ={plan.default_density:g} a server has {plan.default_density * (plan.servers - 1):.2g} neighbours on "
        "average, and figure 2 shows that servers with more neighbours agree better."
    )


def _fast_paths(evidence: Evidence, failures: Failures) -> str:
    """Say where flooding is fast because the network is dense."""
    sweep, slowest = evidence.sweeps[0], LATENCY_MS[1]
    mine, other = (evidence.points(sweep, label, "latency_ms") for label in ("dpcrowd", "dfast"))
    where = [
        f"{a.at} ({number(b.mean)} ms against {number(a.mean)} ms)"
        for a, b in zip(mine, other, strict=True)
        if b.mean <= slowest and below(a, b, failures.tests).outcome == "does not hold"
    ]
    if not where:
        return ""
    return (
        "Likely: in a dense network flooding avoids slow links by faster paths, while one hop must wait for "
        f"the slowest link of up to {slowest:g} ms: DFAST is not slower at {', '.join(where)}."
    )


def _beside_the_limit(evidence: Evidence, failures: Failures) -> str:
    """Say how much worse a server of a sparse network is than a central filter with the same samples."""
    texts, epsilon = [], max(evidence.plan.density_epsilons)
    for data in filter(failures.fails_on, evidence.plan.single):
        points = evidence.by_budget(data)[0].of("dpcrowd")
        ends = points[0], points[-1]
        sparse, dense = (
            _compare_are(evidence.results, point, "dpcrowd", "central", failures.tests) for _, point in ends
        )
        if sparse is None or dense is None or not (sparse.by_ratio and dense.by_ratio):
            continue
        if sparse.interval.low > max(1 + FLAT, dense.interval.high):
            texts.append(
                f"{number(sparse.interval.value)} (interval {sparse.interval}) at ρ={ends[0][0]:g} and "
                f"{number(dense.interval.value)} at ρ={ends[1][0]:g} on {DATA_NAMES[data]}"
            )
    if not texts:
        return ""
    return (
        f"Also at ε={epsilon:g} a server learns much from more neighbours: DPCrowd's ARE divided by that of a central "
        f"filter with all samples is {'; '.join(texts)}."
    )


def _as_with_more_noise(evidence: Evidence, failures: Failures) -> str:
    """Say where ACE falls more with the density if there is less noise; the paper's reason needs the opposite."""
    texts = []
    for data in filter(failures.fails_on, evidence.plan.single):
        weak, strong = evidence.by_budget(data)
        quiet, noisy = (evidence.points(s, "dpcrowd", "ace", "below full density") for s in (weak, strong))
        ends = (quiet[0], quiet[-1], noisy[0], noisy[-1])
        if any(values.diverged for values in ends):
            continue
        ratios = [ratio_by_run(points[-1].runs, points[0].runs, failures.tests) for points in (quiet, noisy)]
        if ratios[0] is None or ratios[1] is None:
            continue
        gap = compare(ends[1].runs * ends[2].runs, ends[0].runs * ends[3].runs, failures.tests)
        if gap is not None and gap.below:
            texts.append(
                f"on {DATA_NAMES[data]}, from {quiet[0].at} to {quiet[-1].at}, to {number(ratios[0].value)} times at "
                f"{weak.setting} and to {number(ratios[1].value)} times at {strong.setting}"
            )
    if not texts:
        return ""
    return (
        "The results do not support the paper's reason, that with less noise few neighbours are enough to agree. ACE "
        f"falls more where there is less noise: {'; '.join(texts)}."
    )


# ----------------------------------------------------------------------------------------------- sampling over time


def convergence_note(first: Points, second: Points) -> str:
    """Return a note if most runs have no convergence that could be compared."""
    settled = (first[0], second[0])
    share = np.all([values.runs == 0 for values in settled], axis=0).mean() if first[0].runs.size else 0.0
    if share < 0.5:
        return ""
    names = " and ".join(values.name for values in settled)
    return f"In {share:.0%} of the runs {names} are at their level from slot 0 on: there is no convergence to compare."


def _settled_at_once(evidence: Evidence, _: Failures) -> str:
    comparison = evidence.claim.cases[0]
    labels = (comparison.of[0], comparison.than[0])
    first, second = (evidence.points(evidence.sweeps[0], label, "are", "settling slot") for label in labels)
    return REASON_TEXTS["corrected start"] if convergence_note(first, second) else ""


def _good_start(evidence: Evidence, failures: Failures) -> str:
    """Say which schemes have a lower error in slot 0 than later."""
    texts = []
    for label in evidence.claim.cases[0].of:
        (start,), (late,) = (
            evidence.points(evidence.sweeps[0], label, "are", view) for view in ("start", "second half")
        )
        if below(start, late, failures.tests).outcome == "holds":
            texts.append(f"{start.name} {number(start.mean)} against {number(late.mean)}")
    if not texts:
        return ""
    lower = f"ARE is lower in slot 0 than in the second half of the stream ({'; '.join(texts)})."
    return f"{lower} {REASON_TEXTS['corrected start']}"


def _late_start(_: Evidence, failures: Failures) -> str:
    return REASON_TEXTS["corrected start"] if any("slot" in name for name in failures.cases) else ""


def _server_alone(evidence: Evidence, failures: Failures) -> str:
    """Say whether a server alone, with the same samples, has a valley that communication removes."""
    texts = []
    for sweep in evidence.sweeps:
        if not failures.fails_on(sweep.data):
            continue
        valley = u_shaped(evidence.points(sweep, "fast-fixed", "are"), failures.tests)
        numbers = valley.numbers.rstrip(".")
        if valley.outcome == "holds":
            texts.append(
                f"On {sweep.name} a server alone does have a best interval between the ends ({numbers}): the "
                "neighbours' samples compensate for the noise of short intervals."
            )
        elif valley.outcome == "does not hold":
            texts.append(
                f"On {sweep.name} a server alone has no best interval between the ends either ({numbers}): there, "
                "skipping slots costs more than it saves in noise, with and without neighbours."
            )
    return " ".join(texts)


def _unspent_budget(evidence: Evidence, failures: Failures) -> str:
    """Say how much budget adaptive sampling does not spend: it pays ε/T_s per sample, for at most T_s samples."""
    texts, label = [], "dpcrowd-adaptive"
    for sweep in evidence.sweeps:
        allowed = evidence.plan.data[sweep.data].tuning.sample_fraction
        used = evidence.points(sweep, label, "frequency")[0].mean
        if failures.fails_on(sweep.data) and used < 0.95 * allowed:
            texts.append(
                f"{name_of(label)} samples {used:.1%} of the slots on {sweep.name} where {allowed:.0%} are paid for: "
                f"{1 - used / allowed:.0%} of its budget is never spent."
            )
    return " ".join(texts)


# ------------------------------------------------------------------------------------------------- the error analysis


def _quotient(evidence: Evidence, label: str, tests: int) -> list[tuple[str, Interval | None]]:
    """Return the measured over the predicted error of a scheme at each interval; None where a run diverged."""
    measured, predicted = (evidence.points(evidence.sweeps[0], label, metric) for metric in ("mse", "claimed_mse"))
    return [
        (a.at, None if a.diverged or b.diverged else ratio(a.runs, b.runs, tests))
        for a, b in zip(measured, predicted, strict=True)
    ]


def _far_from_one(quotient: Interval) -> bool:
    return quotient.low > 1 + MATCH or quotient.high < 1 - MATCH


def _consensus_term(evidence: Evidence, failures: Failures) -> str:
    """Say where DPCrowd's ratio is not 1 although that of a filter without the consensus term is."""
    texts = []
    pairs = zip(*(_quotient(evidence, who, failures.tests) for who in ("dpcrowd-fixed", "fast-fixed")), strict=True)
    for (at, fused), (_, alone) in pairs:
        if fused is None or alone is None or not _far_from_one(fused):
            continue
        if alone.low > 1 - MATCH and alone.high < 1 + MATCH:
            texts.append(f"{number(fused.value)} at {at}, where FAST-fixed has {number(alone.value)}")
    if not texts:
        return ""
    return (
        f"Measured over predicted error is {'; '.join(texts)}: a filter without the consensus term predicts its "
        "own error. Likely: the pull towards the neighbours' priors, C·Σ(x̄_j − x̄_i), contains information that they "
        "received earlier, which M does not count."
    )


def _random_walk(evidence: Evidence, failures: Failures) -> str:
    """Say where a server alone does not have its predicted error either."""
    misses = [
        f"{number(quotient.value)} at {at}"
        for at, quotient in _quotient(evidence, "fast-fixed", failures.tests)
        if quotient is not None and _far_from_one(quotient)
    ]
    if not misses:
        return ""
    return (
        "A server alone, whose filter has no neighbours to account for, does not have its predicted error either "
        f"(measured over predicted for FAST-fixed: {', '.join(misses)}): the random walk with one constant Q is not "
        "how Flu moves."
    )


def _printed_form(evidence: Evidence, failures: Failures) -> str:
    """Say that the printed recursion describes a server alone, if its prediction is above the other one."""
    printed, full = (
        evidence.points(evidence.sweeps[0], who, "claimed_mse")[0] for who in ("fast-fixed", "dpcrowd-fixed")
    )
    gap = None if printed.diverged or full.diverged else compare(full.runs, printed.runs, failures.tests)
    if gap is None or not gap.below:
        return ""
    return (
        "The printed form omits the neighbours' information from Y_i, and so describes a server alone: at "
        f"{printed.at} it predicts {number(printed.mean)}; with the neighbours' information the prediction is "
        f"{number(full.mean)} ({gap})."
    )


# --------------------------------------------------------------------------------------------------- who beats whom


def _compare_are(results: Results, point: Point, first: str, second: str, tests: int) -> Gap | None:
    """Compare the ARE of two schemes at a point, with the interval of the claim; None where a run diverged."""
    a, b = (np.asarray(results[point][label].are, dtype=np.float64) for label in (first, second))
    return compare(a, b, tests) if np.isfinite(a).all() and np.isfinite(b).all() else None


def _against_the_limit(results: Results, point: Point, mine: str, rival: str, where: str, tests: int) -> str:
    """Say whether the samples or the fusion are the cause: the central filter has all samples of `mine` at once.

    The text is empty unless `mine` is shown to lose to its rival and to the central filter, and these two are shown to
    differ.
    """
    rival_gap, limit_gap, limit = (
        _compare_are(results, point, *pair, tests) for pair in ((mine, rival), (mine, "central"), ("central", rival))
    )
    if rival_gap is None or limit_gap is None or limit is None or not (rival_gap.above and limit_gap.above):
        return ""
    if limit.above:
        return (
            f"{where}: even a central filter with all samples of {name_of(mine)} has a higher ARE than "
            f"{name_of(rival)} ({limit}): here the samples and their ε decide, not which servers communicate."
        )
    if limit.below:
        return (
            f"{where}: a central filter with all samples of {name_of(mine)} has a lower ARE than "
            f"{name_of(rival)} ({limit}), {name_of(mine)} a higher one ({rival_gap}): it loses because servers receive "
            "only what their neighbours send."
        )
    return ""


def _central_filter(evidence: Evidence, failures: Failures) -> str:
    """Return the cause at the first point at which the central filter shows why DPCrowd is beaten."""
    ((mine,), (rival,)) = (evidence.claim.cases[0].of, evidence.claim.cases[0].than)
    for sweep in evidence.sweeps:
        for x, point in sweep.of(mine):
            where = f"{sweep.name}, {sweep.symbol}={x:g}"
            if text := _against_the_limit(evidence.results, point, mine, rival, where, failures.tests):
                return text
    return ""


def _beaten(evidence: Evidence, failures: Failures) -> str:
    """Return the cause of the worst defeat in ARE on each data set, and how often each scheme samples."""
    texts, results = [], evidence.results
    (mine,), rivals = evidence.claim.cases[0].of, evidence.claim.cases[0].than
    for sweep in filter(lambda sweep: failures.fails_on(sweep.data), evidence.sweeps):
        defeat = _worst_defeat(results, sweep, ((mine, rival) for rival in rivals), failures.tests)
        if defeat is not None:
            _, where, point, _, rival = defeat
            cause = _against_the_limit(results, point, mine, rival, where, failures.tests)
            texts.append(cause + (_how_often(results, point, mine, rival) if cause else ""))
    return " ".join(text for text in texts if text)


def _not_worst(evidence: Evidence, failures: Failures) -> str:
    """Say which scheme is worse than the one that should be the worst, and what the two pay."""
    texts, results = [], evidence.results
    others, (worst,) = evidence.claim.cases[0].of, evidence.claim.cases[0].than
    for sweep in filter(lambda sweep: failures.fails_on(sweep.data), evidence.sweeps):
        defeat = _worst_defeat(results, sweep, ((other, worst) for other in others), failures.tests)
        if defeat is None:
            continue
        gap, where, point, other, _ = defeat
        text = f"{where}: {name_of(other)} has a higher ARE than {name_of(worst)} ({gap})"
        payments = [_overpayment(results, point, label) for label in (other, worst)]
        if payments[1] > 1.01 * max(payments[0], 1.0):
            text += f", whose moving users pay {number(payments[1])} ε; those of the former pay {number(payments[0])} ε"
        texts.append(f"{text}.{_how_often(results, point, worst, other)}")
    return " ".join(texts)


def _worst_defeat(
    results: Results, sweep: Sweep, pairs: Iterable[tuple[str, str]], tests: int
) -> tuple[Gap, str, Point, str, str] | None:
    """Return where the ARE of a first scheme is shown to exceed that of a second one most; None if nowhere."""
    defeats = [
        (gap, f"{DATA_NAMES[sweep.data]}, {sweep.symbol}={x:g}", point, first, second)
        for first, second in pairs
        for x, point in sweep.of(first)
        if (gap := _compare_are(results, point, first, second, tests)) is not None and gap.above
    ]
    return max(defeats, key=lambda defeat: defeat[0].size, default=None)


def _how_often(results: Results, point: Point, mine: str, rival: str) -> str:
    """Say how often the two sample."""
    often = [float(np.mean(results[point][label].frequency)) for label in (mine, rival)]
    if not np.isfinite(often).all() or round(100 * often[0]) == round(100 * often[1]):
        return ""
    return f" {name_of(mine)} samples {often[0]:.0%} of the slots there, {name_of(rival)} {often[1]:.0%}."


def _overpayment(results: Results, point: Point, label: str) -> float:
    """Return the largest multiple of ε that a user who moves between regions paid in any run."""
    return max((p.epsilons()["moving"] / point.epsilon for p in results[point][label].paid), default=0.0)


def payment_note(results: Results, sweep: Sweep, labels: Iterable[str]) -> str:
    """Return a note on what moving users really pay under the paper's ledger; empty where it is what was promised."""
    if sweep.points[0][1].accounting == "sound":
        return ""
    most = {label: max(_overpayment(results, point, label) for _, point in sweep.of(label)) for label in labels}
    texts = [f"{name_of(label)} {number(times)} ε" for label, times in most.items() if times > 1.0]
    return f"A moving user really pays up to: {', '.join(texts)}." if texts else ""


# ----------------------------------------------------------------------------------------------------- time of a slot


def _interpreted_code(evidence: Evidence, _: Failures) -> str:
    timings = () if evidence.slot_cost is None else evidence.slot_cost.timings
    slow = [timing for timing in timings if not timing.secure and timing.median >= LIMIT_MS]
    if len(slow) < 2 or slow[-1].median > 3 * slow[0].median:
        return ""
    return (
        f"One live server takes {number(slow[0].median)} ms for {slow[0].regions} region and "
        f"{number(slow[-1].median)} ms for {slow[-1].regions}: its time depends little on the amount of "
        "computation. Likely: interpreted code takes most of it; the simulator shares it among all servers of a batch."
    )


def _always(text: str) -> Callable[[Evidence, Failures], str]:
    return lambda *_: text


REASONS: dict[str, Callable[[Evidence, Failures], str]] = {
    **{name: _always(text) for name, text in REASON_TEXTS.items()},
    "network in parts": lambda evidence, _: _disconnected_networks(evidence.plan, evidence.plan.default_density),
    "sparsest network in parts": lambda evidence, _: _disconnected_networks(evidence.plan, evidence.plan.densities[0]),
    "networks in parts": lambda evidence, _: " ".join(
        text for density in evidence.plan.densities if (text := _disconnected_networks(evidence.plan, density))
    ),
    "few neighbours": _few_neighbours,
    "fast paths": _fast_paths,
    "beside the limit": _beside_the_limit,
    "as with more noise": _as_with_more_noise,
    "settled at once": _settled_at_once,
    "good start": _good_start,
    "late start": _late_start,
    "server alone": _server_alone,
    "unspent budget": _unspent_budget,
    "consensus term": _consensus_term,
    "random walk": _random_walk,
    "printed form": _printed_form,
    "central filter": _central_filter,
    "beaten": _beaten,
    "not worst": _not_worst,
    "interpreted code": _interpreted_code,
}
"""Reasons by the names that `claims.toml` uses."""
