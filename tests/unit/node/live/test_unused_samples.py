"""Samples that are paid for and not used show: in the log, in /readyz and in metrics."""

from __future__ import annotations

import logging
from pathlib import Path
from unittest import mock

import pytest

from dpcrowd.node.doctor.running_checks import UNUSED
from dpcrowd.node.live.log_limits import SampleLog
from dpcrowd.node.machine.machine import Machine
from node_support_deployed import RELAY, World, make_files
from node_support_virtual import VirtualLoop, run_virtually


def test_one_line_per_minute_with_a_count(caplog: pytest.LogCaptureFixture) -> None:
    """With slots of a second, a feed that is wrong for a night would fill the log with one sentence."""
    at = 100.0
    sample_log = SampleLog(lambda: at)
    for second in range(130):
        at = 100.0 + second
        sample_log.unused("the sample is absurd.")
    texts = [record.getMessage() for record in caplog.records]
    later = "the sample is absurd. (60 samples in the last 60 s)"
    assert texts == ["the sample is absurd.", later, later]
    assert {(record.levelno, record.event) for record in caplog.records} == {(logging.ERROR, "own-absurd")}  # type: ignore[attr-defined]
    sample_log.used()
    sample_log.unused("again.")
    assert caplog.records[-1].getMessage() == "again.", "what begins anew is logged at once"


@pytest.mark.slow
def test_a_node_whose_samples_are_not_used_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It was ready without a warning, and no metric showed that epsilon was paid for nothing in every slot."""
    files = make_files(tmp_path / "net", ("a", "b"), scheme=RELAY)

    async def story(loop: VirtualLoop) -> None:
        async with World(files, loop, ("a", "b")) as world:
            live = world.runs["a"].live
            await world.sleep_until(6, 1.0)
            assert not [text for text in live.warnings() if "not used" in text]
            assert "dpcrowd_samples_unused_total 0" in await live.metrics()
            with mock.patch.object(Machine, "_is_plausible", return_value=False):
                await world.sleep_until(18, 1.0)
            (warning,) = [text for text in live.warnings() if "not used" in text]
            assert f"{UNUSED} since slot {live.executor.machine.unused_since}" in warning
            assert live.ready()[0], "it still estimates from its neighbours"
            assert "dpcrowd_samples_unused_total 3" in await live.metrics()
            await world.sleep_until(26, 1.0)
            assert not [text for text in live.warnings() if "not used" in text]

    run_virtually(story)
    lines = [record for record in caplog.records if getattr(record, "event", "") == "own-absurd"]
    assert 1 <= len(lines) <= 2, "one per server"
