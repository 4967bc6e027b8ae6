"""The running calibration that live nodes show: from others' records and messages, and counted anew after a restart."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from dpcrowd.filters.calibration import CalibrationWindow
from dpcrowd.node.config import parse_network
from dpcrowd.node.config.samples import sample_network
from dpcrowd.node.live.quality import SuspectedServers, quality
from dpcrowd.node.metrics.registry import Registry, render_all
from dpcrowd.node.metrics.state import set_quality
from dpcrowd.node.slots import rfc3339
from node_support_deployed import GREEDY, RELAY, World, make_files
from node_support_virtual import VirtualLoop, run_virtually

NAMES = ("a", "b", "c", "d")


def of(values: list[float]) -> Any:
    window = CalibrationWindow(1)
    if values:
        window.add(5, np.array(values)[:, None])
    return quality(window.summary(), ["north"], "relay", judges_others=True)


def test_the_verdict_says_which_way_the_intervals_are_wrong() -> None:
    """An operator acts on narrow intervals; wide ones are safe."""
    normal = np.random.default_rng(1).normal(size=1000)
    assert of(list(normal)).verdict == "calibrated"
    assert of(list(2 * normal)).verdict == "narrow"
    assert of(list(normal / 2)).verdict == "wide"
    assert "too narrow" in of(list(2 * normal)).text
    jump = of([*normal, *[9.0] * 25])
    assert (jump.verdict, "some values were far off" in jump.text) == ("calibrated", True), "2.9 is not about right"
    assert (jump.caveats, of(list(normal)).caveats) == (["far-off"], []), "programs do not read sentences"


def test_a_region_of_its_own_is_named_where_all_together_look_right() -> None:
    """One region of three was covered by 0.56, and the verdict on all of them was 'unknown', and then 'calibrated'."""
    rng = np.random.default_rng(2)
    for slots, verdict in ((40, "unknown"), (400, "calibrated")):
        window = CalibrationWindow(8, length=slots)
        for slot in range(slots):
            innovations = 0.9 * rng.normal(size=(1, 8))
            innovations[:, 3] *= 2.6
            window.add(slot, np.where(np.arange(8) >= 4, np.nan, innovations) if slots == 40 else innovations)
        view = quality(window.summary(), list("abcdefgh"), "relay", judges_others=True)
        assert (view.verdict, view.caveats) == (verdict, ["regions"])
        assert "Intervals are too narrow in 1 region, however: since slot 0 only" in view.text
        assert "values in d were inside" in view.text
    false_alarms = 0
    for _ in range(50):
        window = CalibrationWindow(8)
        for slot in range(100):
            window.add(slot, rng.normal(size=(3, 8)))
        false_alarms += "regions" in quality(window.summary(), list("abcdefgh"), "relay", judges_others=True).caveats
    assert false_alarms == 0


@pytest.mark.parametrize("recent", [1.0, np.nan], ids=["recovered", "measured in sums only"])
def test_the_sentence_on_a_region_cites_the_values_that_it_rests_on(recent: float) -> None:
    """It cited those of the last 100 slots, of which 94% were inside, or "nan% of 0 values"."""
    rng = np.random.default_rng(5)
    window = CalibrationWindow(8, dependence=19.5)
    for slot in range(1_000):
        innovations = rng.normal(size=(9, 8))
        innovations[:, 1] *= 2.6 if slot < 800 else recent
        window.add(slot, innovations)
    view = quality(window.summary(), list("abcdefgh"), "relay", judges_others=True)
    evidence = window.summary().evidence
    assert evidence is not None
    assert evidence.values[1] >= 7_200
    assert f"since slot 0 only {evidence.coverage[1]:.0%} of {evidence.values[1]:,} values in b" in view.text
    assert evidence.coverage[1] < 0.7
    assert [region.region for region in view.regions if region.narrow] == ["b"]
    registry = Registry()
    set_quality(registry, view)
    assert "dpcrowd_calibration_narrow_regions 1" in render_all([registry], "readers")


def test_few_records_are_no_reason_to_worry() -> None:
    """The first three records of a new network may all be far off; the numbers are there, the verdict is not."""
    view = of([5.0, 5.0, 5.0])
    assert (view.verdict, view.coverage, view.values, view.since_slot) == ("unknown", 0.0, 3, 5)
    nothing = of([])
    assert (nothing.verdict, nothing.coverage, nothing.calibration, nothing.since_slot) == ("unknown", None, None, None)


def test_who_is_left_out_is_named_and_leaves_no_verdict_if_it_is_many() -> None:
    """Two of four servers were suspected, since shares were wrong; the verdict was 'calibrated', the coverage 0.67."""
    window = CalibrationWindow(1)
    window.add(5, np.random.default_rng(1).normal(size=(1000, 1)))

    def with_suspects(names: list[str], share: float) -> Any:
        left_out = SuspectedServers(names, share, "a")
        return quality(window.summary(), ["north"], "relay", judges_others=True, left_out=left_out)

    many = with_suspects(["a", "d"], 0.5)
    assert (many.verdict, many.caveats) == ("unknown", ["suspected"])
    assert (many.suspected, many.suspected_share) == (["a", "d"], 0.5)
    assert "Records of a (this server), d, with 50% of the shares, are not among these values" in many.text
    few = with_suspects(["d"], 0.05)
    assert (few.verdict, few.caveats, few.suspected) == ("calibrated", [], ["d"])
    assert "Records of d, with 5% of the shares, are not among" in few.text
    window.add(6, np.full((1000, 1), 5.0))
    narrow = with_suspects(["d"], 0.5)
    assert (narrow.verdict, narrow.caveats) == ("narrow", ["suspected"]), "what is evident stays so"


def test_nothing_is_promised_while_all_other_servers_are_suspected() -> None:
    """With shares 0.6, 0.2 and 0.2 of three servers that count the same, all were suspected after 20 slots: 13 of 36
    values were inside, and the verdict was 'unknown' until a slot that receded for ever."""
    network = parse_network(sample_network(3))
    everybody = SuspectedServers.of(network, {"server-1", "server-2", "server-3"}, "server-1")
    others = SuspectedServers.of(network, {"server-2", "server-3"}, "server-1")
    assert everybody.all_others
    assert others.all_others
    assert not SuspectedServers.of(network, {"server-1", "server-2"}, "server-1").all_others
    one = parse_network(sample_network(1))
    assert not SuspectedServers.of(one, (), "server-1").all_others, "there is nobody who could disagree"

    def seen(inside: int, outside: int, left_out: SuspectedServers) -> Any:
        window = CalibrationWindow(1)
        for slot, values in enumerate(np.repeat([0.0, 5.0], [inside, outside]).reshape(3, 12, 1)):
            window.add(slot, values)
        window.add(200, np.zeros((0, 1)))
        return quality(window.summary(), ["north"], "relay", judges_others=True, left_out=left_out)

    nobody = SuspectedServers([], 0.0, "server-1")
    assert (seen(13, 23, nobody).verdict, seen(13, 23, nobody).verdict_slot) == ("unknown", 1116)
    view = seen(13, 23, everybody)
    assert (view.verdict, view.coverage, view.verdict_slot, view.caveats) == ("narrow", 0.3611, None, ["suspected"])
    registry = Registry()
    set_quality(registry, view)
    assert 'dpcrowd_calibration_verdict{verdict="narrow"} 1' in render_all([registry], "reader"), "the alert fires"
    fine = seen(36, 0, everybody)
    assert (fine.verdict, fine.verdict_slot, fine.values) == ("unknown", None, 36)
    assert "No more come while all other servers are suspected." in fine.text
    nothing = quality(CalibrationWindow(1).summary(), ["north"], "relay", judges_others=True, left_out=everybody)
    assert nothing.verdict == "unknown"
    assert "No more come while" in nothing.text


def test_the_part_of_suspected_servers_is_that_of_their_worst_region() -> None:
    """A server that sees most people of one region decides there, however few it sees elsewhere."""
    text = sample_network(3)
    network = parse_network(text)
    assert SuspectedServers.of(network, {"server-2"}, "server-1").share == pytest.approx(1 / 3, abs=1e-4)
    assert SuspectedServers.of(network, (), "server-1") == SuspectedServers([], 0.0, "server-1")
    one, two, three = network.servers
    first, *others = network.regions
    local = msgspec.structs.replace(two, shares={first: 0.8, **dict.fromkeys(others, 0.01)})
    changed = msgspec.structs.replace(network, servers=(one, local, three))
    assert SuspectedServers.of(changed, {"server-2"}, "server-1").share > 0.5


def in_slots(values: list[list[float]]) -> Any:
    """Return the verdict on values of one region, by slot."""
    window = CalibrationWindow(1)
    for slot, one in enumerate(values):
        window.add(slot, np.array(one)[:, None])
    return quality(window.summary(), ["north"], "relay", judges_others=True)


def test_overwhelming_evidence_needs_no_200_values() -> None:
    """48 values of which 23% were inside were 'unknown' for hours, and no alert said that the shares were wrong."""
    far = [*[5.0] * 9, *[0.0] * 3]
    view = in_slots([far, far, far, [5.0, *far[:-1]]])
    assert (view.verdict, view.coverage, view.values, view.needed) == ("narrow", 0.2292, 48, 200)
    assert "the intervals are too narrow: 23% of 48 values" in view.text
    registry = Registry()
    set_quality(registry, view)
    text = render_all([registry], "reader")
    assert 'dpcrowd_calibration_verdict{verdict="narrow"} 1' in text
    assert 'dpcrowd_calibration_verdict{verdict="unknown"} 0' in text


def test_values_of_one_slot_are_no_independent_evidence() -> None:
    """They share a prior: one slot in which the crowd has jumped takes all of them out, and says it once."""
    assert in_slots([[5.0] * 24, [5.0] * 24]).verdict == "unknown", "two slots are no more than two values"
    assert in_slots([[5.0]] * 4).verdict == "narrow"
    assert in_slots([[5.0, 0.0, 0.0, 0.0, 0.0]] * 12).verdict == "unknown", "60 values with 80% may be chance"
    assert in_slots([[0.0] * 40, *[[5.0]] * 4]).verdict == "unknown", "a full slot counts as much as it has values"


def test_an_unknown_verdict_says_when_it_will_be_known() -> None:
    """15 records with 143 values in 100 slots were 'unknown' for ever, and nothing said what was missing."""
    window = CalibrationWindow(1)
    clock = parse_network(sample_network(3)).clock()
    for slot in range(100):
        window.add(slot, np.zeros((1 if slot % 10 else 5, 1)))
    short = quality(window.summary(), ["north"], "relay", judges_others=True, clock=clock)
    assert (short.verdict, short.values, short.needed, short.verdict_slot) == ("unknown", 140, 200, 142)
    assert "140 values of other servers were compared so far; 200 are needed to judge." in short.text
    assert f"about slot 142 ({rfc3339(clock.opens(142))})" in short.text
    for slot in range(100, 143):
        window.add(slot, np.zeros((1 if slot % 10 else 5, 1)))
    enough = quality(window.summary(), ["north"], "relay", judges_others=True, clock=clock)
    assert (enough.verdict, enough.window, enough.verdict_slot) == ("wide", 143, None)
    assert "None has come yet, so it is not known when" in of([]).text
    rare = CalibrationWindow(1)
    for slot in range(0, 3000, 100):
        rare.add(slot, np.zeros((1, 1)))
    never = quality(rare.summary(), ["north"], "relay", judges_others=True, clock=clock)
    assert never.verdict_slot is None
    assert "the last 10,000 slots, which are looked at, will not hold as many" in never.text


def test_more_values_are_needed_where_users_stay() -> None:
    """200 values of users who stay may be those of ten that are independent: too few to call anything narrow."""
    window = CalibrationWindow(1, dependence=20.0)
    for slot in range(90):
        window.add(slot, np.full((3, 1), 5.0 if 30 <= slot < 40 else 0.0))
    view = quality(window.summary(), ["north"], "relay", judges_others=True)
    assert (view.verdict, view.caveats, view.coverage, view.values) == ("unknown", [], 0.8889, 270)
    assert (view.needed, view.verdict_slot) == (4000, 1333)
    assert "4000 are needed to judge, since the next values of users who stay say little new." in view.text


def test_an_unknown_verdict_says_what_the_values_look_like_so_far() -> None:
    """Where users stay it lasts for hours, in which the operator would learn nothing of what there is already."""
    window = CalibrationWindow(1, dependence=20.0)
    for slot in range(90):
        window.add(slot, np.full((3, 1), 5.0 if slot < 4 else 0.0))
    view = quality(window.summary(), ["north"], "relay", judges_others=True)
    assert view.verdict == "unknown"
    assert view.text.endswith(
        "At this rate that will be about slot 1333. Provisionally, 96% of these 270 values were within 1.96 standard "
        "deviations (95% should be), which decides nothing yet."
    )
    assert "Provisionally, this one value was within" in of([0.0]).text
    assert "Provisionally, this one value was not within" in of([5.0]).text
    assert "rovisional" not in of([]).text


def test_without_records_there_is_no_metric_of_their_coverage() -> None:
    """An alert on a coverage of 0 would fire at every start."""
    registry = Registry()
    set_quality(registry, of([]))
    text = render_all([registry], "reader")
    assert "dpcrowd_calibration_values 0" in text
    assert "dpcrowd_calibration_coverage " not in text


def test_servers_that_work_alone_say_so() -> None:
    """Otherwise their operators would wait for ever for enough records."""
    view = quality(CalibrationWindow(1).summary(), ["north"], "fast", judges_others=False)
    assert view.verdict == "unknown"
    assert "receive no measurements" in view.text


@pytest.mark.slow
@pytest.mark.parametrize("scheme", [GREEDY, RELAY], ids=["one-hop", "relay"])
def test_live_nodes_count_others_and_begin_anew_after_a_restart(scheme: dict[str, Any], tmp_path: Path) -> None:
    """The number is public, and says since when it counts: a restart must not pass for a hundred slots of evidence."""
    links = [*pairwise(NAMES), (NAMES[-1], NAMES[0])]
    files = make_files(tmp_path / "net", NAMES, scheme=scheme, links=links)

    async def story(loop: VirtualLoop) -> None:
        async with World(files, loop, NAMES) as world:
            await world.sleep_until(24, 1.0)
            first = world.runs["a"].live.quality()
            assert first.records >= 4
            assert 0 < first.values <= 2 * first.records
            assert first.coverage is not None
            assert [one.region for one in first.regions] == ["north", "south"]
            assert sum(one.values for one in first.regions) == first.values
            metrics = await world.runs["a"].live.metrics()
            assert f"dpcrowd_calibration_values {first.values}" in metrics
            assert "dpcrowd_calibration_coverage " in metrics
            if (records := world.runs["a"].live.executor.machine.records) is not None:
                records.suspects["d"] = 23
                left_out = world.runs["a"].live.quality()
                assert (left_out.suspected, left_out.caveats[:1]) == (["d"], ["suspected"])
                assert left_out.suspected_share == pytest.approx(0.25, abs=0.15)
            world.kill("a")
            await world.start("a")
            await world.sleep_until(40, 1.0)
            second = world.runs["a"].live.quality()
            assert second.since_slot is not None
            assert first.since_slot is not None
            assert second.since_slot > first.since_slot + 20
            assert 0 < second.records < first.records

    run_virtually(story)
