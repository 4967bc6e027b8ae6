"""Lines of a file or a pipe to a node: what it refuses is told by line, and a node that is away can be waited for.

What is refused, and what is sent again, is decided in `deliver`, as for every client.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from dpcrowd.client.delivery import Delivery
from dpcrowd.client.errors import NodeBusy, NodeError, NodeFailed, NodeUnreachable, NotTaken, RequestRefused
from dpcrowd.client.rows import CheckIn

__all__ = ["LeftOut", "NumberedCheckin", "Undelivered", "deliver_lines"]


class NumberedCheckin(NamedTuple):
    """A line of a file: its number, and the check-in."""

    number: int
    row: CheckIn


class LeftOut(Protocol):
    """Hears of lines that were not taken."""

    def line(self, number: int, reason: str) -> None:
        """One of them."""

    def unnamed(self, count: int) -> None:
        """Some more, of which the node has not said which they are."""


class Undelivered(NodeError):
    """The node is away, busy or broken; lines from `number` on were not taken."""

    number: int = 0


def deliver_lines(
    send: Callable[[list[CheckIn]], Delivery],
    checkins: Sequence[NumberedCheckin],
    left_out: LeftOut,
    wait: Callable[[NodeError], bool],
) -> int:
    """Send check-ins; how many were taken.

    send  as `Client.checkin`
    wait  called when the node is away or busy; whether it is to be asked again
    """
    rest = list(checkins)
    taken = 0
    while rest:
        failure: NodeError | None = None
        try:
            delivery = send([checkin.row for checkin in rest])
        except (NodeBusy, NodeFailed, NodeUnreachable) as error:
            delivery, failure = error.delivery, error
        except (NotTaken, RequestRefused) as error:
            if not error.delivery.refused_count:
                raise  # not about rows: no line is to blame
            delivery = error.delivery
        taken += delivery.accepted
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
            raise _undelivered(failure, rest[0].number, taken) from None
    return taken


def _undelivered(error: NodeError, number: int, taken: int) -> Undelivered:
    stopped = Undelivered(error.message, status=error.status, reason=error.reason, text=error.text, taken=taken)
    stopped.number = number
    return stopped
