"""The table of `dpcrowd watch`, at the sizes of real terminals, and the options of the command."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from dpcrowd.cli.main import main
from dpcrowd.cli.watch_board import WatchBoard, as_json_line, sparkline
from dpcrowd.cli.watch_nodes import NodeState, NodeWatch, SlotEstimates
from dpcrowd.client.errors import RequestRefused
from dpcrowd.client.views import Budget, Neighbour, Network, NetworkServer, Quality, Ready

NOW = datetime(2026, 11, 16, 7, 0, 0, tzinfo=UTC)


def state_of(name: str, regions: int = 7, slots: int = 60, scale: float = 1500.0, **changes: object) -> NodeState:
    names = tuple(f"region-{number}" for number in range(regions))
    releases = tuple(
        SlotEstimates(slot, names, scale + 10.0 * slot + np.arange(regions), np.full(regions, 80.0))
        for slot in range(slots)
    )
    network = Network(
        network="demo",
        server=name,
        version="0.2.0",
        revision=1,
        digest="d",
        epoch=NOW,
        slot_seconds=60,
        slot=slots,
        regions=list(names),
        neighbours=[Neighbour(name="left", connected=True, last_slot=slots), Neighbour(name="right", connected=True)],
    )
    budget = Budget(
        guarantee="g", kind="window", length=24, epsilon=1, spent=0.7, remaining=0.3, total_spent=3.0, samples=True
    )
    facts = {"network": network, "budget": budget, "ready": Ready(True, []), "releases": releases, **changes}
    return NodeState(f"http://{name}.example", **facts)  # type: ignore[arg-type]


def changed_network(**changes: object) -> Network:
    network = state_of("a").network
    assert network is not None
    return Network(**({name: getattr(network, name) for name in network.__struct_fields__} | changes))


def lines_of(states: list[NodeState], width: int = 80, height: int | None = 24) -> list[str]:
    console = Console(width=width, height=height or 24, force_terminal=False, highlight=False)
    board = WatchBoard(lambda: states, None if height is None else lambda: height, lambda: NOW)
    with console.capture() as shown:
        console.print(board)
    return shown.get().splitlines()


@pytest.mark.parametrize("servers", [1, 2, 5, 30])
@pytest.mark.parametrize("regions", [1, 51, 1000])
@pytest.mark.parametrize(("width", "height"), [(80, 24), (40, 12), (200, 60)])
def test_it_fits_every_terminal(servers: int, regions: int, width: int, height: int) -> None:
    """A table that is larger than the terminal scrolls away, and what matters most is at its top."""
    lines = lines_of([state_of(f"server-{number}", regions) for number in range(servers)], width, height)
    assert len(lines) < height
    assert max(map(len, lines)) <= width
    total = next(line for line in lines if line.startswith("total"))
    assert not any("…" in word for word in total.split()), "no number loses a digit"


def test_it_shows_estimate_interval_trend_budget_and_neighbours() -> None:
    """All that an operator looks for, in 80 x 24."""
    text = "\n".join(lines_of([state_of("a"), state_of("b", scale=1600.0)]))
    for part in ("demo", "slot 60", "2 servers", "07:00:00 UTC", "███████░░░ 0.700 of 1", "2 of 2", "2,090 ±80"):
        assert part in text
    assert "14,651 ±212" in text, "the total: the sum, and the root of the sum of squares"
    assert "▁" in text
    assert "█" in text.split("region")[1]


def test_what_does_not_fit_is_counted() -> None:
    """A region that is missing without a word would be taken for empty."""
    text = "\n".join(lines_of([state_of("a", 51)]))
    shown = sum(line.startswith("region-") for line in text.splitlines())
    assert f"and {51 - shown} more regions" in text
    assert "region-50" in text, "the largest regions stay"
    assert "more servers" in "\n".join(lines_of([state_of(f"server-{number}") for number in range(30)]))


def test_a_server_that_is_away_says_since_when_and_why() -> None:
    """Its last estimates stay, with their slot; an empty table would hide what is known."""
    away = state_of("b", away_since=NOW - timedelta(seconds=75), problem="connection refused")
    lines = lines_of([state_of("a"), away])
    (line,) = [line for line in lines if line.startswith("b ")]
    assert "away since 06:58:45 (75 s): connection refused" in line
    assert "59" in line.split("away")[0], "the slot of its last release"
    assert "1 away" in lines[0]
    never = NodeState("http://c.example:80", away_since=NOW, problem="connection refused")
    assert any(line.startswith("c.example:80") for line in lines_of([never]))
    assert "no estimates yet" in "\n".join(lines_of([never]))


def test_servers_that_refuse_or_fail_are_not_called_away() -> None:
    """Whoever looks for a machine that is down would look at one that only wants a token."""
    refuses = NodeState("http://b", away_since=NOW, problem="give a token", refused=True, answered=True)
    fails = NodeState("http://c", away_since=NOW, problem="internal error", answered=True)
    lines = lines_of([state_of("a"), refuses, fails, NodeState("http://d", away_since=NOW, problem="no answer")])
    assert "4 servers, 1 away, 1 refusing, 1 failing" in lines[0]
    assert any(line.startswith("b ") and "refuses since" in line for line in lines)
    assert any(line.startswith("c ") and "fails since" in line for line in lines)


@pytest.mark.parametrize("height", [24, None])
def test_what_is_wrong_is_readable_at_80_columns(height: int | None) -> None:
    """The end of the sentence says what to do; cut off, it helps nobody."""
    problem = "give a token that may read (--token-file)"
    refuses = NodeState("http://127.0.0.1:47801", away_since=NOW, problem=problem, refused=True, answered=True)
    reason = (
        "the ledger in /var/lib/dpcrowd cannot be written because the disk is full; free some space, and start again"
    )
    text = " ".join(" ".join(lines_of([state_of("a", ready=Ready(False, [reason])), refuses], height=height)).split())
    assert problem in text
    assert reason in text
    assert "…" not in text


def test_sentences_take_no_room_that_regions_need() -> None:
    """Ten servers with long complaints must not push the estimates out of the terminal."""
    states = [state_of(f"s-{n}", 4, ready=Ready(False, ["why " * 60])) for n in range(10)]
    lines = lines_of(states)
    assert len(lines) < 24
    assert sum(line.startswith("region-") for line in lines) == 4


def test_a_server_without_estimates_takes_no_column() -> None:
    """An address above a column of dashes would cost the others their intervals and trends."""
    never = [NodeState(f"http://127.0.0.1:4780{n}", away_since=NOW, problem="connection refused") for n in range(5)]
    lines = lines_of([*never, state_of("a", 2)])
    header = next(line for line in lines if line.startswith("region"))
    assert header.split() == ["region", "a", "trend"]
    assert any("2,090 ±80" in line for line in lines)


def test_the_title_of_a_trend_is_not_cut() -> None:
    """ "trend of serv…" says less than "trend"."""
    states = [state_of(f"a-rather-long-name-{n}", 2) for n in range(3)]
    header = next(line for line in lines_of(states, width=100) if line.startswith("region"))
    assert header.endswith("  trend")


def test_a_server_that_is_not_ready_is_never_left_out() -> None:
    """Nor is one whose neighbour is silent: only servers without any problem are."""
    states = [state_of(f"server-{number}") for number in range(48)]
    network = changed_network(server="lonely", neighbours=[Neighbour(name="right", connected=False)])
    worst = [state_of("ill", ready=Ready(False, ["the disk is full."])), state_of("lonely", network=network)]
    lines = lines_of([*states, *worst])
    assert any(line.startswith("ill ") for line in lines)
    assert any(line.startswith("lonely ") for line in lines)


def test_a_server_that_is_away_is_never_left_out() -> None:
    """Of fifty servers those that work may be left out, not the one that needs somebody."""
    states = [state_of(f"server-{number}") for number in range(49)]
    lines = lines_of([*states, state_of("last", away_since=NOW, problem="connection refused")])
    assert any(line.startswith("last ") for line in lines)


def test_neighbours_and_servers_with_a_problem_are_named() -> None:
    """Whom to call is the question of whoever looks."""
    neighbours = [Neighbour(name="left", connected=True), Neighbour(name="right", connected=False, last_slot=48)]
    servers = [
        NetworkServer(name="far", missing=True, overdue=31),
        NetworkServer(name="late", overdue=55),
        NetworkServer(name="usual", overdue=58),
        NetworkServer(name="odd", suspected_since=3, equivocation=50),
        NetworkServer(name="right", missing=True, overdue=40),
    ]
    network = changed_network(neighbours=neighbours, servers=servers)
    text = "\n".join(lines_of([state_of("a", network=network)], width=200))
    broken = "odd signed two records, suspected"
    away = "right silent since slot 48, missing; far missing; late overdue since slot 55"
    assert f"1 of 2: {broken}; {away}" in text, "the end of a long line is cut"
    assert "usual" not in text, "every record is late for a moment"


def test_intervals_that_are_wrong_are_named_first() -> None:
    """A watch on the wall showed numbers with intervals that were three times too narrow, and nothing else."""
    right = Quality(verdict="calibrated", text="", coverage=0.95, values=400, window=100)
    narrow = Quality(verdict="narrow", text="", coverage=0.23, values=48, window=100)
    doubtful = Quality(
        verdict="unknown", text="", coverage=0.96, values=280, window=100, caveats=["suspected"], suspected=["a"]
    )
    (line,) = [
        line
        for line in lines_of([state_of("a", quality=right), state_of("b", quality=narrow)], width=120)
        if line.startswith("intervals:")
    ]
    assert line == "intervals: b TOO NARROW (23% of 48 inside); a about right (95% of 400 inside)"
    assert "intervals: a unknown, without a (96% of 280 inside)" in lines_of([state_of("a", quality=doubtful)])
    assert not [line for line in lines_of([state_of("a")]) if line.startswith("intervals")], "an earlier version"
    assert json.loads(as_json_line(state_of("a", quality=narrow)))["quality"]["verdict"] == "narrow"


def test_whose_word_the_estimate_is() -> None:
    """Who reads an estimate should know that it began with what others claim."""
    network = changed_network(joined_from=["left", "right"], joined_slot=17)
    lines = lines_of([state_of("a", network=network)], width=120)
    assert any(line.endswith("2 of 2; joined by the word of left, right in slot 17") for line in lines)


def test_neighbours_that_disagree_about_the_past_are_named() -> None:
    """One of them is broken or lies, and this server may have believed neither."""
    lines = lines_of([state_of("a", network=changed_network(join_disagreement=["left", "right"]))], width=120)
    assert any(line.endswith("2 of 2; contradicting states for a join: left, right") for line in lines)


def test_a_server_that_is_not_ready_says_why() -> None:
    """The reason is one request away, and the operator may not have a shell there."""
    text = "\n".join(lines_of([state_of("a", ready=Ready(False, ["the disk is full."]))]))
    assert "NO" in text
    assert "the disk is full." in text


def test_names_cannot_control_the_terminal() -> None:
    """They come from other organisations' files."""
    text = "\n".join(lines_of([state_of("a\x1b[2Jb")]))
    assert "\x1b[2J" not in text


