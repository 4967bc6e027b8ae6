"""The list of claims: complete, in the paper's order, quoted, and honest about what was not judged."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from claims_support import World, made_up_plan, timed, turned_round
from dpcrowd.experiments.claims import CLAIMS, Part, Verdict, judge, judge_all, why_not_judged
from dpcrowd.experiments.claims.cases import Case, Failures, decide
from dpcrowd.experiments.claims.claim import combine
from dpcrowd.experiments.claims.findings import ClaimFinding, cannot_tell
from dpcrowd.experiments.claims.reasons import REASONS
from dpcrowd.experiments.claims.slot_cost import measure_slot_cost
from dpcrowd.experiments.figures import FIGURES
from dpcrowd.experiments.points.point import Point
from dpcrowd.sim.result import METRICS, SimulationResult

ALL = set(range(1, 8))
SECTIONS = (
    "Utility Analysis",
    "Communication Latency and Cost",
    "Simulation Setup",
    "Estimation Utility of DPCrowd",
    "Estimation Efficiency of DPCrowd",
    "Overall Performance of DPCrowd+",
)


def test_every_claim_quotes_its_place() -> None:
    """A claim without a place in the paper could be anything."""
    for each in CLAIMS:
        assert each.statement.endswith("."), each.name
        assert re.match(r'Section "[^"]+"', each.place), each.name
        assert each.figures, each.name
        assert each.cases, each.name
        assert {*each.reasons, *([each.undecided] if each.undecided else [])} <= set(REASONS), each.name
    quoted = [each for each in CLAIMS if each.place.count('"') >= 4]
    assert len(quoted) >= len(CLAIMS) - 1, "all but the one on Flu quote the paper's words"


def test_claims_stand_in_the_order_of_the_paper() -> None:
    """A reader follows the paper."""
    sections = [SECTIONS.index(re.findall(r'Section "([^"]+)"', each.place)[0]) for each in CLAIMS]
    assert sections == sorted(sections)
    figures = [min(each.figures) for each in CLAIMS if "Estimation Utility" in each.place]
    assert figures == sorted(figures)


def test_claims_on_many_regions_are_judged_under_both_ledgers() -> None:
    """The paper's ledger alone would compare schemes at different privacy."""
    ledgers: dict[str, list[str | None]] = {}
    for each in CLAIMS:
        ledgers.setdefault(each.name, []).append(each.ledger)
    for each in CLAIMS:
        many = set(each.figures) & {6, 7} and not each.timed
        assert ledgers[each.name] == (["per-region", "sound"] if many else [None]), each.name


def test_json_form() -> None:
    """claims.json is written from this."""
    for each, verdict in judge_all(made_up_plan(), World(), ALL, slot_cost=timed(0.05)):
        assert verdict is not None
        back = json.loads(json.dumps({**each.to_json(), **verdict.to_json()}, allow_nan=False))
        assert back["name"] == each.name
        assert back["ledger"] == each.ledger
        unlike = ("consensus_error_follows_the_same_trend", "dpcrowd_converges_better_on_flu")
        assert back["outcome"] == "holds" or each.name in unlike
        assert back["by_construction"] == ("holds by construction" in back["rule"])
        assert set(back["parts"][0]) == {"case", "outcome", "numbers", "confidence"}


def test_figures_that_were_not_run_leave_claims_unjudged() -> None:
    """A claim must not be judged on results that are not there, and the report must say what is missing."""

    class Nothing(World):
        def __getitem__(self, point: object) -> None:  # type: ignore[override]
            raise AssertionError(f"{point} was not run")

    found = judge_all(made_up_plan(), Nothing(), set())
    assert all(verdict is None for _, verdict in found)
    for each in CLAIMS:
        reason = why_not_judged(each, made_up_plan(), set())
        assert all(str(figure) in reason for figure in each.figures)
        assert all(str(figure) in reason for figure in each.instead)
    one = judge_all(made_up_plan(), World(), {4})
    assert {each.figures for each, verdict in one if verdict is not None} == {(4,)}
    timed_one = next(each for each in CLAIMS if each.timed)
    assert why_not_judged(timed_one, made_up_plan(), {1}) == "needs figure 7, which was not run."
    assert why_not_judged(timed_one, made_up_plan(), {2}) == "needs figures 1 and 7, which were not run."


