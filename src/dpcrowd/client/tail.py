"""Check-ins from a file or a pipe, line by line, in batches that leave soon: what `dpcrowd feed` sends.

A line is a JSON object of user, region and, if wanted, time. A file may grow (`follow_file`), be cut, or be replaced by
a new one of its name. A line that is no check-in is left out and reported by its number in its file; nothing of it is
repeated. Bytes that are not UTF-8 spoil their own line only (`open_lines`).

A line that waits for others is sent before its slot is sealed: `longest_wait` is what the network leaves time for.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

from dpcrowd.client.lines import NumberedCheckin
from dpcrowd.client.rows import CheckIn, read_row
from dpcrowd.client.views import Network

__all__ = ["LineBatches", "follow_file", "longest_wait", "open_lines", "read_lines"]

_NAP = 0.2
_SHORTEST_WAIT, _UNKNOWN_WAIT, _LONGEST_WAIT = 0.02, 0.05, 0.5
_CHUNK = 1 << 20
_WAITING = 10_000  # lines between the reader and the sender; then the reader waits

Line = tuple[int, str]


def open_lines(path: Path) -> TextIO:
    """A file of lines; a byte that is not UTF-8 becomes a character that no check-in may have, and stops nobody."""
    return path.open(encoding="utf-8", errors="surrogateescape")


def read_lines(stream: TextIO) -> Iterator[Line]:
    """(number, line) of a stream until it ends; then it is closed."""
    with stream:
        yield from enumerate(stream, start=1)


def longest_wait(network: Network | None) -> float:
    """Seconds that a line may wait to be read, and again for others of its batch.

    The two waits are half of the grace together, so that a line of a slot's last moment still comes in time; a line
    without a time counts when it is sent, and only a twentieth of a slot's are sent in the next one.

    network  None: the node did not say; as for one that does not tell its grace, a short one is assumed
    """
    if network is None:
        return _UNKNOWN_WAIT
    wait = _UNKNOWN_WAIT if network.grace_seconds is None else network.grace_seconds / 4
    return max(_SHORTEST_WAIT, min(wait, network.slot_seconds / 20, _LONGEST_WAIT))


def follow_file(path: Path, stop: Callable[[], bool], *, new: bool = False, nap: float = _NAP) -> Iterator[Line]:
    """(number, line) of a file that grows; of the next one when it is replaced or cut. Until `stop` says so.

    A number is that of the line in its file, whatever was passed over.

    new  pass over what is in the file already, if it is there: lines without a time would count as of now
    nap  seconds between two looks at a file that does not grow
    """
    nap = min(nap, _NAP)
    while not stop():
        try:
            with open_lines(path) as file:
                inode = os.fstat(file.fileno()).st_ino
                number = _pass_over(file) if new else 0
                new, part = False, ""
                while not stop():
                    piece = file.readline()
                    if not piece:
                        if _replaced(path, inode, file.tell()):
                            break
                        time.sleep(nap)
                        continue
                    part += piece
                    if part.endswith("\n"):  # a line that is still being written has no end yet
                        number += 1
                        yield number, part
                        part = ""
        except FileNotFoundError:
            new = False  # the one that will come is new as a whole
            time.sleep(nap)


def _pass_over(file: TextIO) -> int:
    """Go to the end of the last whole line; the number of lines before."""
    lines = position = read = 0
    while chunk := file.buffer.read(_CHUNK):
        if b"\n" in chunk:
            lines += chunk.count(b"\n")
            position = read + chunk.rindex(b"\n") + 1
        read += len(chunk)
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

    wrong  hears of the other lines: number and reason
    wake   give an empty batch whenever nothing has come for so long; None: wait for lines
    stop   whether to end; what was read until then is given
    last   the number of the last line that was given, or left out
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
        waiting: queue.Queue[Line | BaseException | None] = queue.Queue(_WAITING)
        threading.Thread(target=_pump, args=(self._lines, waiting, self._stop), daemon=True).start()
        batch: list[NumberedCheckin] = []
        oldest = 0.0
        while True:
            stopping = self._stop()
            left = max(oldest + self._seconds - time.monotonic(), 0.0) if batch else self._wake
            try:
                item = waiting.get(timeout=0.0 if stopping else left)
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
        if isinstance(row, CheckIn):
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
