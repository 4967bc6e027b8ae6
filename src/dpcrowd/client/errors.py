"""What a node said no to, or why it could not be asked; one line each, and nothing of what was sent.

Errors of the HTTP library hold the request with its body, and so user ids: none of them is raised on, or kept as the
cause of one of these.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpcrowd.client.delivery import Delivery
from dpcrowd.errors import DpcrowdError

__all__ = [
    "NodeBusy",
    "NodeError",
    "NodeFailed",
    "NodeUnreachable",
    "NotAllowed",
    "NotTaken",
    "RequestRefused",
    "RowsRefused",
    "kind",
]


class NodeError(DpcrowdError):
    """A request to a node was not carried out.

    status       of HTTP; None if there was no answer
    reason       a word for programs, such as "late" or "unknown-region"
    text         the node's own sentence
    cause        of no answer: what the system or the HTTP library calls it, such as "connection refused" or ReadTimeout
    message      the whole line, without the row before which a delivery was ended
    rows         the check-ins that are wrong or late, counted from 0 in what was given; of one request the first 1,000
    retry_after  seconds after which the node wants to be asked again
    taken        where to go on after a failure: rows before this one were taken, or refused and are in `delivery`;
                 sending all of them again is harmless
    delivery     what was taken and what was refused until then
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        reason: str = "",
        text: str = "",
        cause: str = "",
        rows: Sequence[int] | None = None,
        retry_after: float | None = None,
        taken: int = 0,
        delivery: Delivery | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.reason, self.text, self.message = status, reason, text, message
        self.cause = cause
        self.rows = None if rows is None else list(rows)
        self.retry_after, self.taken = retry_after, taken
        self.delivery = Delivery(0) if delivery is None else delivery

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self),), self.__dict__  # whole, out of a worker process too

    def interrupting(self, taken: int, delivery: Delivery) -> NodeError:
        """The same error, of a delivery that it has ended before the row `taken`."""
        line = f"rows from {taken} on were not taken: {self.message}" if taken else self.message
        error = self._of(line, self.text, None, taken, delivery)
        error.message = self.message
        return error

    def of_all_rows(self, text: str, delivery: Delivery) -> NodeError:
        """The same error, of a delivery of which no row was taken; `text` has the row's number in what was given."""
        rows = [refused.row for refused in delivery.refused]
        return self._of(f"{text} ({self.reason}, HTTP {self.status})", text, rows, 0, delivery)

    def _of(self, message: str, text: str, rows: list[int] | None, taken: int, delivery: Delivery) -> NodeError:
        return type(self)(
            message,
            status=self.status,
            reason=self.reason,
            text=text,
            cause=self.cause,
            rows=rows,
            retry_after=self.retry_after,
            taken=taken,
            delivery=delivery,
        )


class NotAllowed(NodeError):
    """No token, an unknown one, or one of another right; or what was asked is switched off."""


class RequestRefused(NodeError):
    """The node does not understand the request: a wrong field, an unknown region, too large a body."""


class NotTaken(NodeError):
    """The slot is sealed; a node of 0.1.0 also refuses a slot of both counts and check-ins."""


class RowsRefused(NodeError):
    """Asked for with `strict`: some check-ins were refused. All others are on the node's disk; see `delivery`."""


class NodeBusy(NodeError):
    """The node was asked too often or nothing can be stored, after all retries; see `retry_after`."""


class NodeFailed(NodeError):
    """The node broke, or what answered is not a node."""


class NodeUnreachable(NodeError):
    """There was no answer, after all retries."""


def kind(status: int) -> type[NodeError]:
    """The class for an HTTP status."""
    if status in (401, 403):
        return NotAllowed
    if status == 409:
        return NotTaken
    if status in (429, 503):
        return NodeBusy
    return RequestRefused if 400 <= status < 500 else NodeFailed