def test_missing_data_sets() -> None:
    """Without Flu a claim about both sets may fail, but it cannot hold; one about Flu alone is not judged."""
    plan = made_up_plan("linear", "multi-linear")
    found = {
        (each.name, each.ledger): verdict for each, verdict in judge_all(plan, World(), ALL, slot_cost=timed(0.05))
    }
    both = found["error_falls_with_epsilon", None]
    assert both is not None
    assert both.outcome == "undecided"
    assert both.parts[-1].case == "Flu"
    assert "not on this machine" in both.parts[-1].numbers
    many = found["rescuedp_is_worst_at_any_epsilon", "sound"]
    assert many is not None
    assert many.parts[-1].case == "Multi-Flu"
    assert both.reason == "Flu was not found, and the claim is about it, too."
    assert found["dpcrowd_converges_better_on_flu", None] is None
    assert found["flu_is_harder_than_linear", None] is None
    assert found["plus_leads_most_on_multi_flu", "sound"] is None
    alone = next(each for each in CLAIMS if each.name == "dpcrowd_converges_better_on_flu")
    assert why_not_judged(alone, plan, ALL) == "needs Flu, which was not found."
    verdict = found["relative_error_falls_with_time", None]
    assert verdict is not None
    assert verdict.outcome == "holds"


@pytest.mark.slow
def test_no_claim_holds_without_a_data_set_that_it_speaks_of() -> None:
    """By construction, whatever a claim's function says: 'in most cases' and all."""
    for there in (("linear", "multi-linear"), ("flu", "multi-flu")):
        plan = made_up_plan(*there)
        for each, verdict in judge_all(plan, World(), ALL, slot_cost=timed(0.05)):
            missing = [data for data in each.speaks_of if data not in plan.data]
            assert not each.timed or (verdict is not None and verdict.outcome == "holds"), "said of no data set"
            if verdict is None:
                assert missing, each.name
            elif missing:
                assert verdict.outcome != "holds", each.name
                assert "not on this machine" in verdict.parts[-1].numbers
                assert verdict.outcome == "does not hold" or "not found" in verdict.reason, each.name
                assert "too wide" not in verdict.reason, each.name
    plan = made_up_plan("linear", "multi-linear")
    failing = {each.name: v for each, v in judge_all(plan, World(mean=turned_round), ALL) if v is not None}
    assert failing["error_falls_with_epsilon"].outcome == "does not hold", "one set is enough to fail"
    assert "not found" not in failing["error_falls_with_epsilon"].reason


@pytest.mark.slow
def test_a_figure_that_has_the_points_is_enough() -> None:
    """`dpcrowd reproduce 9` has what the error analysis needs; and no claim may ask for a point that was not run."""
    plan = made_up_plan()

    class Seen(World):
        def __getitem__(self, point: Point) -> SimulationResult:
            asked.add(point)
            return super().__getitem__(point)

    points = {figure.number: set(figure.points(plan)) for figure in FIGURES}
    worlds = Seen(), Seen(mean=turned_round, seconds=10.0)
    for each in CLAIMS:
        asked: set[Point] = set()
        for world in worlds:
            judge(each, plan, world, timed(0.05))
        assert asked <= set().union(*(points[figure] for figure in each.figures)), each.name
        enough = {number for number, have in points.items() if asked <= have}
        assert enough == {*each.instead, *(each.figures if len(each.figures) == 1 else ())}, each.name
    nine = {each.name for each, verdict in judge_all(plan, World(), {9}) if verdict is not None}
    assert nine == {each.name for each in CLAIMS if 9 in each.instead}
    assert nine >= {each.name for each in CLAIMS if "error_analysis" in each.name}
    needs = next(each for each in CLAIMS if each.name == "printed_error_analysis_matches")
    assert why_not_judged(needs, plan, {1}) == "needs figure 3 (or 5 or 9), which was not run."


