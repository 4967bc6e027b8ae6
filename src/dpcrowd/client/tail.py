"""Read check-ins from a file or a pipe, line by line, in batches that are sent soon: the input of `dpcrowd feed`.

A line is a JSON object with user, region and, optionally, time. A file may grow (`follow_file`), be truncated, or be
replaced by a new file of the same name. A line that is not a check-in is left out and reported by its number in the
file, without its content. Bytes that are not UTF-8 affect only their own line (`open_lines`).

A line that waits for others is sent before its slot is sealed: `longest_wait` is the time that the network allows.
"""

from __future__ import annotations

import os
import queue
import re
import threading
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TextIO

from dpcrowd.client.lines import NumberedCheckin
from dpcrowd.client.rows import CheckinRow, read_row
from dpcrowd.client.views import Network

__all__ = ["LineBatches", "follow_file", "is_csv_header", "longest_wait", "open_lines", "read_lines"]

_PAUSE = 0.2
_SHORTEST_WAIT, _UNKNOWN_WAIT, _LONGEST_WAIT = 0.02, 0.05, 0.5
_CHUNK = 1 << 20
_MOST_WAITING = 10_000  # lines between the reader and the sender; then the reader waits

_FIELDS = (
    {"user", "users", "user_id", "userid", "person", "device", "id"},
    {"region", "regions", "region_id", "place", "area", "zone", "location"},
    {"time", "times", "timestamp", "date", "datetime", "slot"},
)
"""Names that columns of check-ins have in files of others, by field."""

Line = tuple[int, str]


def open_lines(path: Path) -> TextIO:
    """Open a file of lines; a byte that is not UTF-8 becomes a character that no check-in may have, and is no error."""
    return path.open(encoding="utf-8", errors="surrogateescape")


def read_lines(stream: TextIO) -> Generator[Line, None, None]:
    """Yield (number, line) of a stream until it ends, and close it."""
    with stream:
        yield from enumerate(stream, start=1)


def is_csv_header(line: str) -> bool:
    """Return whether a line is the header of a table of check-ins: two of the three fields, as names of columns.

    >>> is_csv_header("user,time,region"), is_csv_header('"Region"; "User ID"'), is_csv_header("ann,north")
    (True, True, False)
    """
    cells = [cell.strip().strip("\"'").strip().casefold() for cell in re.split("[,;\t]", line.removeprefix("\ufeff"))]
    names = {cell.replace(" ", "_") for cell in cells}
    return sum(bool(names & field) for field in _FIELDS) >= 2


def longest_wait(network: Network | None) -> float:
    """Return the seconds that a line may wait to be read, and again for others of its batch.

    Together the two waits are half of the grace, so that a line of the last moment of a slot still arrives in time; a
    line without a time counts when it is sent, and only a twentieth of those of a slot are sent in the next one.

    network  None: the node did not answer; a short grace is assumed, as for a node that does not report its grace
    """
    if network is None:
        return _UNKNOWN_WAIT
    wait = _UNKNOWN_WAIT if network.grace_seconds is None else network.grace_seconds / 4
    return max(_SHORTEST_WAIT, min(wait, network.slot_seconds / 20, _LONGEST_WAIT))


def follow_file(path: Path, stop: Callable[[], bool], *, new: bool = False, pause: float = _PAUSE) -> Iterator[Line]:
    """Yield (number, line) of a file that grows, and of the next one when it is replaced or truncated, until `stop`.

    A number is that of the line in its file, also if lines were skipped.

    new    skip the lines that are in the file already: without a time, they would count as present now
    pause  seconds between two reads of a file that does not grow
    """
    pause = min(pause, _PAUSE)
    while not stop():
        try:
            with open_lines(path) as file:
                inode = os.fstat(file.fileno()).st_ino
                number = _skip_lines(file) if new else 0
                new, part = False, ""
                while not stop():
                    piece = file.readline()
                    if not piece:
                        if _replaced(path, inode, file.tell()):
                            break
                        time.sleep(pause)
                        continue
                    part += piece
                    if part.endswith("\n"):  # a line that is still being written has no newline yet
                        number += 1
                        yield number, part
                        part = ""
        except FileNotFoundError:
            new = False  # all lines of a file that appears later are new
            time.sleep(pause)


def _skip_lines(file: TextIO) -> int:
    """Go to the end of the last complete line; return the number of lines before it."""
    lines = position = offset = 0
    while chunk := file.buffer.read(_CHUNK):
        if b"\n" in chunk:
            lines += chunk.count(b"\n")
            position = offset + chunk.rindex(b"\n") + 1
        offset += len(chunk)
    file.seek(position)
    return lines


def _replaced(path: Path, inode: int, position: int) -> bool:
    try:
        now = path.stat()
    except FileNotFoundError:
        return True
    return now.st_ino != inode or now.st_size < position


class LineBatches:
    """Check-ins in batches of `size`, or fewer if the oldest has waited for `seconds`.

    wrong  called with number and reason of a line that is not a check-in
    wake   yield an empty batch if nothing has come for this many seconds; None: wait for lines
    stop   returns whether to end; what was read until then is yielded
    last   the number of the last line that was yielded, or left out
    """

    def __init__(
        self,
        lines: Iterator[Line],
        wrong: Callable[[int, str], None],
        *,
        size: int = 1000,
        seconds: float = _LONGEST_WAIT,
        wake: float | None = None,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self.last = 0
        self._lines, self._wrong, self._stop = lines, wrong, stop
        self._size, self._seconds, self._wake = size, seconds, wake

    def __iter__(self) -> Iterator[list[NumberedCheckin]]:
        waiting: queue.Queue[Line | BaseException | None] = queue.Queue(_MOST_WAITING)
        threading.Thread(target=_pump, args=(self._lines, waiting, self._stop), daemon=True).start()
        batch: list[NumberedCheckin] = []
        oldest = 0.0
        while True:
            stopping = self._stop()
            timeout = max(oldest + self._seconds - time.monotonic(), 0.0) if batch else self._wake
            try:
                item = waiting.get(timeout=0.0 if stopping else timeout)
            except queue.Empty:
                yield batch
                if stopping:
                    return
                batch = []
                continue
            if item is None or isinstance(item, BaseException):
                if batch:
                    yield batch
                if item is not None:
                    raise item
                return
            row = self._row(*item)
            if row is not None:
                if not batch:
                    oldest = time.monotonic()
                batch.append(row)
            if len(batch) >= self._size:
                yield batch
                batch = []

    def _row(self, number: int, line: str) -> NumberedCheckin | None:
        self.last = number
        row = read_row(line)
        if isinstance(row, CheckinRow):
            return NumberedCheckin(number, row)
        if row is not None:
            self._wrong(number, row)
        return None


def _pump(lines: Iterator[Line], waiting: queue.Queue[Line | BaseException | None], stop: Callable[[], bool]) -> None:
    try:
        for line in lines:
            waiting.put(line)
            if stop():
                break
    except BaseException as error:
        waiting.put(error)
    else:
        waiting.put(None)
