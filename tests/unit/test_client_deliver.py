"""Lines to a node that refuses some of them: the others arrive, in their order, and each refusal is told once."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcrowd.client import deliver as module
from dpcrowd.client.deliver import Checkin, Undelivered, deliver
from dpcrowd.client.errors import NodeBusy, NodeError, NotTaken, RequestRefused

LINES = [Checkin(10 + place, {"user": place, "region": "north"}) for place in range(40)]


class Picky:
    """Takes a request whole or not at all.

    wrong   users that it refuses
    names   how many rows a refusal names; 0: none
    at_once rows of a request that are taken before the rest is looked at, as when the client halves a body
    """

    def __init__(self, wrong: set[int], names: int, at_once: int = 0) -> None:
        self.wrong, self.names, self.at_once = wrong, names, at_once
        self.taken: list[int] = []
        self.requests = 0

    def __call__(self, rows: list[dict[str, Any]]) -> None:
        self.requests += 1
        users = [row["user"] for row in rows]
        bad = [place for place, user in enumerate(users) if user in self.wrong]
        if not bad:
            self.taken += users
            return
        early = min(self.at_once, bad[0])
        self.taken += users[:early]
        text = f"row {bad[0]}: no; nothing of the body was taken."
        raise NotTaken(text, reason="late", text=text, rows=bad[: self.names] or None, taken=early)


def never(error: NodeError) -> bool:
    raise AssertionError


@given(st.sets(st.integers(0, 39)), st.sampled_from([0, 1, 3, 1000]), st.sampled_from([0, 5]))
def test_every_line_that_can_be_taken_is_taken(wrong: set[int], names: int, at_once: int) -> None:
    """Whatever the node names; a line out of its order could make the wrong region of a user win."""
    node = Picky(wrong, names, at_once)
    told: list[tuple[int, str]] = []
    good = [place for place in range(40) if place not in wrong]
    assert deliver(node, LINES, lambda number, why: told.append((number, why)), never) == len(good)
    assert node.taken == good
    assert sorted(told) == [(10 + place, "no") for place in sorted(wrong)]


def test_one_request_is_enough_to_leave_all_out() -> None:
    """A thousand rows, each refused by a request of its own, would take longer than the slot."""
    node = Picky({3, 4, 30}, 1000)
    deliver(node, LINES, lambda number, why: None, never)
    assert node.requests == 2
    alone = Picky({17}, 0)
    deliver(alone, LINES, lambda number, why: None, never)
    assert alone.requests < 15


def test_a_node_that_refuses_everything_is_not_asked_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it answers, and whichever rows it names, the feed goes on; nobody is left out without a word."""
    monkeypatch.setattr(module, "_MOST_TRIES", 7)
    requests = 0

    def no(rows: list[dict[str, Any]]) -> None:
        nonlocal requests
        requests += 1
        raise RequestRefused("no.", reason="field", text="no.", rows=[-1, 99_999])

    told: list[int] = []
    assert deliver(no, LINES, lambda number, why: told.append(number), never) == 0
    assert sorted(told) == [line.number for line in LINES]
    assert requests <= 7 + 8, "after the last try whatever still waits is tried once"


def test_of_several_fields_only_the_first_is_known() -> None:
    """The node's sentence is of one row: told of another, somebody would mend the wrong field."""

    def no(rows: list[dict[str, Any]]) -> None:
        if len(rows) == 40:
            text = "row 2: time: missing or not allowed; allowed: RFC 3339."
            raise RequestRefused(text, reason="field", text=text, rows=[2, 5])

    told: list[tuple[int, str]] = []
    assert deliver(no, LINES, lambda number, why: told.append((number, why)), never) == 38
    assert told == [
        (12, "time: missing or not allowed; allowed: RFC 3339"),
        (15, "a field is missing or not allowed"),
    ]


def test_what_was_taken_before_a_pause_is_not_sent_again() -> None:
    """A check-in without a time would count a second time, in the slot after the pause."""
    taken: list[int] = []
    pauses: list[NodeError] = []

    def half(rows: list[dict[str, Any]]) -> None:
        users = [row["user"] for row in rows]
        if len(users) == 40:
            taken.extend(users[:20])
            raise NodeBusy("full.", reason="full", text="full.", taken=20)
        taken.extend(users)

    def wait(error: NodeError) -> bool:
        pauses.append(error)
        return len(pauses) < 3

    assert deliver(half, LINES, pytest.fail, wait) == 40
    assert taken == list(range(40))
    assert len(pauses) == 1
    with pytest.raises(Undelivered) as stopped:
        deliver(half, LINES, pytest.fail, lambda error: False)
    assert (stopped.value.number, stopped.value.taken, stopped.value.reason) == (30, 20, "full")


def test_nobody_is_shown() -> None:
    """A check-in in a traceback, or in a debugger's list of variables."""
    assert repr(LINES[:2]) == "[Checkin(10), Checkin(11)]"