def test_unknown_estimates_are_dashes() -> None:
    """NaN in a table looks like a fault."""
    release = SlotEstimates(3, ("x", "y"), np.array([math.nan, 5.0]), np.array([math.nan, 1.0]))
    text = "\n".join(lines_of([state_of("a", releases=(release,))]))
    assert "nan" not in text
    assert "5 ±1" in text


@pytest.mark.parametrize(
    ("values", "width", "bars"),
    [([0, 1, 2, 3, 4, 5, 6, 7], 8, "▁▂▃▄▅▆▇█"), ([5, 5], 8, "▁▁"), ([9, 0, 7], 2, "▁█"), ([math.nan, 1, 2], 8, " ▁█")],
)
def test_a_trend_is_drawn_between_its_least_and_its_largest_value(values: list[float], width: int, bars: str) -> None:
    """The last values count, and a slot without an estimate is a gap."""
    assert sparkline(values, width) == bars
    assert sparkline([math.nan], width) == ""


def test_the_interval_of_the_total_is_the_nodes_own() -> None:
    """Where regions rise and fall together, the intervals of the regions make that of the total far too narrow."""
    release = SlotEstimates(3, ("x", "y"), np.array([50.0, 50.0]), np.array([3.0, 4.0]), total_half=9.0)
    assert release.total == (100.0, 9.0)
    assert "100 ±9" in "\n".join(lines_of([state_of("a", releases=(release,))]))
    assert replace(release, total_half=None).total == (100.0, 5.0), "a node of an earlier version does not say it"


