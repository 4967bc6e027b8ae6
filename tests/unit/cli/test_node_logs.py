"""Logs: one line an event, fields that programs find again, and nothing in them that is somebody's secret."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from dpcrowd.errors import BadInput
from dpcrowd.node.live.logs import JsonLines, PrettyLines, set_level, set_up

log = logging.getLogger("dpcrowd.node")


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    log.parent.setLevel(logging.NOTSET)  # type: ignore[union-attr]


def _lines(form: Any = "json", level: str = "info") -> io.StringIO:
    out = io.StringIO()
    set_up(form, level, out)
    return out


def test_fields_become_keys() -> None:
    """A monitor filters by event and slot; in the text they would have to be parsed out."""
    out = _lines()
    log.warning("message %s", "refused", extra={"sender": "b", "slot": 7, "text": "a\nb", "level": "x"})
    line = json.loads(out.getvalue())
    assert out.getvalue().count("\n") == 1
    assert line["message"] == "message refused"
    assert line["level"] == "warning"
    assert line["logger"] == "dpcrowd.node"
    assert (line["sender"], line["slot"], line["text"], line["level_"]) == ("b", 7, "a\nb", "x")
    assert line["time"].endswith("Z")


@pytest.mark.parametrize(("form", "wanted"), [("json", '"event": "library"'), ("pretty", "event=library")])
def test_lines_of_libraries_have_an_event_too(form: str, wanted: str) -> None:
    """The node's own lines name theirs; a monitor that counts lines by event must not lose those of the web server."""
    out = _lines(form)
    logging.getLogger("uvicorn.error").warning("Invalid HTTP request received.")
    log.warning("a line of ours", extra={"event": "clock"})
    first, second = out.getvalue().splitlines()
    assert wanted in first
    assert wanted.replace("library", "clock") in second


def test_pretty_is_one_line_that_cannot_move_the_cursor() -> None:
    """A neighbour's text with an escape sequence would otherwise rewrite the operator's screen."""
    out = _lines("pretty")
    log.warning("refused", extra={"text": "\x1b[2Jgone\nINFO all is well", "slot": 7})
    assert out.getvalue().count("\n") == 1
    assert "\x1b" not in out.getvalue()
    assert "slot=7" in out.getvalue()
    assert "WARNING refused" in out.getvalue()


@pytest.mark.parametrize("form", ["json", "pretty"])
def test_no_user_id_or_count_from_an_exception_or_a_field(form: str) -> None:
    """int("alice") says "alice" in its text: a traceback in the log would be a list of users."""
    out = _lines(form)
    try:
        int("alice-4711")
    except ValueError as error:
        log.exception("broke")
        log.error("broke", exc_info=error)
        log.error(error)  # as uvicorn does
    log.info("x", extra={"users": ["alice-4711"], "counts": [4711], "token": "4711"})
    written = out.getvalue()
    assert "alice" not in written
    assert "4711" not in written
    assert "ValueError" in written
    assert "test_node_logs.py" in written, "the place in the code is what helps"
    assert written.count("\n") == 4


def test_our_own_errors_keep_their_text() -> None:
    """They never repeat what a user sent, and say what to do."""
    record = logging.LogRecord("dpcrowd", 40, "f", 1, "x", None, (BadInput, BadInput("free some space."), None))
    assert json.loads(JsonLines().format(record))["error"] == "free some space."
    assert "error=free some space." in PrettyLines().format(record)


def test_the_level_changes_while_running() -> None:
    """Restarting a server to see more would lose what was to be seen."""
    out = _lines(level="warning")
    log.info("before")
    set_level("debug")
    log.debug("after")
    assert [json.loads(line)["message"] for line in out.getvalue().splitlines()] == ["after"]


def test_libraries_are_quiet() -> None:
    """uvicorn tells of every start and stop; its access log would count check-ins."""
    out = _lines(level="debug")
    for name in ("uvicorn.error", "uvicorn.access", "httpx", "asyncio"):
        logging.getLogger(name).info("chatter")
    logging.getLogger("uvicorn.error").warning("important")
    assert [json.loads(line)["message"] for line in out.getvalue().splitlines()] == ["important"]
