"""The demo's files, processes, feeding and showing, without a network."""

from __future__ import annotations

import json
import math
import queue
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from dpcrowd.cli.demo import _show as show_demo
from dpcrowd.cli.main import main
from dpcrowd.demo.crowd import CrowdModel, Present, SyntheticCrowd
from dpcrowd.demo.files import DemoNode, free_ports, make_network, slot_length
from dpcrowd.demo.node_client import ApiFailed, NodeClient, Total, total_of
from dpcrowd.demo.processes import NodeProcessFailed, Processes
from dpcrowd.demo.run import Demo, Feeder, ServerRow, SlotRow, checkins_of
from dpcrowd.demo.show import Board, Score, as_json, as_text
from dpcrowd.errors import BadInput
from dpcrowd.node.config import load_pair
from dpcrowd.node.slots import SECOND, SlotClock

ROW = SlotRow(
    7, 100, (ServerRow("a", Total(90.0, 80.0, 100.0), 0.25, 12), ServerRow("b", Total(None, None, None), 0, 0))
)


def test_the_interval_of_a_total() -> None:
    """Half-widths 3 and 4 of independent regions make 5, not 7; one unknown region leaves the total unknown."""
    assert total_of([(10, 7, 13), (20, 16, 24)]) == Total(30, 25, 35)
    assert total_of([(10, 7, 13), (math.nan, math.nan, math.nan)]) == Total(None, None, None)
    assert total_of([]) is None


def test_ports_are_free_and_different() -> None:
    """Two nodes on one port: one of them would not start."""
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert all(0 < port < 65536 for port in ports)


@pytest.mark.parametrize("text", ["0.5s", "2h", "soon", "-1s", ""])
def test_slots_that_are_not_allowed(text: str) -> None:
    """Refused before anything is written."""
    with pytest.raises(BadInput, match="from 1s to 1h"):
        slot_length(text)


@pytest.mark.parametrize("length", [SECOND, 1_234_567_891, 3600 * SECOND])
def test_the_files_are_those_of_a_network(tmp_path: Path, length: int) -> None:
    """Every node can load its pair of files; the token is stored as a hash; the epoch lies ahead."""
    source = SyntheticCrowd(1000, np.random.default_rng(0), np.random.default_rng(1))
    now = datetime.now(UTC)
    network = make_network(tmp_path, source, 3, length, now)
    assert [node.name for node in network.nodes] == ["server-1", "server-2", "server-3"]
    for node in network.nodes:
        config, loaded = load_pair(node.config)
        assert config.server == node.name
        assert loaded.regions == source.regions
        assert loaded.population == 1000
        assert (loaded.method.name, loaded.method.reach, loaded.method.lag) == ("relay", "all", 16)
        assert loaded.method.samples is not None, "what runs has to be in the file"
        assert loaded.method.process_var == pytest.approx(source.model.process_var)
        assert config.tokens.rights_of(network.token) == {"checkin", "read"}
        assert network.token not in node.config.read_text(encoding="utf-8")
        assert loaded.clock() == network.clock
        assert network.clock.length_ns == length
    assert network.clock.epoch_ns > int(now.timestamp()) * SECOND


def test_each_server_gets_its_own_people_once() -> None:
    """Together they are all people who are present, each in the region where it is."""
    present = Present(np.array([0, 2, 3, 5]), np.array([1, 0, 1, 1]))
    server_of = np.array([0, 0, 1, 1, 0, 0])
    seen: list[tuple[int, str]] = []
    for server in range(2):
        users, regions = checkins_of(present, server, server_of, ("x", "y"))
        assert all(server_of[user] == server for user in users)
        seen += zip(users, regions, strict=True)
    assert sorted(seen) == [(0, "y"), (2, "x"), (3, "y"), (5, "y")]


class FakeNode:
    """Takes what it is given, slowly if asked."""

    def __init__(self, seconds: float = 0.0, fails: bool = False) -> None:
        self.seconds, self.fails, self.at = seconds, fails, []

    def send(self, users: list[int], regions: list[str]) -> None:
        if self.fails:
            raise ApiFailed("no.")
        self.at.append(time.time_ns())
        time.sleep(self.seconds)


