"""Links that come and go: told one by one while that is news, then once per minute."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from dpcrowd.node.live.log_limits import LinkLog
from dpcrowd.node.machine import stimuli as on
from node_support_pair import SetClock, pair_of_nodes, run, until


def lines(caplog: pytest.LogCaptureFixture, neighbour: str = "b") -> list[tuple[str, str]]:
    """(event, text) of a neighbour's lines since the last call."""
    found = [
        (one.__dict__["event"], one.getMessage())
        for one in caplog.records
        if one.__dict__.get("neighbour") == neighbour
    ]
    caplog.clear()
    return found


def test_a_restart_is_told_change_by_change(caplog: pytest.LogCaptureFixture) -> None:
    """Down, up, and the handshake that is made once more: whoever reads the log after an outage needs each of them."""
    caplog.set_level(logging.INFO, "dpcrowd")
    now = 0.0
    links = LinkLog(lambda: now)
    told = []
    for start in (0.0, 600.0):
        for after, up in ((0, False), (9, True), (10, False), (11, True)):
            now = start + after
            links.change("b", up)
            links.look()
            told += lines(caplog)
    assert told == [("neighbour-down", "neighbour down"), ("neighbour-up", "neighbour up")] * 4


def test_a_link_that_comes_and_goes_is_told_once_per_minute(caplog: pytest.LogCaptureFixture) -> None:
    """With an expired certificate every attempt was two lines: 3,600 per hour, in which nothing else was found."""
    caplog.set_level(logging.INFO, "dpcrowd")
    now = 0.0
    links = LinkLog(lambda: now)
    for half_second in range(600):
        now = half_second / 2
        links.change("b", half_second % 2 == 0)
        links.look()
    told = lines(caplog)
    assert told[:4] == [("neighbour-up", "neighbour up"), ("neighbour-down", "neighbour down")] * 2
    assert len(told) == 8, "four one by one, then one per minute"
    assert [event for event, _ in told[4:]] == ["neighbour-down"] * 4
    assert "its link comes and goes: 120 changes in 60 s" in told[-1][1]
    links.change("c", True)
    assert lines(caplog, "c") == [("neighbour-up", "neighbour up")], "other neighbours are told as always"


def test_the_state_in_which_it_stays_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """The log must not end with "down" where the link is up: an operator would look for a fault that is over."""
    caplog.set_level(logging.INFO, "dpcrowd")
    now = 0.0
    links = LinkLog(lambda: now)
    for second in range(10):
        now = float(second)
        links.change("b", second % 2 == 1)
    assert lines(caplog)[-1] == ("neighbour-up", "neighbour up")
    now = 12.5
    links.look()
    assert lines(caplog) == [], "it may go again"
    now = 13.0
    links.look()
    assert [event for event, _ in lines(caplog)] == ["neighbour-up"]
    now = 200.0
    links.look()
    assert lines(caplog) == []
    links.change("b", False)
    assert lines(caplog) == [("neighbour-down", "neighbour down")], "after a quiet minute it is news again"


def test_one_change_that_was_held_back_is_told_as_one(caplog: pytest.LogCaptureFixture) -> None:
    """The log said that a link comes and goes, with "1 changes", where it had come back for good."""
    caplog.set_level(logging.INFO, "dpcrowd")
    now = 0.0
    links = LinkLog(lambda: now)
    for second, up in enumerate((True, False, True, False, True)):
        now = float(second)
        links.change("b", up)
    lines(caplog)
    now = 8.0
    links.look()
    assert lines(caplog) == [("neighbour-up", "neighbour up, for 4 s now")]


def test_links_that_the_node_has_closed_are_not_up(caplog: pytest.LogCaptureFixture) -> None:
    """Ten seconds after a certificate had expired and all links were closed, the log said "neighbour up now"."""
    caplog.set_level(logging.INFO, "dpcrowd")
    now = 0.0
    links = LinkLog(lambda: now)
    for second, up in enumerate((True, False, True, False, True)):
        now = float(second)
        links.change("b", up)
    links.change("c", False)
    lines(caplog)
    links.closed()
    assert lines(caplog) == [("neighbour-down", "neighbour down: this server has closed its links")]
    assert lines(caplog, "c") == []
    now = 30.0
    links.look()
    links.closed()
    assert lines(caplog) == [], "told once"
    now = 70.0
    links.change("b", True)
    assert lines(caplog) == [("neighbour-up", "neighbour up")]


def test_a_node_that_opens_its_links_anew_says_that_it_has_closed_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The last line on a link must be true, whoever has ended it."""
    caplog.set_level(logging.INFO, "dpcrowd")

    async def scenario() -> None:
        async with pair_of_nodes(tmp_path, SetClock()) as (a, _):
            machine = a.executor.machine
            await until(lambda: "b" in machine.present, "the link")
            caplog.clear()
            a.executor.give(on.LinksExpired(a._wall.now(), anew=True))
            await until(lambda: "b" in machine.present and len(caplog.records) > 1, "the link again")

    run(scenario)
    told = [event for event, _ in lines(caplog, "b")]
    assert told[:2] == ["neighbour-down", "neighbour-up"]


def test_a_node_holds_back_lines_but_no_stimuli(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Twenty changes of a link were twenty lines; what the node itself knows of the link must stay exact."""
    caplog.set_level(logging.INFO, "dpcrowd")

    async def scenario() -> None:
        async with pair_of_nodes(tmp_path, SetClock()) as (a, _):
            caplog.clear()
            machine = a.executor.machine
            await until(lambda: "b" in machine.linked, "links")
            for _ in range(10):
                for up in (False, True):
                    a._presence_changed(machine.session, "b", up)
                    await a.executor.idle.wait()
                    assert ("b" in machine.present) == up
            assert len(lines(caplog)) <= 4

    run(scenario)
