"""`dpcrowd feed`: lines of a file or a pipe become check-ins of a node, in batches that do not wait long."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from client_support import FUTURE, LATE, NewNode, OldNode, serving
from dpcrowd.cli.feed import LeftOutLines
from dpcrowd.cli.main import main
from dpcrowd.client.tail import LineBatches
from dpcrowd.node.slots import SECOND, SlotClock
from feed_support import line_of
from node_support_api import CHECKIN, CLOCK, NOW, FakeService


@pytest.mark.slow
def test_a_file_reaches_the_node_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every line, in batches of the size that was asked for."""
    (tmp_path / "day.ndjson").write_text("".join(line_of(user) for user in range(25)) + "\n")
    service = FakeService()
    with serving(service) as served:
        assert main(["feed", served.url, str(tmp_path / "day.ndjson"), "--token", CHECKIN, "--batch", "10"]) == 0
    assert [len(batch) for batch in service.batches] == [10, 10, 5]
    assert capsys.readouterr() == ("", "")


@pytest.mark.slow
def test_lines_that_are_no_check_ins_are_named_by_number_and_never_repeated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A typing mistake must not stop the rest, and must not print a person into a log."""
    wrong = ['{"user": "person-77", "regoin": "x"}\n', "person-88;north\n", '["person-99"]\n', line_of(3, extra=1)]
    (tmp_path / "day.ndjson").write_text(line_of(1) + "".join(wrong) + line_of(2))
    service = FakeService()
    with serving(service) as served:
        assert main(["feed", served.url, str(tmp_path / "day.ndjson"), "--token", CHECKIN]) == 1
    assert sum(len(batch) for batch in service.batches) == 2
    err = capsys.readouterr().err
    assert [f"line {number}:" in err for number in (1, 2, 3, 4, 5, 6)] == [False, True, True, True, True, False]
    assert "person" not in err


def _taken(service: FakeService) -> int:
    return int(service.collector.seal(100).sum())


REFUSED = {
    2: "unknown-region: the network has no region of this name",
    4: "time: missing or not allowed; allowed: a datetime with a time zone, RFC 3339 text with an offset, or "
    "milliseconds, not seconds, since 1970",
    6: "late: its time is in a slot that is sealed",
    7: "future: its time is later than the node's clock allows",
    9: "unknown-region: the network has no region of this name",
}
TOTALS = "dpcrowd: left out: 5 lines in all: 2 unknown-region, 1 "


@pytest.mark.slow
@pytest.mark.parametrize("batch", ["1", "4", "1000"])
@pytest.mark.parametrize("node", [FakeService, NewNode, OldNode])
def test_what_the_node_refuses_is_told_by_line_and_all_the_rest_is_taken(
    node: Any, batch: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One late row once cost the 999 good ones of its request, and was told by its place in there."""
    real = node is FakeService
    lines = [
        line_of(1),
        line_of(2, region="nowhere"),
        "\n",
        line_of(4, time="yesterday"),
        line_of(5, time=NOW // 1_000_000),
        line_of(6, time=LATE),
        line_of(7, time=NOW // 1_000_000 + 10_000 if real else FUTURE),
        line_of(8),
        line_of(9, region="elsewhere"),
        line_of(10),
    ]
    (tmp_path / "day.ndjson").write_text("".join(lines))
    service = node()
    with serving(service) as served:
        assert main(["feed", served.url, str(tmp_path / "day.ndjson"), "--token", CHECKIN, "--batch", batch]) == 1
    assert (_taken(service) if real else len(service.taken)) == 4
    *named, totals = capsys.readouterr().err.splitlines()
    assert sorted(named) == [f"dpcrowd: left out: line {number}: {why}." for number, why in REFUSED.items()]
    assert totals.startswith(TOTALS)
    assert set(totals.removeprefix(TOTALS).rstrip(".").split(", 1 ")) == {"time", "late", "future"}


@pytest.mark.slow
def test_twenty_lines_are_told_and_then_their_sum(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file of a wrong region must not fill the screen, nor be half of the story."""
    (tmp_path / "day.ndjson").write_text("".join(line_of(user, region="nowhere") for user in range(45)) + line_of(99))
    service = FakeService()
    with serving(service) as served:
        words = ["feed", served.url, str(tmp_path / "day.ndjson"), "--token", CHECKIN, "--batch", "10", "-v"]
        assert main(words) == 1
    assert _taken(service) == 1
    told = capsys.readouterr().err.splitlines()
    assert [line.split(":")[2] for line in told[:20]] == [f" line {number}" for number in range(1, 21)]
    assert told[20:] == ["dpcrowd: left out: 45 lines in all: 45 unknown-region.", "dpcrowd: 1 check-in taken"]


def test_totals_are_told_once_per_minute(capsys: pytest.CaptureFixture[str]) -> None:
    """A feed that follows a file for a year once named twenty lines of its first day, and was silent from then on."""
    now = 0.0
    lines = LeftOutLines(lambda: now)

    def told() -> list[str]:
        return capsys.readouterr().err.splitlines()

    for number in range(1, 31):
        lines.line(number, "late")
    lines.unnamed(7)
    lines.report()
    assert len(told()) == 20, "the totals have to wait for their minute"
    now = 60.0
    lines.report()
    lines.report()
    assert told() == ["dpcrowd: left out: 37 lines so far: 30 late, 7 not named by the node."]
    now = 120.0
    lines.report()
    assert told() == [], "nothing new"
    lines.line(31, "user")
    assert len(told()) == 1, "in a new minute, lines are named again"
    lines.sum_up()
    assert told() == ["dpcrowd: left out: 38 lines in all: 30 late, 7 not named by the node, 1 user."]
    LeftOutLines(lambda: now).sum_up()
    assert told() == []


@contextmanager
def _feeding(*words: str) -> Iterator[subprocess.Popen[str]]:
    """The command in a process of its own, which can be sent signals."""
    command = [sys.executable, "-m", "dpcrowd.cli.main", "feed", *words]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def _wait_for(happened: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not happened() and time.monotonic() < end:
        time.sleep(0.05)
    assert happened()


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code", "word"), [(15, 143, "terminated"), (2, 130, "interrupted")])
def test_a_signal_ends_a_feed_with_the_totals(number: int, code: int, word: str, tmp_path: Path) -> None:
    """In a trial, 220 of 2,990 lines were missing, and twenty were told; nor may a line be lost that was read."""
    path = tmp_path / "live.ndjson"
    good = [line for line in range(2990) if line % 13 or line >= 2860]
    path.write_text("".join(line_of(line) if line in set(good) else line_of(line, time=LATE) for line in range(2990)))
    node = NewNode()
    with serving(node) as served, _feeding(served.url, str(path), "--follow") as process:
        _wait_for(lambda: len(node.taken) == len(good))
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert node.taken == [f"person-{line}" for line in good]
    assert err.splitlines()[20:] == [
        "dpcrowd: stopped after line 2990; lines after it were not read.",
        "dpcrowd: left out: 220 lines in all: 220 late.",
        f"dpcrowd: {word}",
    ]


@pytest.mark.slow
def test_a_second_signal_ends_a_feed_at_once(tmp_path: Path) -> None:
    """A node that hangs must not keep the feed: whoever asks twice means it."""
    asked = threading.Event()

    async def hang(scope: Any, receive: Any, send: Any) -> None:
        asked.set()
        await asyncio.sleep(120)

    (tmp_path / "day.ndjson").write_text(line_of(1))
    with serving(hang) as served, _feeding(served.url, str(tmp_path / "day.ndjson"), "--follow") as process:
        _wait_for(asked.is_set)
        process.send_signal(signal.SIGTERM)
        time.sleep(1.0)  # two at once would be one
        process.send_signal(signal.SIGTERM)
        err = process.communicate()[1]
    assert (process.returncode, err.splitlines()) == (143, ["dpcrowd: terminated"])


@pytest.mark.slow
@pytest.mark.parametrize(
    "wrong",
    [
        b"user,region,time",  # the header of a CSV file, but not its first line
        b'{"user": 1.5, "region": "north"}',
        b'{"user": "", "region": "north"}',
        b'{"user": "person-7", "region": 5}',
        b'{"user": "person-7", "region": "north", "time": -1}',
        b'{"user": "person-\xff", "region": "north"}',
        b'{"user": "person-\\ud800", "region": "north"}',
        b"[" * 100_000,
    ],
)
def test_no_line_can_end_the_feed(wrong: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What the client itself finds wrong, and bytes that are no text, once ended it; later lines were lost."""
    path = tmp_path / "day.ndjson"
    path.write_bytes(line_of(1).encode() + wrong + b"\n" + line_of(3).encode())
    service = FakeService()
    with serving(service) as served:
        assert main(["feed", served.url, str(path), "--token", CHECKIN]) == 1
    assert _taken(service) == 2
    err = capsys.readouterr().err
    assert err.startswith("dpcrowd: left out: line 2: ")
    assert "person" not in err
    assert len(err.splitlines()) == 2
    assert err.splitlines()[1].startswith("dpcrowd: left out: 1 line in all: 1 ")


@pytest.mark.slow
def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe from another program."""
    monkeypatch.setattr("sys.stdin", io.StringIO(line_of(1) + line_of(2)))
    service = FakeService()
    with serving(service) as served:
        assert main(["feed", served.url, "--token", CHECKIN]) == 0
    assert [len(batch) for batch in service.batches] == [0, 2]  # that it is there, and then the check-ins


@pytest.mark.slow
def test_a_silent_pipe_says_in_every_slot_that_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """A crowd that sleeps and a feed that died look the same to the node unless the feed says something."""
    reading, writing = os.pipe()
    monkeypatch.setattr("sys.stdin", os.fdopen(reading))
    monkeypatch.setattr(FakeService, "clock", SlotClock(CLOCK.epoch_ns, SECOND))
    service = FakeService()
    seen: list[int] = []

    def close_when_seen() -> None:
        end = time.monotonic() + 20
        while len(service.batches) < 3 and time.monotonic() < end:
            time.sleep(0.05)
        seen.extend(len(batch) for batch in service.batches)
        os.write(writing, line_of(1).encode())
        os.close(writing)

    closing = threading.Thread(target=close_when_seen)
    closing.start()
    with serving(service) as served:
        assert main(["feed", served.url, "--token", CHECKIN]) == 0
    closing.join(20)
    assert seen == [0, 0, 0]
    assert [len(batch) for batch in service.batches if len(batch)] == [1]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["nowhere.ndjson"], "cannot read"),
        (["-", "--follow"], "--follow works with files only"),
        ([".", "--follow"], "cannot read '.': it is a folder; give a file of check-ins."),
        (["-", "--new"], "--new works with --follow only; add --follow, or leave --new out."),
        (["-", "--batch", "0"], "0 is not allowed; allowed: 1 to 100000."),
        (["-", "--ca", __file__], "cannot be used: it contains no PEM certificate; give a PEM certificate."),
    ],
)
def test_wrong_input(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Said in a line, before anything is sent."""
    assert main(["feed", "http://127.0.0.1:1", *words]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("header", ["user,time,region", '\ufeff"User ID";"Region"', "region\ttimestamp\tcount"])
def test_a_csv_file_is_refused_as_a_whole(header: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each of its lines was called no JSON object, and none said which form is meant."""
    (tmp_path / "day.csv").write_text(f"{header}\nperson-7,north\nperson-8,north\n", encoding="utf-8")
    service = FakeService()
    with serving(service) as served:
        assert main(["feed", served.url, str(tmp_path / "day.csv"), "--token", CHECKIN]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "day.csv' is a CSV file: its first line has names of columns. feed takes JSON, one object per line" in line
    assert '{"user": "u1", "region": "north", "time": ' in line
    assert "person" not in line
    assert not service.batches


def test_a_file_that_cannot_be_read_any_more_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The reader runs in a thread: its error ended the feed with a traceback."""

    def broken(*_: object, **__: object) -> Iterator[tuple[int, str]]:
        raise PermissionError(13, "Permission denied")
        yield 1, ""

    monkeypatch.setattr("dpcrowd.client.tail.follow_file", broken)
    words = ["feed", "http://127.0.0.1:1", str(tmp_path / "day.ndjson"), "--follow", "--seconds", "1"]
    assert main(words) == 2
    assert "day.ndjson': Permission denied." in capsys.readouterr().err


NETWORK: dict[str, Any] = {"network": "n", "server": "a", "version": "0", "revision": 1, "digest": "00"}
NETWORK |= {"epoch": "2026-01-01T00:00:00Z", "slot": 5, "regions": [], "neighbours": []}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("told", "seconds"),
    [
        ({"slot_seconds": 60.0, "grace_seconds": 5.0}, 0.5),
        ({"slot_seconds": 60.0, "grace_seconds": 0.4}, 0.1),
        ({"slot_seconds": 1.0, "grace_seconds": 0.4}, 0.05),
        ({"slot_seconds": 60.0, "grace_seconds": 0.0}, 0.02),
        ({"slot_seconds": 60.0}, 0.05),
        (None, 0.05),
    ],
)
def test_a_line_does_not_wait_longer_than_the_grace_allows(
    told: Any, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line that waits half a second for others is late where the grace is shorter; not every node tells."""
    waits: list[float] = []

    class Watched(LineBatches):
        def __init__(self, *given: Any, **settings: Any) -> None:
            waits.append(settings["seconds"])
            super().__init__(*given, **settings)

    monkeypatch.setattr("dpcrowd.client.tail.LineBatches", Watched)
    node = NewNode()
    node.network = None if told is None else NETWORK | told
    with serving(node) as served:
        for options in ([], ["--seconds", "7"]):
            monkeypatch.setattr("sys.stdin", io.StringIO(line_of(1)))
            assert main(["feed", served.url, *options]) == 0
    assert waits == pytest.approx([seconds, 7.0])
    assert node.taken == ["person-1"] * 2


@pytest.mark.slow
def test_a_named_pipe_is_no_file(tmp_path: Path) -> None:
    """Its lines come when somebody writes them: while nobody does, the node has to hear that the feed is there."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    node = NewNode()
    writer = threading.Thread(target=lambda: path.write_text(line_of(1)))
    writer.start()
    with serving(node) as served:
        assert main(["feed", served.url, str(path)]) == 0
    writer.join(20)
    assert (node.sizes[0], node.taken) == (0, ["person-1"])


def test_new_lines_only_is_for_files_that_grow(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A whole file with --new would send nothing, silently."""
    assert main(["feed", "http://localhost:1", str(tmp_path), "--new"]) == 2
    assert "--follow" in capsys.readouterr().err
