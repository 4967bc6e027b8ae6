"""`dpcrowd feed`: lines of a file or a pipe become check-ins of a node, in batches that do not wait long."""

from __future__ import annotations

import io
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

import dpcrowd.cli.feed  # noqa: F401 - the module, which the command of the same name hides
from client_support import serving
from dpcrowd.cli.main import main
from dpcrowd.client.deliver import Checkin, Undelivered, deliver
from dpcrowd.client.errors import NodeUnreachable
from dpcrowd.client.tail import batches, follow_file
from dpcrowd.node.keys.trial import make_trial
from dpcrowd.node.slots import SECOND, SlotClock
from node_support_api import CHECKIN, CLOCK, NOW, READ, REGIONS, FakeService

REGION = next(iter(REGIONS))
feed_module = sys.modules["dpcrowd.cli.feed"]


def _line(user: int, **more: object) -> str:
    return json.dumps({"user": f"person-{user}", "region": REGION, **more}) + "\n"


def test_a_file_reaches_the_node_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every line, in batches of the size that was asked for."""
    (tmp_path / "day.ndjson").write_text("".join(_line(user) for user in range(25)) + "\n")
    service = FakeService()
    with serving(service) as served:
        assert main(["feed", served.url, str(tmp_path / "day.ndjson"), "--token", CHECKIN, "--batch", "10"]) == 0
    assert [len(batch) for batch in service.batches] == [10, 10, 5]
    assert capsys.readouterr() == ("", "")


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


@pytest.mark.parametrize("batch", ["1", "4", "1000"])
def test_what_the_node_refuses_is_told_by_line_and_all_the_rest_is_taken(
    batch: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One late row once cost the 999 good ones of its request, and was told by its place in there."""
    lines = [
        _line(1),
        _line(2, region="nowhere"),
        "\n",
        _line(4, time="yesterday"),
        _line(5, time=NOW // 1_000_000),
        _line(6, time=5),
        _line(7, time=NOW // 1_000_000 + 10_000),
        _line(8),
        _line(9, region="elsewhere"),
        _line(10),
    ]
    (tmp_path / "day.ndjson").write_text("".join(lines))
    service = FakeService()
    with serving(service) as served:
        assert main(["feed", served.url, str(tmp_path / "day.ndjson"), "--token", CHECKIN, "--batch", batch]) == 1
    assert _taken(service) == 4
    told = capsys.readouterr().err.splitlines()
    assert sorted(told) == sorted(
        [
            "dpcrowd: left out: line 2: region: missing or not allowed; allowed: the name of a region of network.toml.",
            "dpcrowd: left out: line 4: time: missing or not allowed; allowed: an RFC 3339 time with an offset, or "
            "milliseconds since 1970 as a whole number, from 1970 to 2262.",
            "dpcrowd: left out: line 6: time: of a slot that is sealed.",
            "dpcrowd: left out: line 7: time: later than this server's clock allows.",
            "dpcrowd: left out: line 9: region: missing or not allowed; allowed: the name of a region of network.toml.",
        ]
    )


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
    assert told[20:] == ["dpcrowd: left out: 25 more lines", "dpcrowd: 1 check-ins taken"]


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
    assert len(err.splitlines()) == 1


def test_a_node_that_is_away_has_its_own_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A script can tell it from wrong input, as with other commands; and where to go on is told."""
    (tmp_path / "day.ndjson").write_text("\n" + _line(2) + _line(3))
    with serving(FakeService()) as served:
        url = served.url
    assert main(["feed", url, str(tmp_path / "day.ndjson"), "--token", CHECKIN]) == 4
    err = capsys.readouterr().err
    assert err.startswith("dpcrowd: error: the node does not answer (ConnectError)")
    assert err.endswith("Lines from 2 on were not taken.\n")


def test_the_authority_is_an_option_here(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`(ca)` is a word of Python's client; here it is `--ca`."""
    files = make_trial(tmp_path / "keys", ["a"], datetime.now(UTC))["a"]
    (tmp_path / "day.ndjson").write_text(_line(1))
    with serving(FakeService(), files.certificate, files.key) as served:
        assert main(["feed", served.url, str(tmp_path / "day.ndjson"), "--token", CHECKIN]) == 4
        assert "(--ca)" in capsys.readouterr().err
        words = ["feed", served.url, str(tmp_path / "day.ndjson"), "--token", CHECKIN, "--ca", str(files.authority)]
        assert main(words) == 0


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe from another program."""
    monkeypatch.setattr("sys.stdin", io.StringIO(_line(1) + _line(2)))
    service = FakeService()
    with serving(service) as served:
        assert main(["feed", served.url, "--token", CHECKIN]) == 0
    assert [len(batch) for batch in service.batches] == [0, 2]  # that it is there, and then the check-ins


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
        (["-", "--follow"], "--follow is for files"),
        (["-", "--batch", "0"], "--batch"),
    ],
)
def test_wrong_input(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Said in a line, before anything is sent."""
    assert main(["feed", "http://127.0.0.1:1", *words]) == 2
    assert told in capsys.readouterr().err


def test_a_check_in_does_not_wait_for_a_full_batch() -> None:
    """On a quiet night a lone check-in has to arrive in its own slot."""

    def slow() -> Iterator[tuple[int, str]]:
        yield 1, _line(1)
        time.sleep(1.0)
        yield 2, _line(2)

    began = time.monotonic()
    arrived = [(len(batch), time.monotonic() - began) for batch in batches(slow(), pytest.fail, seconds=0.1)]
    assert [size for size, _ in arrived] == [1, 1]
    assert arrived[0][1] < 0.9, "the first left before the second came"


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


def test_a_feed_that_follows_waits_for_its_node(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """If it ended, whoever starts it again would send the whole file once more."""
    monkeypatch.setattr(feed_module, "_AGAIN", 0.01)
    tries = []

    class Away:
        def checkin(self, rows: list[dict[str, object]], batch: int) -> None:
            tries.append(rows)
            if len(tries) < 3:
                raise NodeUnreachable("nobody answers")

    checkins = [Checkin(1, {"user": "person-1", "region": REGION})]
    waiting = feed_module._Waiting(patient=True)
    assert deliver(feed_module._sender(Away(), waiting), checkins, pytest.fail, waiting.again) == 1
    assert tries == [[checkins[0].row]] * 3
    assert capsys.readouterr().err.splitlines() == [
        "dpcrowd: waiting: nobody answers",
        "dpcrowd: the node takes check-ins again",
    ]
    tries.clear()
    waiting = feed_module._Waiting(patient=False)
    with pytest.raises(Undelivered):
        deliver(feed_module._sender(Away(), waiting), checkins, pytest.fail, waiting.again)


def _append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def _rotate(path: Path, text: str) -> None:
    path.rename(path.with_suffix(".old"))
    path.write_text(text)
