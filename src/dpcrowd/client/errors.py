"""What a node said no to, or why it could not be asked; one line each, and nothing of what was sent.

Errors of the HTTP library hold the request with its body, and so user ids: none of them is raised on, or kept as the
cause of one of these.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpcrowd.errors import DpcrowdError

__all__ = ["NodeBusy", "NodeError", "NodeFailed", "NodeUnreachable", "NotAllowed", "NotTaken", "RequestRefused", "kind"]


class NodeError(DpcrowdError):
    """A request to a node was not carried out.

    status       of HTTP; None if there was no answer
    reason       a word for programs, such as "late" or "unknown-region"
    text         the node's own sentence
    rows         the check-ins that are wrong or late, counted from 0 in what was given; of one request the first 1,000
    retry_after  seconds after which the node wants to be asked again
    taken        rows that were acknowledged before; sending all of them again is harmless
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        reason: str = "",
        text: str = "",
        rows: Sequence[int] | None = None,
        retry_after: float | None = None,
        taken: int = 0,
    ) -> None:
        super().__init__(message)
        self.status, self.reason, self.text = status, reason, text
        self.rows = None if rows is None else list(rows)
        self.retry_after, self.taken = retry_after, taken

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self),), self.__dict__  # whole, out of a worker process too

    def within(self, first: int, count: int) -> NodeError:
        """The same error of a batch that began at a row of what was given; all rows before it are taken."""
        message = f"in rows {first} to {first + count - 1}, counted from there: {self}" if first else str(self)
        rows = None if self.rows is None else [first + row for row in self.rows]
        return type(self)(
            message,
            status=self.status,
            reason=self.reason,
            text=self.text,
            rows=rows,
            retry_after=self.retry_after,
            taken=first,
        )


class NotAllowed(NodeError):
    """No token, an unknown one, or one of another right; or what was asked is switched off."""


class RequestRefused(NodeError):
    """The node does not understand the request: a wrong field, an unknown region, too large a body."""


class NotTaken(NodeError):
    """The slot is sealed, or was given counts and check-ins."""


class NodeBusy(NodeError):
    """The slot is full or nothing can be stored, after all retries; see `retry_after`."""


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