def test_what_holds_by_construction_is_marked() -> None:
    """A tick that could not have been a cross must not look like a finding."""
    assert {each.name for each in CLAIMS if each.by_construction} == {
        "messages_go_one_hop",
        "adaptive_sampling_is_flat",
        "fixed_frequency_falls_with_interval",
        "adaptive_frequency_stays_below_its_limit",
    }


def test_why_nothing_could_be_decided() -> None:
    """More runs do not help where there is nothing to run."""
    wide = Case("a", 1, lambda _: ClaimFinding("undecided", "", ""))
    untimed = Case("b", 0, lambda _: cannot_tell("", "", "It was not timed."))
    assert decide([untimed]).reason == "It was not timed."
    assert "too wide" in decide([wide]).reason
    assert "It was not timed. The intervals" in decide([wide, untimed]).reason
    assert decide([wide], undecided="It is late.").reason.startswith("It is late. The intervals")
    failing = Case("c", 3, lambda _: ClaimFinding("does not hold", "", ""))
    assert decide([failing, wide], repr).reason == repr(Failures(("c",), 4))
    assert decide([failing, wide]).reason == "The recorded numbers point to no reason."


def test_combining_parts() -> None:
    """One failure decides; an open part leaves the whole open; nothing at all decides nothing."""
    good, bad, unclear = (Part("", outcome, "", "") for outcome in ("holds", "does not hold", "undecided"))
    assert combine([good, good], "why").outcome == "holds"
    assert combine([good, good], "why").reason == ""
    assert combine([good, unclear, bad], "why") == Verdict("does not hold", (good, unclear, bad), "why")
    assert combine([good, unclear], "why").outcome == "undecided"
    assert combine([]).outcome == "undecided"


def test_intervals_of_all_cases_are_counted_together() -> None:
    """Each case must be asked at the level that all cases of the claim share."""
    asked = []

    def case(intervals: int) -> Case:
        return Case("", intervals, lambda tests: asked.append(tests) or ClaimFinding("holds", "", ""))  # type: ignore[func-returns-value]

    decide([case(2), case(3), case(0)])
    assert asked == [5, 5, 5]


def test_names_in_the_rows_are_known_and_used() -> None:
    """A scheme, metric or reason that is misspelt in a row would end the report after an hour of work."""
    labels = {entry.label for figure in FIGURES for point in figure.points(made_up_plan()) for entry in point.entries}
    for each in CLAIMS:
        for comparison in each.cases:
            assert {*comparison.of, *comparison.than} - {""} <= labels, each.name
            assert {*comparison.metric} <= {*METRICS, "claimed_mse"}, each.name
    used = {name for each in CLAIMS for name in (*each.reasons, each.undecided) if name}
    assert used == set(REASONS), "and a reason that no claim gives is dead code"


@pytest.mark.slow
def test_one_live_server_is_timed() -> None:
    """The cost of a slot must be measured, for both schemes, and with the exact noise."""
    cost = measure_slot_cost(slots=5)
    kinds = [(t.scheme, t.regions, t.secure) for t in cost.timings]
    assert kinds == [(n, d, s) for n, d in (("dpcrowd", 1), ("dpcrowd-plus", 51)) for s in (False, True)]
    assert all(0 < t.low <= t.median <= t.high and np.isfinite(t.high) for t in cost.timings)
    assert "Python" in cost.machine


def test_a_slot_that_was_not_timed_is_undecided() -> None:
    """The simulator's speed alone must not stand for a live server's."""
    timed_one = next(each for each in CLAIMS if each.timed)
    assert judge(timed_one, made_up_plan(), World()).outcome == "undecided"
    slow_batches = judge(timed_one, made_up_plan(), World(seconds=10.0), timed(0.05))
    assert slow_batches.outcome == "does not hold"
    slow = judge(timed_one, made_up_plan(), World(), timed(0.3))
    assert slow.outcome == "does not hold"
    assert "0.3 ms for 1 region and 0.3 ms for 51" in slow.reason
