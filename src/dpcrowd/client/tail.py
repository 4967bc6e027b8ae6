"""Check-ins from a file or a pipe, line by line, in batches that leave soon: what `dpcrowd feed` sends.

A line is a JSON object of user, region and, if wanted, time. A file may grow (`follow_file`), be cut, or be replaced by
a new one of its name. A line that is no check-in is left out and reported by its number in its file; nothing of it is
repeated. Bytes that are not UTF-8 spoil their own line only (`open_lines`).
"""

from __future__ import annotations

import json
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

from dpcrowd.client.deliver import Checkin
from dpcrowd.client.rows import ALLOWED, wrong_field

__all__ = ["batches", "follow_file", "open_lines", "read_lines"]

_NAP = 0.2
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


def follow_file(path: Path, stop: Callable[[], bool], *, new: bool = False) -> Iterator[Line]:
    """(number, line) of a file that grows; of the next one when it is replaced or cut. Until `stop` says so.

    A number is that of the line in its file, whatever was passed over.

    new  pass over what is in the file already, if it is there: lines without a time would count as of now
    """
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
                        time.sleep(_NAP)
                        continue
                    part += piece
                    if part.endswith("\n"):  # a line that is still being written has no end yet
                        number += 1
                        yield number, part
                        part = ""
        except FileNotFoundError:
            new = False  # the one that will come is new as a whole
            time.sleep(_NAP)


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


def batches(
    lines: Iterator[Line],
    wrong: Callable[[int, str], None],
    *,
    size: int = 1000,
    seconds: float = 0.5,
    wake: float | None = None,
) -> Iterator[list[Checkin]]:
    """Check-ins in batches of `size`, or fewer if the oldest has waited for `seconds`; `wrong` hears of other lines.

    wake  give an empty batch whenever nothing has come for so long; None: wait for lines
    """
    waiting: queue.Queue[Line | BaseException | None] = queue.Queue(_WAITING)
    threading.Thread(target=_pump, args=(lines, waiting), daemon=True).start()
    batch: list[Checkin] = []
    oldest = 0.0
    while True:
        try:
            got = waiting.get(timeout=max(oldest + seconds - time.monotonic(), 0.0) if batch else wake)
        except queue.Empty:
            yield batch
            batch = []
            continue
        if got is None or isinstance(got, BaseException):
            if batch:
                yield batch
            if got is not None:
                raise got
            return
        row = _row(*got, wrong)
        if row is not None:
            if not batch:
                oldest = time.monotonic()
            batch.append(row)
        if len(batch) >= size:
            yield batch
            batch = []


def _pump(lines: Iterator[Line], waiting: queue.Queue[Line | BaseException | None]) -> None:
    try:
        for line in lines:
            waiting.put(line)
    except BaseException as error:
        waiting.put(error)
    else:
        waiting.put(None)


def _row(number: int, line: str, wrong: Callable[[int, str], None]) -> Checkin | None:
    if not line.strip():
        return None
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        wrong(number, "not JSON")
        return None
    if not isinstance(row, dict) or not {"user", "region"} <= row.keys() <= {"user", "region", "time"}:
        wrong(number, "not an object of user, region and, if wanted, time")
        return None
    field = wrong_field(row["user"], row["region"], row.get("time"))
    if field is not None:
        wrong(number, f"{field}: missing or not allowed; allowed: {ALLOWED[field]}")
        return None
    return Checkin(number, row)
