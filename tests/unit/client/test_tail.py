"""Lines of a file that grows, or of a pipe, in batches that do not wait long."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dpcrowd.client.tail import LineBatches, follow_file
from feed_support import line_of


def test_a_stop_gives_what_was_read() -> None:
    """Lines that wait for a full batch would otherwise be lost: after a start with --new nobody reads them again."""
    stop = threading.Event()

    def silent() -> Iterator[tuple[int, str]]:
        yield from ((number, line_of(number)) for number in (1, 2, 3))
        yield 4, "{"
        stop.set()
        threading.Event().wait()  # a pipe into which nobody writes

    batches = LineBatches(silent(), lambda number, reason: None, seconds=3600, wake=0.05, stop=stop.is_set)
    rows = [row for batch in batches for row in batch]
    assert [row.number for row in rows] == [1, 2, 3]
    assert batches.last == 4


@pytest.mark.slow
def test_a_check_in_does_not_wait_for_a_full_batch() -> None:
    """On a quiet night a lone check-in has to arrive in its own slot."""

    def slow() -> Iterator[tuple[int, str]]:
        yield 1, line_of(1)
        time.sleep(1.0)
        yield 2, line_of(2)

    began = time.monotonic()
    arrived = [(len(batch), time.monotonic() - began) for batch in LineBatches(slow(), pytest.fail, seconds=0.1)]
    assert [size for size, _ in arrived] == [1, 1]
    assert arrived[0][1] < 0.9, "the first left before the second came"


def _append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def _rotate(path: Path, text: str) -> None:
    path.rename(path.with_suffix(".old"))
    path.write_text(text)


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