class Two:
    """Two slots with one person at each of two servers."""

    regions, people, model, note = ("x",), 2, CrowdModel((2.0,), (1.0,), 0.05), "two"

    def slots(self):
        return iter([Present(np.arange(2), np.zeros(2, dtype=np.int64))] * 2)


def fed_by(node: FakeNode) -> tuple[list, SlotClock]:
    clock = SlotClock(time.time_ns() - SECOND // 2, SECOND)
    out = []
    with Feeder(Two(), [node, node], np.array([0, 1]), clock) as feeder:
        while (fed := feeder.next_slot(10)) is not None:
            out.append(fed)
    return out, clock


@pytest.mark.slow
def test_feeding_keeps_to_the_slots() -> None:
    """Each slot's check-ins are sent soon after it opens; sent elsewhere, the truth would be another slot's."""
    node = FakeNode()
    fed, clock = fed_by(node)
    assert [one.slot for one in fed] == [1, 2]
    assert [one.truth for one in fed] == [2, 2]
    assert sorted(clock.slot_of(at) for at in node.at) == [1, 1, 2, 2]


@pytest.mark.slow
def test_a_slot_that_was_fed_too_slowly_has_no_truth() -> None:
    """A truth that is shown must be one: late check-ins were counted in the next slot."""
    fed, _ = fed_by(FakeNode(seconds=1.1))
    assert all(one.truth is None for one in fed)
    assert [one.slot for one in fed] == list(range(1, len(fed) + 1)), "missed slots are told as well"


@pytest.mark.slow
def test_a_server_that_does_not_take_a_slot_is_named_and_feeding_goes_on() -> None:
    """One answer 503 of a busy machine ended the crowd, and with it every truth on the page."""
    fed, _ = fed_by(FakeNode(fails=True))
    assert all(one.truth is None for one in fed), "what was not taken is not counted"
    failed = [one for one in fed if one.problems]
    assert [one.problems for one in failed] == [(f"slot {one.slot}: no.",) * 2 for one in failed]
    assert len(failed) == 2


def test_a_failure_of_the_feeder_is_not_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """It happens in a thread; without this the demo would wait for ever for a server that never takes anything."""
    monkeypatch.setattr("dpcrowd.demo.run._MOST_FAILED_SLOTS", 1)
    with pytest.raises(ApiFailed, match="no"):
        fed_by(FakeNode(fails=True))


def test_a_feeder_stops_at_once() -> None:
    """Control-C in a long slot must not wait for its end."""
    clock = SlotClock(time.time_ns(), 3600 * SECOND)
    began = time.monotonic()
    with Feeder(Two(), [FakeNode()], np.array([0, 0]), clock) as feeder, pytest.raises(queue.Empty):
        feeder.next_slot(0.05)
    assert time.monotonic() - began < 30


def test_nobody_listens() -> None:
    """A node that is gone is an error with its name, not a traceback of a socket."""
    client = NodeClient(DemoNode("server-9", Path("x"), free_ports(1)[0], Path("x")), "token")
    assert not client.healthy()
    with pytest.raises(ApiFailed, match="server-9: the node does not answer"):
        client.total(3)
    client.close()


def node_of(folder: Path, code: str, monkeypatch: pytest.MonkeyPatch) -> Processes:
    (folder / "fake_node.py").write_text(code, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(folder))
    return Processes([DemoNode("server-1", folder / "node.toml", 1, folder / "node.log")], module="fake_node")


def until_failed(processes: Processes) -> None:
    for _ in range(600):
        processes.check()
        time.sleep(0.05)


@pytest.mark.slow
def test_a_node_that_dies_is_reported_with_its_last_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its log nobody would know why."""
    code = "print('the disk is full', flush=True); raise SystemExit(3)"
    with (
        node_of(tmp_path, code, monkeypatch) as processes,
        pytest.raises(NodeProcessFailed, match="server-1") as failed,
    ):
        until_failed(processes)
    assert failed.value.log == ("the disk is full",)
    assert "exit code 3" in str(failed.value)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX systems")
def test_a_node_that_does_not_stop_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No process is left, whatever it does with SIGTERM."""
    monkeypatch.setattr("dpcrowd.demo.processes._SECONDS_TO_STOP", 0.2)
    code = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
    )
    with node_of(tmp_path, code, monkeypatch) as processes:
        [(_, process)] = processes._running
        for _ in range(600):
            if (tmp_path / "node.log").read_text():
                break
            time.sleep(0.05)
    assert process.returncode == -9


