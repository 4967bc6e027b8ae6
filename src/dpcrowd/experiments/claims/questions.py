"""The questions of a claim: one case for each sweep, scheme, rival and metric of its comparisons."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from dpcrowd.experiments.claims import cases
from dpcrowd.experiments.claims.cases import Case, with_note
from dpcrowd.experiments.claims.claim import Outcome, SweepComparison
from dpcrowd.experiments.claims.evidence import Evidence
from dpcrowd.experiments.claims.findings import ClaimFinding, Points, cannot_tell
from dpcrowd.experiments.claims.intervals import number
from dpcrowd.experiments.claims.reasons import convergence_note, payment_note
from dpcrowd.experiments.claims.slot_cost import LIMIT_MS, SlotCost, SlotTiming
from dpcrowd.experiments.figures import Sweep
from dpcrowd.experiments.figures.figure import DATA_NAMES, METRIC_NAMES
from dpcrowd.experiments.figures.rosters import name_of
from dpcrowd.experiments.points.plan import RunPlan
from dpcrowd.experiments.points.point import Point
from dpcrowd.experiments.points.run import Results
from dpcrowd.network.random_graph import LATENCY_MS

__all__ = ["cases_of"]

_SAME_SPEED = 5.0  # slots: "the same convergence speed"


def cases_of(evidence: Evidence) -> list[Case]:
    """Return all cases of a claim: sweep by sweep, or question by question for claims on many regions."""
    if evidence.claim.timed:
        return list(_timing_cases(evidence))
    questions = [
        (place, number_of, _Question(evidence, comparison, of, than, metric, *sweeps))
        for number_of, (comparison, of, than, metric) in enumerate(
            (comparison, of, than, metric)
            for comparison in evidence.claim.cases
            for of in comparison.of
            for than in comparison.than
            for metric in comparison.metric
        )
        for place, sweeps in enumerate(_places(evidence, comparison))
    ]
    if evidence.claim.ledger is None:
        questions.sort(key=lambda question: question[:2])
    return [case for _, _, question in questions for case in question.cases()]


def _places(evidence: Evidence, comparison: SweepComparison) -> list[tuple[Sweep, Sweep]]:
    """Return the pairs of sweeps to compare: two sweeps for one scheme in two places, otherwise each with itself."""
    sweeps = [sweep for sweep in evidence.sweeps if set(comparison.of) <= set(sweep.labels)]
    sets = dict.fromkeys(sweep.data for sweep in sweeps)
    if comparison.between == ("weak", "strong"):
        return [evidence.by_budget(data) for data in sets]
    if comparison.between is not None:
        first, second = ([sweep for sweep in sweeps if sweep.data == data] for data in comparison.between)
        return list(zip(first, second, strict=True))
    if comparison.on in ("weak", "strong"):
        sweeps = [evidence.by_budget(data)[comparison.on == "strong"] for data in sets]
    elif comparison.on:
        sweeps = [sweep for sweep in sweeps if sweep.data == comparison.on]
    return [(sweep, sweep) for sweep in sweeps]


@dataclass(frozen=True, eq=False)
class _Question:
    """A comparison of one scheme, with one rival or none, in one metric, on one sweep or between two."""

    evidence: Evidence
    comparison: SweepComparison
    of: str
    than: str
    metric: str
    sweep: Sweep
    other: Sweep

    def cases(self) -> list[Case]:
        """Return one case, or one per x where values are compared one by one."""
        first, second = self._sides()
        factor, names = 1.0 / self.comparison.times, [self._name(values.at) for values in first]
        pairs = list(zip(names, first, second, strict=False))
        match self.comparison.test:
            case "below":
                result = [cases.curve_below(names[0], first, second, factor)]
            case "smaller":
                result = [cases.value_below(name, a, b, factor) for name, a, b in pairs]
            case "predicted by":
                result = [cases.values_agree(name, a, b) for name, a, b in pairs]
            case "as fast":
                result = [cases.values_close(name, a, b, _SAME_SPEED, "slots") for name, a, b in pairs]
            case "within its limit":
                limits, what = _limits(self.evidence.plan, self.sweep, self.metric)
                result = [cases.curve_within(names[0], first, limits[: len(first)], what)]
            case "zero":
                result = [cases.curve_zero(names[0], first)]
            case test:
                result = [cases.curve_shape(test, names[0], first)]
        if self.comparison.view == "settling slot":
            note = convergence_note(first, second)
        else:
            labels = [label for label in (self.of, self.than) if label]
            note = payment_note(self.evidence.results, self.sweep, labels)
        return [with_note(case, note) for case in result]

    def _sides(self) -> tuple[Points, Points]:
        """Return the two sides: one scheme in two places, measured and predicted error, or two schemes."""
        if self.sweep is not self.other:
            return self._side(self.sweep), self._side(self.other)
        view = self.comparison.view
        first = self.evidence.points(self.sweep, self.of, self.metric, view)
        if self.comparison.test == "predicted by":
            second = self.evidence.points(self.sweep, self.than, "claimed_mse")
            return [replace(v, name="measured") for v in first], [replace(v, name="predicted") for v in second]
        return first, self.evidence.points(self.sweep, self.than, self.metric, view) if self.than else ()

    def _side(self, sweep: Sweep) -> Points:
        """Return the values of the scheme in one of two places, under the name of the place."""
        place = DATA_NAMES[sweep.data] if self.sweep.data != self.other.data else f"at {sweep.setting}"
        if self.comparison.view != "lead":
            points = self.evidence.points(sweep, self.of, self.metric, self.comparison.view)
            return [replace(values, name=place) for values in points]
        rivals = [than for comparison in self.evidence.claim.cases for than in comparison.than if than]
        return [replace(v, name=f"on {place}") for v in self.evidence.lead(sweep, self.of, rivals, self.metric)]

    def _name(self, at: str) -> str:
        """Return the name of a case at some x; the words in braces in the row are these."""
        words = {
            "data": DATA_NAMES[self.sweep.data],
            "sweep": self.sweep.name,
            "setting": self.sweep.setting,
            "other": DATA_NAMES[self.other.data] if self.other.data != self.sweep.data else self.other.setting,
            "of": name_of(self.of),
            "than": name_of(self.than),
            "metric": METRIC_NAMES.get(self.metric, ""),
            "error": self.metric.upper(),
            "at": at,
        }
        if "{links}" in self.comparison.case:
            words |= self._growth()
        return self.comparison.case.format(**words)

    def _growth(self) -> dict[str, str]:
        """Return by how much links and packets grow from the sparsest to the densest network."""
        mine, other = (self.evidence.points(self.sweep, label, self.metric) for label in (self.of, self.than))
        growth = [number(points[-1].mean / max(points[0].mean, 1e-12)) for points in (mine, other)]
        links = number(self.sweep.points[-1][0] / self.sweep.points[0][0])
        return {
            "start": mine[0].at,
            "end": mine[-1].at,
            "links": links,
            "of_growth": growth[0],
            "than_growth": growth[1],
        }


def _limits(plan: RunPlan, sweep: Sweep, metric: str) -> tuple[list[float], str]:
    """Return the limit of every run at each point, and the words that name it."""
    links = plan.servers * (plan.servers - 1)
    points = [point for _, point in sweep.points]
    match metric:
        case "latency_ms":
            return [LATENCY_MS[1] for _ in points], "the slowest possible link takes"
        case "packets_per_slot":
            return [point.density * links for point in points], "the number of directed links is"
        case _:
            return [plan.data[sweep.data].tuning.sample_fraction for _ in points], "T_s/T is"


# ----------------------------------------------------------------------------------------------------- time of a slot


def _timing_cases(evidence: Evidence) -> Iterator[Case]:
    """Return the cost of a server-slot in the simulator's batches, and of a slot for one live server."""
    for sweep in evidence.sweeps:
        if sweep.data == "linear":
            yield _batch_case(evidence.results, sweep.points[0][1], "dpcrowd", 1)
    for sweep in evidence.sweeps_of(7):
        if sweep.points[0][1].accounting == "sound":
            point = sweep.of("dpcrowd-plus")[-1][1]
            yield _batch_case(evidence.results, point, "dpcrowd-plus", len(evidence.plan.data[sweep.data].regions))
    if evidence.slot_cost is None or not evidence.slot_cost.timings:
        finding = cannot_tell("Not timed.", "", "A live server was not timed.")
        yield Case("one live server", 0, lambda _: finding)
        return
    for timing in evidence.slot_cost.timings:
        if not timing.secure:
            yield _live_case(timing, evidence.slot_cost)


