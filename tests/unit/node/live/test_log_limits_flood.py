"""Messages of a neighbour that were dropped unread: the log names it, once per minute."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpcrowd.node.live.log_limits import FloodLog
from node_support_pair import SetClock, pair_of_nodes, run, until


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """(sender, text) since the last call."""
    found = [
        (one.__dict__["sender"], one.__dict__["text"])
        for one in caplog.records
        if one.__dict__.get("event") == "message-refused" and one.__dict__.get("reason") == "flood"
    ]
    caplog.clear()
    return found


def test_a_flood_is_told_once_per_minute_with_its_sender(caplog: pytest.LogCaptureFixture) -> None:
    """33,538 messages were dropped, and the log did not say whose; a line for each would be a flood of its own."""
    now = 100.0
    log = FloodLog(lambda: now)
    log.look({"b": 0, "c": 0})
    assert lines(caplog) == []
    log.look({"b": 7, "c": 0})
    (first,) = lines(caplog)
    assert first[0] == "b"
    assert first[1].startswith("7 messages were dropped unread")
    for dropped in range(8, 500):
        now += 0.1
        log.look({"b": dropped, "c": 0})
    assert lines(caplog) == []
    now = 160.0
    log.look({"b": 500, "c": 1})
    (b, c) = lines(caplog)
    assert b[1].startswith("493 messages were dropped unread in the last 60 s")
    assert c == ("c", c[1])
    assert c[1].startswith("1 message was dropped unread")
    now = 300.0
    log.look({"b": 500, "c": 1})
    assert lines(caplog) == [], "nothing was dropped since"
    log.look({"b": 3, "c": 0})
    assert lines(caplog)[0][1].startswith("3 messages"), "links that were opened anew count anew"


def test_a_node_looks_at_what_its_links_have_dropped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted by the transport and asked by nobody, it would be in the metric alone."""

    async def scenario() -> None:
        async with pair_of_nodes(tmp_path, SetClock()) as (a, _):
            monkeypatch.setattr(a._transport, "dropped", lambda: {"b": 5})
            await until(lambda: any(one.__dict__.get("reason") == "flood" for one in caplog.records), "the line")

    run(scenario)
    assert [sender for sender, _ in lines(caplog)] == ["b"]