def test_json_of_a_slot() -> None:
    """Programs read these names; what is unknown is null."""
    assert json.loads(as_json(ROW)) == {
        "slot": 7,
        "truth": 100,
        "servers": [
            {"server": "a", "estimate": 90.0, "low": 80.0, "high": 100.0, "epsilon_spent": 0.25, "messages": 12},
            {"server": "b", "estimate": None, "low": None, "high": None, "epsilon_spent": 0, "messages": 0},
        ],
    }


def test_text_and_score_of_a_slot() -> None:
    """A truth on the edge is inside; servers that know nothing do not count."""
    assert as_text(ROW) == "slot 7  truth 100  a 90 ±10  b –  ε spent up to 0.250  messages 12"
    score = Score()
    assert "no estimates yet" in str(score)
    score.add(ROW)
    assert str(score).startswith("1 slot: ")
    score.add(SlotRow(8, None, ROW.servers))
    assert (score.slots, score.estimates, score.inside, score.error) == (2, 1, 1, pytest.approx(0.1))


def test_the_table_shows_all_there_is(tmp_path: Path) -> None:
    """Slot, truth, intervals, budget, messages and addresses."""
    from rich.console import Console

    source = SyntheticCrowd(1000, np.random.default_rng(0), np.random.default_rng(1))
    network = make_network(tmp_path, source, 2, SECOND, datetime.now(UTC))
    board = Board(network, source.note)
    rows = tuple(ServerRow(node.name, Total(90.0, 80.0, 99.0), 0.25, 1234) for node in network.nodes)
    board.add(SlotRow(7, 1100, rows))
    console = Console(width=120)
    with console.capture() as shown:
        console.print(board)
    for part in ("1,100", "90 ±9", "0.250 of 1", "1,234", *(node.address for node in network.nodes), "ε = 1 in any 24"):
        assert part in shown.get()


def board_of(folder: Path, servers: int, half: float = 281.0) -> Board:
    source = SyntheticCrowd(1000, np.random.default_rng(0), np.random.default_rng(1))
    network = make_network(folder, source, servers, SECOND, datetime.now(UTC))
    board = Board(network, source.note)
    for slot in range(100):
        total = Total(10_859.0 + slot, 10_859.0 + slot - half, 10_859.0 + slot + half)
        board.add(SlotRow(slot, 10_913, tuple(ServerRow(node.name, total, 0.5, 7) for node in network.nodes)))
    return board


def shown(board: Board, width: int) -> list[str]:
    from rich.console import Console

    console = Console(width=width)
    with console.capture() as text:
        console.print(board)
    return text.get().splitlines()


@pytest.mark.parametrize(
    ("width", "half", "cell"),
    [
        (80, 281.0, "10,958 ±281"),
        (80, 1281.0, "10958±1281"),
        (70, 281.0, "10958±281"),
        (64, 281.0, "10,958"),
    ],
)
def test_the_table_fits_the_terminal(tmp_path: Path, width: int, half: float, cell: str) -> None:
    """Five servers in 80 columns; where there are fewer, less is shown, but no number loses a digit."""
    lines = shown(board_of(tmp_path, 5, half), width)
    [last] = [line for line in lines if line.split()[:1] == ["99"]]
    assert last.split("10,913", 1)[1].split("  ")[-1].strip() == cell
    assert last.count(cell) == 5
    assert not any("…" in line for line in lines)


def test_more_servers_than_fit(tmp_path: Path) -> None:
    """The first ones whole, and a word on the others."""
    lines = shown(board_of(tmp_path, 12), 80)
    [last] = [line for line in lines if line.split()[:1] == ["99"]]
    assert last.split() == ["99", "10,913", *["10,958"] * 6]
    assert any("and 6 more" in line for line in lines)
    assert not any("…" in line for line in lines)


@pytest.fixture(scope="module")
def boards(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Board]:
    """Boards that are only looked at, by their number of servers; keys of many servers take time."""
    return cache(lambda servers: board_of(tmp_path_factory.mktemp("board"), servers))


