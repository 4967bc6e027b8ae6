"""Retries, without a network and without waiting."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from client_support import drive, patience
from dpcrowd.client.errors import NodeBusy, NodeError, NodeUnreachable, NotTaken
from dpcrowd.client.steps import Ask, Reply, Silence, Wait, send

ASK = Ask("GET", "/")
FULL = b'{"error":{"reason":"full","text":"no room."}}'


def waits(steps: list[Any]) -> list[float]:
    return [step.seconds for step in steps if isinstance(step, Wait)]


def test_waits_grow_and_are_bounded() -> None:
    """A node that is away is not hammered, and not waited for without end."""
    error, asked = drive(send(ASK, patience(retries=7)), [Silence("ConnectError")] * 8)
    assert isinstance(error, NodeUnreachable)
    assert waits(asked) == [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    error, asked = drive(send(ASK, patience(retries=99, seconds=3)), [Silence("ReadTimeout")] * 99)
    assert isinstance(error, NodeUnreachable)
    assert sum(waits(asked)) <= 3


def test_retry_after_is_honoured() -> None:
    """The node knows when its slot ends; a wait that is longer than the patience is not begun."""
    reply, asked = drive(send(ASK, patience()), [Reply(429, FULL, "7"), Reply(200, b"{}")])
    assert reply.status == 200
    assert waits(asked) == [7.0]
    error, asked = drive(send(ASK, patience(seconds=5)), [Reply(429, FULL, "2")] * 4)
    assert isinstance(error, NodeBusy)
    assert waits(asked) == [2.0, 2.0]  # a third would be 6 seconds altogether
    error, asked = drive(send(ASK, patience()), [Reply(429, FULL, "3600")])
    assert isinstance(error, NodeBusy)
    assert (error.retry_after, waits(asked)) == (3600.0, [])
    _, asked = drive(send(ASK, patience()), [Reply(503, FULL, "Wed, 21 Oct 2026 07:28:00 GMT"), Reply(200, b"{}")])
    assert waits(asked) == [0.2]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 406, 409, 413, 415, 500])
def test_what_does_not_pass_is_not_tried_again(status: int) -> None:
    """Asking again would get the same answer."""
    error, asked = drive(send(ASK, patience()), [Reply(status, FULL)])
    assert isinstance(error, NodeError)
    assert (error.status, error.reason, len(asked)) == (status, "full", 1)


def test_texts_from_outside_are_one_line() -> None:
    """What a stranger answers must not draw on a terminal, nor fill a log."""
    content = b'{"error":{"reason":"a\\u001b[31m","text":"b\\nc' + b"d" * 9999 + b'"}}'
    error, _ = drive(send(ASK, patience()), [Reply(409, content)])
    assert str(error).isprintable()
    assert len(str(error)) < 700


def test_errors_survive_pickling() -> None:
    """An error of a worker process has to reach the user whole."""
    error = NotTaken("no.", status=409, reason="late", text="no", rows=[1], taken=5)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is NotTaken
    assert (str(again), again.__dict__) == (str(error), error.__dict__)


def test_a_request_has_no_repr() -> None:
    """It holds user ids, and a debugger's or logger's repr would show them."""
    assert "ann" not in repr(Ask("POST", "/", (), b"ann"))