def test_a_node_without_totals_is_watched_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node of an earlier version refuses to answer; that is no reason to call it away."""
    watch = NodeWatch("http://x.example", None, None, None)
    refused = RequestRefused("no such path", status=404)

    def refuse(slots: int) -> None:
        raise refused

    try:
        monkeypatch.setattr(watch._client, "totals", refuse)
        assert watch._total_halves(3) == {}
    finally:
        watch.close()


def test_a_node_without_calibration_is_watched_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node of an earlier version refuses to answer; that is no reason to call it away."""
    watch = NodeWatch("http://x.example", None, None, None)

    def refuse() -> None:
        raise RequestRefused("no such path", status=404)

    try:
        monkeypatch.setattr(watch._client, "quality", refuse)
        assert watch._read_quality() is None
    finally:
        watch.close()


def test_a_state_as_json() -> None:
    """Scripts read the names of the API; what is unknown is null."""
    read = json.loads(as_json_line(state_of("a", 1)))
    assert read["server"] == "a"
    assert read["estimates"] == [{"region": "region-0", "estimate": 2090.0, "low": 2010.0, "high": 2170.0}]
    assert read["total"] == {"estimate": 2090.0, "low": 2010.0, "high": 2170.0}
    assert read["budget"]["spent"] == 0.7
    assert json.loads(as_json_line(NodeState("http://x")))["network"] is None
    refuses = NodeState("http://x", away_since=NOW, refused=True, answered=True)
    assert json.loads(as_json_line(refuses))["refused"] is True, "a wrong token is not a server that is down"


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ("", "Missing argument 'URL...'"),
        ("http://a --json", "add --once"),
        ("http://a http://a --once", "http://a is given twice"),
        ("http://a http://a/ --once", "http://a is given twice"),
        ("http://a http://b http://c --once --token-file one --token-file two", "given 2 times for 3 nodes"),
        ("http://a --once --token-file missing", "--token-file 'missing' cannot be read: No such file"),
        ("http://a --once --token-file empty", "the token of --token-file 'empty' is empty"),
        ("ftp://a --once", "allowed: http:// or https://"),
    ],
)
def test_wrong_options(
    words: str, part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line that says what is allowed, before any request."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").write_text("\n")
    assert main(["watch", *words.split()]) == 2
    assert part in capsys.readouterr().err
