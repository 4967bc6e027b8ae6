"""Errors of a client: why a node refused a request, or could not be reached; in one line, without data of the request.

Errors of the HTTP library contain the request with its body, and so user ids: none of them is raised, or kept as the
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

    status       HTTP status; None if there was no answer
    reason       a word for programs, such as "late" or "unknown-region"
    text         the node's own sentence
    cause        why there was no answer, as the system or the HTTP library calls it: "connection refused", ReadTimeout
    message      the complete line, without the row before which a delivery ended
    rows         numbers of the rows that are wrong or late, counted from 0; the first 1,000 of a request
    retry_after  seconds after which the node may be asked again
    taken        row from which to continue after a failure: rows before it were taken, or refused and are in
                 `delivery`; sending all of them again is harmless
    delivery     what was taken and what was refused before the failure
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
        return type(self), (str(self),), self.__dict__  # complete, also from a worker process

    def interrupting(self, taken: int, delivery: Delivery) -> NodeError:
        """Return the same error for a delivery that it has ended before the row `taken`."""
        line = f"rows from {taken} on were not taken: {self.message}" if taken else self.message
        error = self._copy(line, self.text, None, taken, delivery)
        error.message = self.message
        return error

    def of_all_rows(self, text: str, delivery: Delivery) -> NodeError:
        """Return the same error for a delivery without any row taken; `text` has the row's number for the caller."""
        rows = [refused.row for refused in delivery.refused]
        return self._copy(f"{text} ({self.reason}, HTTP {self.status})", text, rows, 0, delivery)

    def _copy(self, message: str, text: str, rows: list[int] | None, taken: int, delivery: Delivery) -> NodeError:
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
    """There is no token, an unknown one or one with another right; or the node does not offer what was requested."""


class RequestRefused(NodeError):
    """The node does not accept the request: a wrong field, an unknown region, a body that is too large."""


class NotTaken(NodeError):
    """The slot is sealed; a node of 0.1.0 also refuses a slot with both counts and check-ins."""


class RowsRefused(NodeError):
    """Some check-ins of a call with `strict` were refused; all others are on the node's disk, see `delivery`."""


class NodeBusy(NodeError):
    """The node got too many requests or cannot store anything, after all retries; see `retry_after`."""


class NodeFailed(NodeError):
    """The node had an internal error, or the server that answered is not a node."""


class NodeUnreachable(NodeError):
    """There was no answer, after all retries."""


def kind(status: int) -> type[NodeError]:
    """Return the class of error for an HTTP status."""
    if status in (401, 403):
        return NotAllowed
    if status == 409:
        return NotTaken
    if status in (429, 503):
        return NodeBusy
    return RequestRefused if 400 <= status < 500 else NodeFailed