def _batch_case(results: Results, point: Point, label: str, regions: int) -> Case:
    record = results[point][label]
    if record.server_slots < 1:
        finding = cannot_tell("No server-slots were counted.", "", "No server-slots were counted.")
    else:
        cost = 1000.0 * record.seconds / record.server_slots
        finding = ClaimFinding(
            "holds" if cost < LIMIT_MS else "does not hold",
            f"{number(cost)} ms per server-slot.",
            f"total time of {record.server_slots:,} server-slots",
        )
    return Case(f"simulator, {name_of(label)}, {regions} region{'s' * (regions > 1)}", 0, lambda _: finding)


def _live_case(timing: SlotTiming, slot_cost: SlotCost) -> Case:
    outcome: Outcome = "undecided"
    if timing.high < LIMIT_MS:
        outcome = "holds"
    elif timing.low > LIMIT_MS:
        outcome = "does not hold"
    text = f"Median {number(timing.median)} ms, quartiles {number(timing.low)} and {number(timing.high)} ms"
    for other in slot_cost.timings:
        if other.secure and (other.scheme, other.regions) == (timing.scheme, timing.regions):
            text += f"; with the exact noise of real data {number(other.median)} ms (not judged)"
    finding = ClaimFinding(outcome, f"{text}.", f"{timing.slots} slots on this machine ({slot_cost.machine})")
    plural = "s" * (timing.regions > 1)
    name = f"one live server, {name_of(timing.scheme)}, {timing.regions} region{plural}"
    return Case(name, 0, lambda _: finding)
