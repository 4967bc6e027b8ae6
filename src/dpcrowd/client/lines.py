"""Deliver lines of a file or a pipe to a node: refused rows are reported by line, and the caller may wait for the node.

`deliver` decides what is refused and what is sent again, as for every client.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from dpcrowd.client.delivery import Delivery
from dpcrowd.client.errors import NodeBusy, NodeError, NodeFailed, NodeUnreachable, NotTaken, RequestRefused
from dpcrowd.client.rows import CheckinRow

__all__ = ["LeftOut", "NumberedCheckin", "Undelivered", "deliver_lines"]


class NumberedCheckin(NamedTuple):
    """The check-in of a line of a file, with the number of the line."""

    number: int
    row: CheckinRow


class LeftOut(Protocol):
    """Receives the lines that were not taken."""

    def line(self, number: int, reason: str) -> None:
        """One line was not taken."""

    def unnamed(self, count: int) -> None:
        """More lines were not taken; the node has not said which."""


class Undelivered(NodeError):
    """The node does not answer, is busy or failed; lines from `number` on were not taken."""

    number: int = 0


def deliver_lines(
    send: Callable[[list[CheckinRow]], Delivery],
    checkins: Sequence[NumberedCheckin],
    left_out: LeftOut,
    wait: Callable[[NodeError], bool],
) -> int:
    """Send check-ins; return how many were taken.

    send  sends check-ins, as `Client.checkin` does
    wait  called when the node does not answer or is busy; returns whether to try again
    """
    rest = list(checkins)
    accepted = 0
    while rest:
        failure: NodeError | None = None
        try:
            delivery = send([checkin.row for checkin in rest])
        except (NodeBusy, NodeFailed, NodeUnreachable) as error:
            delivery, failure = error.delivery, error
        except (NotTaken, RequestRefused) as error:
            if not error.delivery.refused_count:
                raise  # not about rows
            delivery = error.delivery
        accepted += delivery.accepted
        for row, reason in delivery.refused:
            left_out.line(rest[row].number, reason)
        if delivery.refused_count > len(delivery.refused):
            left_out.unnamed(delivery.refused_count - len(delivery.refused))
        if failure is None:
            break
        # What was taken is not sent again: without a time, it would count in another slot as well.
        refused = {row for row, _ in delivery.refused}
        rest = [checkin for row, checkin in enumerate(rest) if row >= failure.taken and row not in refused]
        if not wait(failure):
            raise _undelivered(failure, rest[0].number, accepted) from None
    return accepted


def _undelivered(error: NodeError, number: int, accepted: int) -> Undelivered:
    failure = Undelivered(error.message, status=error.status, reason=error.reason, text=error.text, taken=accepted)
    failure.number = number
    return failure
