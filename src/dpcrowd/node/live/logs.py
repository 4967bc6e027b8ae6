"""Structured logs: one JSON object, or one line for people, an event; the level can change while the node runs.

No line may hold a raw count or a user id. The node's own messages do not; of what comes from elsewhere, an exception's
text could (a failed conversion repeats the value that it failed on), so of exceptions only the class and the place in
the code are written. As a last fence, fields whose names speak of users or counts are withheld.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from traceback import extract_tb
from typing import Any, Literal, TextIO

from dpcrowd.errors import DpcrowdError, plain

__all__ = ["LIBRARY", "JsonLines", "PrettyLines", "set_level", "set_up"]

_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName", "color_message"}
_OWN = frozenset({"time", "level", "logger", "message", "error", "place"})
_WITHHELD = frozenset({"user", "users", "count", "counts", "raw", "hashes", "batch", "body", "token"})
_QUIET = ("uvicorn", "uvicorn.error", "uvicorn.access", "uvicorn.asgi", "websockets", "asyncio")


LIBRARY = "library"
"""The event of a line that is not of dpcrowd."""


class JsonLines(logging.Formatter):
    """Formats a record as {"time", "level", "logger", "message", "event", ...other fields of `extra`}."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _message(record),
        }
        for name, value in _fields(record):
            line[f"{name}_" if name in _OWN else name] = value
        line |= _failure(record)
        return json.dumps(line, default=str, ensure_ascii=False)


class PrettyLines(logging.Formatter):
    """Formats a record as time LEVEL message key=value ..., without anything that moves the cursor of a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        parts = [_time(record), f"{record.levelname:<7}", _message(record)]
        parts += [f"{name}={value}" for name, value in [*_fields(record), *_failure(record).items()]]
        return plain(" ".join(parts))


def set_up(form: Literal["json", "pretty"], level: str, stream: TextIO | None = None) -> logging.Handler:
    """Send everything to `stream` (standard error) in one form; of libraries, warnings and errors only."""
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(JsonLines() if form == "json" else PrettyLines())
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
    set_level(level)
    return handler


def set_level(level: str) -> None:
    """Set the level of dpcrowd's own lines."""
    logging.getLogger("dpcrowd").setLevel(level.upper())


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _message(record: logging.LogRecord) -> str:
    if isinstance(record.msg, BaseException):  # uvicorn logs exceptions as messages
        return _safe_text(record.msg)
    return record.getMessage()


def _fields(record: logging.LogRecord) -> Iterator[tuple[str, Any]]:
    if "event" not in record.__dict__:
        yield "event", LIBRARY
    for name, value in record.__dict__.items():
        if name not in _STANDARD:
            yield name, "withheld" if name in _WITHHELD else value


def _failure(record: logging.LogRecord) -> dict[str, str]:
    error = record.exc_info[1] if record.exc_info else None
    if error is None:
        return {}
    frames = extract_tb(error.__traceback__)[-8:]
    place = " > ".join(f"{_short(frame.filename)}:{frame.lineno} {frame.name}" for frame in frames)
    return {"error": _safe_text(error), "place": place}


def _safe_text(error: BaseException) -> str:
    """Return an error's text where that is safe: our own errors and the system's never repeat what a user sent."""
    if isinstance(error, DpcrowdError):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return f"{type(error).__name__}: {error.strerror}"
    return type(error).__name__


def _short(path: str) -> str:
    """Return the last two parts of a path: a log must not name the home folder that the code is in."""
    return "/".join(path.replace("\\", "/").split("/")[-2:])
