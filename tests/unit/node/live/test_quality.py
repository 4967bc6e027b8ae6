"""The running calibration that live nodes show: from others' records and messages, and counted anew after a restart."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpcrowd.filters.calibration import CalibrationWindow
from dpcrowd.node.config import parse_network
from dpcrowd.node.config.samples import sample_network
from dpcrowd.node.live.status import quality
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


def test_few_records_are_no_reason_to_worry() -> None:
    """The first three records of a new network may all be far off; the numbers are there, the verdict is not."""
    view = of([5.0, 5.0, 5.0])
    assert (view.verdict, view.coverage, view.values, view.since_slot) == ("unknown", 0.0, 3, 5)
    nothing = of([])
    assert (nothing.verdict, nothing.coverage, nothing.calibration, nothing.since_slot) == ("unknown", None, None, None)


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
    assert "Without any of them, nobody can say when" in of([]).text
    rare = CalibrationWindow(1)
    for slot in range(0, 3000, 100):
        rare.add(slot, np.zeros((1, 1)))
    never = quality(rare.summary(), ["north"], "relay", judges_others=True, clock=clock)
    assert never.verdict_slot is None
    assert "the last 10,000 slots, which are looked at, will not hold as many" in never.text


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
            world.kill("a")
            await world.start("a")
            await world.sleep_until(40, 1.0)
            second = world.runs["a"].live.quality()
            assert second.since_slot is not None
            assert first.since_slot is not None
            assert second.since_slot > first.since_slot + 20
            assert 0 < second.records < first.records

    run_virtually(story)
