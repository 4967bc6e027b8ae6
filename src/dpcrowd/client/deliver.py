"""Lines to a node, so that every one that can be taken is taken: what is refused is left out, the rest is sent again.

A node takes a request whole or not at all, and names the rows that are wrong. If it names none, the request is cut in
halves until it is one line. The order of lines is kept throughout, since the last region of a user wins.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from dpcrowd.client.errors import NodeBusy, NodeError, NodeFailed, NodeUnreachable, NotTaken, RequestRefused

__all__ = ["Checkin", "Undelivered", "deliver"]

_MOST_TRIES = 500
"""Requests for one batch: a node that refuses everything and never says what is not asked for ever."""
_OF_THE_BODY = re.compile(r"^row \d+: |; nothing of the body was taken\.$|\.$")


class Checkin(NamedTuple):
    """A line of a file: its number, and the check-in."""

    number: int
    row: dict[str, Any]

    def __repr__(self) -> str:
        return f"Checkin({self.number})"  # nobody is shown


class Undelivered(NodeError):
    """The node is away, busy or broken; lines from `number` on were not taken."""

    number: int = 0


def deliver(
    send: Callable[[list[dict[str, Any]]], object],
    checkins: Sequence[Checkin],
    wrong: Callable[[int, str], None],
    wait: Callable[[NodeError], bool],
) -> int:
    """Send check-ins; how many were taken. `wrong` hears the number of each line that was left out, and why.

    wait  called when the node is away or busy; whether it is to be asked again
    """
    parts = [list(checkins)]  # the next one to be sent is the last
    taken = tries = 0
    while parts:
        part = parts.pop()
        try:
            tries += 1
            send([checkin.row for checkin in part])
        except (NodeBusy, NodeFailed, NodeUnreachable) as error:
            taken += error.taken
            part = part[error.taken :]  # sent again without a time, they would count in another slot as well
            if not wait(error):
                raise _undelivered(error, part[0].number, taken) from None
            tries = 0
            parts.append(part)
        except (NotTaken, RequestRefused) as error:
            taken += error.taken
            parts += reversed(list(_rest(part, error, wrong, last=tries >= _MOST_TRIES)))
        else:
            taken += len(part)
    return taken


def _rest(
    part: list[Checkin], error: NodeError, wrong: Callable[[int, str], None], *, last: bool
) -> Iterator[list[Checkin]]:
    """What to send after a refusal, in its order; lines that are left out are told."""
    why = _OF_THE_BODY.sub("", error.text)
    named = sorted(row for row in set(error.rows or ()) if error.taken <= row < len(part))
    if last or len(part) - error.taken == 1:
        named = list(range(error.taken, len(part)))
    for place, row in enumerate(named):
        # The node's sentence is that of the first row; another may have another field that is wrong.
        wrong(part[row].number, why if not place or error.reason != "field" else "a field is missing or not allowed")
    if named:
        out = set(named)
        kept = [checkin for row, checkin in enumerate(part) if row >= error.taken and row not in out]
        if kept:
            yield kept
    else:
        kept = part[error.taken :]
        yield kept[: len(kept) // 2]
        yield kept[len(kept) // 2 :]


def _undelivered(error: NodeError, number: int, taken: int) -> Undelivered:
    stopped = Undelivered(str(error), status=error.status, reason=error.reason, text=error.text, taken=taken)
    stopped.number = number
    return stopped
