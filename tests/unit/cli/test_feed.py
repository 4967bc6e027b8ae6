"""`dpcrowd feed`: lines of a file or a pipe become check-ins of a node, in batches that do not wait long."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import dpcrowd.cli.feed  # noqa: F401 - the module, which the command of the same name hides
from client_support import FUTURE, LATE, NewNode, OldNode, serving
from dpcrowd.cli.feed import LeftOutLines, Stop
from dpcrowd.cli.main import main
from dpcrowd.client.client import Client
from dpcrowd.client.delivery import Delivery, RefusedRow
from dpcrowd.client.errors import NodeBusy, NodeError, NodeUnreachable, NotTaken, RequestRefused
from dpcrowd.client.lines import NumberedCheckin, Undelivered, deliver_lines
from dpcrowd.client.rows import CheckinRow
from dpcrowd.client.tail import LineBatches, follow_file
from dpcrowd.node.keys.trial import make_trial
from dpcrowd.node.slots import SECOND, SlotClock
from node_support_api import CHECKIN, CLOCK, NOW, READ, REGIONS, FakeService

REGION = next(iter(REGIONS))
feed_module = sys.modules["dpcrowd.cli.feed"]


def _line(user: int, **more: object) -> str:
    return json.dumps({"user": f"person-{user}", "region": REGION, **more}) + "\n"


@pytest.mark.slow
def test_a_file_reaches_the_node_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every line, in batches of the size that was asked for."""
    (tmp_path / "day.ndjson").write_text("".join(_line(user) for user in range(25)) + "\n")
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
    wrong = ['{"user": "person-77", "regoin": "x"}\n', "person-88;north\n", '["person-99"]\n', _line(3, extra=1)]
    (tmp_path / "day.ndjson").write_text(_line(1) + "".join(wrong) + _line(2))
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
        _line(1),
        _line(2, region="nowhere"),
        "\n",
        _line(4, time="yesterday"),
        _line(5, time=NOW // 1_000_000),
        _line(6, time=LATE),
        _line(7, time=NOW // 1_000_000 + 10_000 if real else FUTURE),
        _line(8),
        _line(9, region="elsewhere"),
        _line(10),
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
    (tmp_path / "day.ndjson").write_text("".join(_line(user, region="nowhere") for user in range(45)) + _line(99))
    service = FakeService()
    with serving(service) as served:
        words = ["feed", served.url, str(tmp_path / "day.ndjson"), "--token", CHECKIN, "--batch", "10", "-v"]
        assert main(words) == 1
    assert _taken(service) == 1
    told = capsys.readouterr().err.splitlines()
    assert [line.split(":")[2] for line in told[:20]] == [f" line {number}" for number in range(1, 21)]
    assert told[20:] == ["dpcrowd: left out: 45 lines in all: 45 unknown-region.", "dpcrowd: 1 check-ins taken"]


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
    path.write_text("".join(_line(line) if line in set(good) else _line(line, time=LATE) for line in range(2990)))
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

    (tmp_path / "day.ndjson").write_text(_line(1))
    with serving(hang) as served, _feeding(served.url, str(tmp_path / "day.ndjson"), "--follow") as process:
        _wait_for(asked.is_set)
        process.send_signal(signal.SIGTERM)
        time.sleep(1.0)  # two at once would be one
        process.send_signal(signal.SIGTERM)
        err = process.communicate()[1]
    assert (process.returncode, err.splitlines()) == (143, ["dpcrowd: terminated"])


def test_a_stop_gives_what_was_read() -> None:
    """Lines that wait for a full batch would otherwise be lost: after a start with --new nobody reads them again."""
    stop = threading.Event()

    def silent() -> Iterator[tuple[int, str]]:
        yield from ((number, _line(number)) for number in (1, 2, 3))
        yield 4, "{"
        stop.set()
        threading.Event().wait()  # a pipe into which nobody writes

    batches = LineBatches(silent(), lambda number, reason: None, seconds=3600, wake=0.05, stop=stop.is_set)
    rows = [row for batch in batches for row in batch]
    assert [row.number for row in rows] == [1, 2, 3]
    assert batches.last == 4


@pytest.mark.slow
@pytest.mark.parametrize(
    "wrong",
    [
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
    path.write_bytes(_line(1).encode() + wrong + b"\n" + _line(3).encode())
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
def test_a_node_that_is_away_has_its_own_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A script can tell it from wrong input, as with other commands; and where to go on is told."""
    (tmp_path / "day.ndjson").write_text("\n" + _line(2) + _line(3))
    with serving(FakeService()) as served:
        url = served.url
    assert main(["feed", url, str(tmp_path / "day.ndjson"), "--token", CHECKIN]) == 4
    err = capsys.readouterr().err
    assert err.startswith("dpcrowd: error: the node does not answer (ConnectError)")
    assert err.endswith("Lines from 2 on were not taken.\n")


@pytest.mark.slow
def test_the_authority_is_an_option_here(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`(ca)` is a word of Python's client; here it is `--ca`."""
    files = make_trial(tmp_path / "keys", ["a"], datetime.now(UTC))["a"]
    (tmp_path / "day.ndjson").write_text(_line(1))
    with serving(FakeService(), files.certificate, files.key) as served:
        assert main(["feed", served.url, str(tmp_path / "day.ndjson"), "--token", CHECKIN]) == 2
        assert "(--ca)" in capsys.readouterr().err
        words = ["feed", served.url, str(tmp_path / "day.ndjson"), "--token", CHECKIN, "--ca", str(files.authority)]
        assert main(words) == 0


@pytest.mark.slow
@pytest.mark.parametrize("empty", [False, True])
@pytest.mark.parametrize("wrong", ["http", "ca", "https"])
def test_what_cannot_pass_ends_a_feed_at_its_first_connection(
    wrong: str, empty: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It waited for ever, and without a word if there was no line yet; nobody knew that nothing was ever sent."""
    ours, theirs = (make_trial(tmp_path / name, ["a"], datetime.now(UTC))["a"] for name in ("ours", "theirs"))
    (tmp_path / "day.ndjson").write_text("" if empty else _line(1))
    service = FakeService()
    words = [str(tmp_path / "day.ndjson"), "--follow", "--token", CHECKIN, "--ca", str(theirs.authority)]
    secured = () if wrong == "https" else (ours.certificate, ours.key)
    with serving(service, *secured) as served:
        scheme = {"http": "http", "ca": "https", "https": "https"}[wrong]
        assert main(["feed", f"{scheme}://{served.url.split('://')[1]}", *words]) == 2
    # The server of this test may log to standard error as well, if a test before has set that up.
    (told,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("dpcrowd:")]
    assert told.startswith("dpcrowd: error: the node does not answer (HTTP")
    assert {"http": "https://", "ca": "(--ca)", "https": "http://"}[wrong] in told
    assert service.batches == []


@pytest.mark.slow
def test_once_the_node_has_answered_the_same_is_waited_for(tmp_path: Path) -> None:
    """A certificate may be renewed before the file of --ca is: a feed that ended then would need a hand to start it."""
    old, new = (make_trial(tmp_path / name, ["a"], datetime.now(UTC))["a"] for name in ("old", "new"))
    ca = tmp_path / "ca.crt"
    ca.write_bytes(old.authority.read_bytes())
    with serving(FakeService(), old.certificate, old.key) as served:
        sender = feed_module._Sender(lambda: Client(served.url, CHECKIN, ca=ca))
        assert sender.send([CheckinRow("person-1", REGION)]).accepted == 1
        sender.renew()  # a connection that is open would outlive the certificate
        served.stop()
        served._tls = {"certificate": new.certificate, "key": new.key}
        served.start()
        with pytest.raises(NodeUnreachable) as told:
            sender.send([CheckinRow("person-2", REGION)])
        assert told.value.reason == "untrusted"
        ca.write_bytes(new.authority.read_bytes())
        assert sender.send_idle() == feed_module._RETRY, "tried again soon, and with the file as it is now"
        assert sender.send([CheckinRow("person-2", REGION)]).accepted == 1
        sender.close()


@pytest.mark.slow
def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe from another program."""
    monkeypatch.setattr("sys.stdin", io.StringIO(_line(1) + _line(2)))
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
        os.write(writing, _line(1).encode())
        os.close(writing)

    closing = threading.Thread(target=close_when_seen)
    closing.start()
    with serving(service) as served:
        assert main(["feed", served.url, "--token", CHECKIN]) == 0
    closing.join(20)
    assert seen == [0, 0, 0]
    assert [len(batch) for batch in service.batches if len(batch)] == [1]


@pytest.mark.slow
def test_a_feed_that_may_not_send_is_told_before_its_first_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a wrong token it would otherwise wait in vain, for hours, and fail with the first check-in."""
    reading, writing = os.pipe()
    monkeypatch.setattr("sys.stdin", os.fdopen(reading))
    with serving(FakeService()) as served:
        assert main(["feed", served.url, "--token", READ]) != 0
    os.close(writing)
    assert "wrong-right" in capsys.readouterr().err


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


@pytest.mark.slow
def test_a_check_in_does_not_wait_for_a_full_batch() -> None:
    """On a quiet night a lone check-in has to arrive in its own slot."""

    def slow() -> Iterator[tuple[int, str]]:
        yield 1, _line(1)
        time.sleep(1.0)
        yield 2, _line(2)

    began = time.monotonic()
    arrived = [(len(batch), time.monotonic() - began) for batch in LineBatches(slow(), pytest.fail, seconds=0.1)]
    assert [size for size, _ in arrived] == [1, 1]
    assert arrived[0][1] < 0.9, "the first left before the second came"


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
            monkeypatch.setattr("sys.stdin", io.StringIO(_line(1)))
            assert main(["feed", served.url, *options]) == 0
    assert waits == pytest.approx([seconds, 7.0])
    assert node.taken == ["person-1"] * 2


@pytest.mark.slow
def test_a_named_pipe_is_no_file(tmp_path: Path) -> None:
    """Its lines come when somebody writes them: while nobody does, the node has to hear that the feed is there."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    node = NewNode()
    writer = threading.Thread(target=lambda: path.write_text(_line(1)))
    writer.start()
    with serving(node) as served:
        assert main(["feed", served.url, str(path)]) == 0
    writer.join(20)
    assert (node.sizes[0], node.taken) == (0, ["person-1"])


@pytest.mark.slow
def test_a_file_is_followed_over_growth_and_replacement(tmp_path: Path) -> None:
    """Log files are written piece by piece and rotated; no line may be lost or cut in two."""
    path = tmp_path / "live.ndjson"
    path.write_text("one\ntw")
    seen: list[str] = []
    stop = threading.Event()

    def read() -> None:
        for _, line in follow_file(path, stop.is_set):
            seen.append(line)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for step in (lambda: _append(path, "o\n"), lambda: _rotate(path, "three\n")):
            expected = len(seen) + 1
            time.sleep(0.6)
            step()
            end = time.monotonic() + 20
            while len(seen) < expected and time.monotonic() < end:
                time.sleep(0.05)
    finally:
        time.sleep(0.6)
        stop.set()
        reader.join(20)
    assert seen == ["one\n", "two\n", "three\n"]


@pytest.mark.slow
def test_a_feed_that_starts_again_can_pass_over_what_it_has_sent(tmp_path: Path) -> None:
    """Lines without a time count when they are sent: yesterday's people would be here now."""
    path = tmp_path / "live.ndjson"
    path.write_text("old\nolder\n")
    stop = threading.Event()
    lines = follow_file(path, stop.is_set, new=True)
    timer = threading.Timer(0.5, lambda: _append(path, "new\n"))
    timer.start()
    assert next(lines) == (3, "new\n")
    timer = threading.Timer(0.5, lambda: _rotate(path, "all of this\n"))
    timer.start()
    assert next(lines) == (1, "all of this\n")
    timer.join()


def test_a_line_that_is_being_written_at_the_start_is_new(tmp_path: Path) -> None:
    """Its second half alone would be no check-in, and whoever is in it would be lost."""
    path = tmp_path / "live.ndjson"
    path.write_bytes(b"old\n" * 400_000 + b"bro")
    lines = follow_file(path, threading.Event().is_set, new=True)
    timer = threading.Timer(0.5, lambda: _append(path, "ken\n"))
    timer.start()
    assert next(lines) == (400_001, "broken\n")
    timer.join()


def test_new_lines_only_is_for_files_that_grow(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A whole file with --new would send nothing, silently."""
    assert main(["feed", "http://localhost:1", str(tmp_path), "--new"]) == 2
    assert "--follow" in capsys.readouterr().err


CHECKINS = [NumberedCheckin(10 + place, CheckinRow(place, "north")) for place in range(40)]


class _LeftOut:
    def __init__(self) -> None:
        self.lines: list[tuple[int, str]] = []
        self.others = 0

    def line(self, number: int, reason: str) -> None:
        self.lines.append((number, reason))

    def unnamed(self, count: int) -> None:
        self.others += count


class _Certificates:
    """A client and its trust."""

    renewals = 0

    def renew(self) -> None:
        self.renewals += 1


def test_a_feed_reads_its_authority_again_and_tells_each_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a node's certificate the file of --ca is renewed: the feed would wait for good, and tell an old reason."""
    monkeypatch.setattr(feed_module, "_RETRY", 0.01)
    errors = [
        NodeUnreachable("nobody answers"),
        NodeUnreachable("its certificate is not trusted (ca)", reason="untrusted"),
        NodeUnreachable("its certificate is not trusted (ca)", reason="untrusted"),
    ]

    def away(rows: list[CheckinRow]) -> Delivery:
        if errors:
            raise errors.pop(0)
        return Delivery(len(rows))

    sender = _Certificates()
    waiting = feed_module._WaitForNode(Stop(), sender, patient=True)  # type: ignore[arg-type]
    assert deliver_lines(away, CHECKINS, _LeftOut(), waiting.retry) == 40
    assert sender.renewals == 2
    assert capsys.readouterr().err.splitlines() == [
        "dpcrowd: waiting: nobody answers",
        "dpcrowd: waiting: its certificate is not trusted (--ca)",
    ]


def test_a_feed_that_follows_waits_for_its_node(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """If it ended, whoever starts it again would send the whole file once more."""
    monkeypatch.setattr(feed_module, "_RETRY", 0.01)
    tries: list[int] = []

    def away(rows: list[CheckinRow]) -> Delivery:
        tries.append(len(rows))
        if len(tries) < 3:
            raise NodeUnreachable("nobody answers")
        return Delivery(len(rows))

    stop = Stop()
    waiting = feed_module._WaitForNode(stop, _Certificates(), patient=True)
    assert deliver_lines(away, CHECKINS, _LeftOut(), waiting.retry) == 40
    waiting.end()
    assert tries == [40] * 3
    assert capsys.readouterr().err.splitlines() == [
        "dpcrowd: waiting: nobody answers",
        "dpcrowd: the node takes check-ins again",
    ]
    tries.clear()
    with pytest.raises(Undelivered):
        deliver_lines(away, CHECKINS, _LeftOut(), feed_module._WaitForNode(stop, _Certificates(), patient=False).retry)
    monkeypatch.setattr(stop, "requested", lambda: True)
    tries.clear()
    with pytest.raises(Undelivered):
        deliver_lines(away, CHECKINS, _LeftOut(), feed_module._WaitForNode(stop, _Certificates(), patient=True).retry)


@pytest.mark.parametrize(("asked", "waited"), [(None, 1.0), (1.5, 1.5), (30.0, 2.0), (3600.0, 2.0)])
def test_a_feed_that_follows_never_pauses_for_long(
    asked: float | None, waited: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that was to wait for an hour may go on at once (accept-clock): the feed slept through its first slots."""
    stop, pauses = Stop(), list[float]()
    monkeypatch.setattr(stop, "sleep", pauses.append)
    waiting = feed_module._WaitForNode(stop, _Certificates(), patient=True)  # type: ignore[arg-type]
    assert waiting.retry(NodeBusy("the clock went back.", status=503, reason="unavailable", retry_after=asked))
    assert pauses == [waited]


@pytest.mark.slow
def test_a_wrong_authority_and_none_are_told_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Told to give a certificate that was given, an operator would look for the fault in the command line."""
    ours, theirs = (make_trial(tmp_path / name, ["a"], datetime.now(UTC))["a"] for name in ("ours", "theirs"))
    (tmp_path / "day.ndjson").write_text(_line(1))
    with serving(FakeService(), ours.certificate, ours.key) as served:
        words = ["feed", served.url, str(tmp_path / "day.ndjson"), "--token", CHECKIN]
        told = []
        for more in ([], ["--ca", str(theirs.authority)]):
            assert main([*words, *more]) == 2
            told.append(capsys.readouterr().err)
    assert "its certificate is not signed by a known authority" in told[0]
    assert "its certificate is not signed by the given authority (--ca)" in told[1]


def test_what_was_settled_before_a_pause_is_not_sent_again() -> None:
    """A check-in without a time would count a second time, in the slot after the pause; a refusal is told once."""
    taken: list[Any] = []
    refused = (RefusedRow(3, "late"), RefusedRow(25, "user"))

    def half(rows: list[CheckinRow]) -> Delivery:
        users = [row.user for row in rows]
        if len(users) == 40:
            taken.extend(users[:3] + users[4:20])
            raise NodeBusy("full.", reason="full").interrupting(20, Delivery(19, refused, 2))
        taken.extend(users)
        return Delivery(len(users))

    left_out = _LeftOut()
    pauses: list[NodeError] = []

    def wait(error: NodeError) -> bool:
        pauses.append(error)
        return True

    assert deliver_lines(half, CHECKINS, left_out, wait) == 38
    assert taken == [user for user in range(40) if user not in (3, 25)]
    assert left_out.lines == [(13, "late"), (35, "user")]
    assert len(pauses) == 1
    with pytest.raises(Undelivered) as stopped:
        deliver_lines(half, CHECKINS, _LeftOut(), lambda error: False)
    assert (stopped.value.number, stopped.value.taken, str(stopped.value)) == (30, 19, "full.")


def test_more_lines_are_refused_than_the_node_names() -> None:
    """They are counted; which they were is known to nobody."""
    left_out = _LeftOut()
    assert deliver_lines(lambda rows: Delivery(30, (RefusedRow(2, "late"),), 10), CHECKINS, left_out, pytest.fail) == 30
    assert (left_out.lines, left_out.others) == ([(12, "late")], 9)


def test_what_is_not_about_lines_ends_the_feed() -> None:
    """A wrong address once left every line out, one by one, as if each had been wrong."""

    def nowhere(rows: list[CheckinRow]) -> Delivery:
        raise RequestRefused("there is no such path.", status=404, reason="not-found")

    with pytest.raises(RequestRefused):
        deliver_lines(nowhere, CHECKINS, _LeftOut(), pytest.fail)

    def late(rows: list[CheckinRow]) -> Delivery:
        raise NotTaken("late.", delivery=Delivery(0, tuple(RefusedRow(row, "late") for row in range(40)), 40))

    left_out = _LeftOut()
    assert deliver_lines(late, CHECKINS, left_out, pytest.fail) == 0
    assert len(left_out.lines) == 40


def test_nobody_is_shown() -> None:
    """A check-in in a traceback, or in a debugger's list of variables."""
    assert "person" not in repr([NumberedCheckin(10, CheckinRow("person-1", "north"))])


def _append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def _rotate(path: Path, text: str) -> None:
    path.rename(path.with_suffix(".old"))
    path.write_text(text)
