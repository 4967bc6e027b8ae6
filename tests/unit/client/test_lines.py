"""Lines of a feed are delivered once each, over refusals and pauses."""

from __future__ import annotations

from typing import Any

import pytest

from dpcrowd.client.delivery import Delivery, RefusedRow
from dpcrowd.client.errors import NodeBusy, NodeError, NotTaken, RequestRefused
from dpcrowd.client.lines import NumberedCheckin, Undelivered, deliver_lines
from dpcrowd.client.rows import CheckinRow
from feed_support import CHECKINS, LeftOut


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

    left_out = LeftOut()
    pauses: list[NodeError] = []

    def wait(error: NodeError) -> bool:
        pauses.append(error)
        return True

    assert deliver_lines(half, CHECKINS, left_out, wait) == 38
    assert taken == [user for user in range(40) if user not in (3, 25)]
    assert left_out.lines == [(13, "late"), (35, "user")]
    assert len(pauses) == 1
    with pytest.raises(Undelivered) as stopped:
        deliver_lines(half, CHECKINS, LeftOut(), lambda error: False)
    assert (stopped.value.number, stopped.value.taken, str(stopped.value)) == (30, 19, "full.")


def test_more_lines_are_refused_than_the_node_names() -> None:
    """They are counted; which they were is known to nobody."""
    left_out = LeftOut()
    assert deliver_lines(lambda rows: Delivery(30, (RefusedRow(2, "late"),), 10), CHECKINS, left_out, pytest.fail) == 30
    assert (left_out.lines, left_out.others) == ([(12, "late")], 9)


def test_what_is_not_about_lines_ends_the_feed() -> None:
    """A wrong address once left every line out, one by one, as if each had been wrong."""

    def nowhere(rows: list[CheckinRow]) -> Delivery:
        raise RequestRefused("there is no such path.", status=404, reason="not-found")

    with pytest.raises(RequestRefused):
        deliver_lines(nowhere, CHECKINS, LeftOut(), pytest.fail)

    def late(rows: list[CheckinRow]) -> Delivery:
        raise NotTaken("late.", delivery=Delivery(0, tuple(RefusedRow(row, "late") for row in range(40)), 40))

    left_out = LeftOut()
    assert deliver_lines(late, CHECKINS, left_out, pytest.fail) == 0
    assert len(left_out.lines) == 40


def test_nobody_is_shown() -> None:
    """A check-in in a traceback, or in a debugger's list of variables."""
    assert "person" not in repr([NumberedCheckin(10, CheckinRow("person-1", "north"))])