@pytest.mark.parametrize("servers", [2, 5, 50])
@pytest.mark.parametrize(("width", "height"), [(80, 24), (80, 50), (60, 12), (200, 60)])
@pytest.mark.slow
def test_the_table_is_not_taller_than_the_terminal(
    boards: Callable[[int], Board], servers: int, width: int, height: int
) -> None:
    """What is taller loses its end, where the error is: a live table shows `...` in its place."""
    from rich.console import Console

    board = boards(servers)
    console = Console(width=width, height=height, force_terminal=True, color_system=None)
    with console.capture() as text:
        console.print(board)
    lines = text.get().splitlines()
    assert len(lines) < height
    assert any("mean error" in line for line in lines)
    assert any(line.split()[:1] == ["99"] for line in lines), "the last slot stays"
    slots = sum(line.split()[:1] in ([str(slot)] for slot in range(88, 100)) for line in lines)
    assert slots == 12 or height < 50 or servers == 50, "where there is room, all are shown"
    assert slots >= 4 or height < 24
    if servers == 50 and height >= 24:
        assert any(line.startswith("and ") and "more; a taller" in line for line in lines)


def test_the_end_in_one_sentence(tmp_path: Path) -> None:
    """Whoever leaves the demo keeps this: error, coverage, epsilon and messages."""
    board = board_of(tmp_path, 5)
    assert board.summary == (
        "In 100 slots the estimates were off by 0.2% on average, 100% of the 95% intervals contained the truth, no "
        "server spent more than ε = 0.5 of 1 in 24 slots, and the 5 servers sent 35 messages."
    )
    board.add(SlotRow(100, None, ROW.servers))
    assert board.summary.startswith("In 100 slots the estimates"), "one more slot, of which no truth is known"
    empty = Board(board.network, "")
    empty.add(SlotRow(1, None, ROW.servers))
    assert empty.summary.startswith("1 slot without an estimate whose truth is known; no server spent more")


def test_a_demo_that_ends_before_its_first_slot_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing at all would look like a fault."""
    source = SyntheticCrowd(1000, np.random.default_rng(0), np.random.default_rng(1))
    network = make_network(tmp_path, source, 2, SECOND, datetime.now(UTC))
    demo = Demo(network, source, Processes([]), [], Feeder(source, [], np.array([0]), network.clock))
    demo.rows = lambda seconds: iter(())  # type: ignore[method-assign]
    show_demo(demo, 4.0, True)
    out, err = capsys.readouterr()
    assert out == ""
    assert "no slot ended within 4 s: the first one takes about" in err
    assert 4 < demo.seconds_to_first_release() < 60
    demo.rows = lambda seconds: iter([SlotRow(1, None, ROW.servers, ("slot 1: server-2: busy.",))])  # type: ignore[method-assign]
    show_demo(demo, 4.0, True)
    assert "dpcrowd demo: slot 1: server-2: busy." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--servers 1", "--servers is 1; allowed: 2 to 50 on one machine"),
        ("--seconds abc", "'abc' is not a number."),
        ("--nonsense", "unknown option '--nonsense'. See"),
        ("--sevrers 3", "Did you mean '--servers'?"),
        ("--people 5 --data mine", "--people is the size of the synthetic crowd"),
        ("--slot-length 1h", "add --data FILE"),
        ("--slot-length 1h --data flights", "'flights' always has one slot per day"),
        ("--slot-length 1h --data linear", "a slot length was given, but 'linear' has its own"),
        ("--people 0", "--people is 0; allowed: 1 to 1,000,000"),
        ("--slot 100ms", "--slot is '100ms'; allowed: a duration from 1s to 1h"),
        ("--seed -1", "--seed is -1; allowed: a whole number of at least 0"),
        ("--seconds 0", "--seconds"),
        ("--data flihgts", "Did you mean 'flights'"),
        ("--keep .", "is not empty"),
    ],
)
def test_wrong_options(
    words: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line and exit code 2, and nothing has been started or written."""
    (tmp_path / "mine").write_text("")
    monkeypatch.chdir(tmp_path)
    assert main(["demo", *words.split()]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert len(err.splitlines()) == 1
    assert [file.name for file in tmp_path.iterdir()] == ["mine"]
