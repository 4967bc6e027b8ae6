"""Deliver check-ins so that every row that a node can take is taken, and the others are reported by number and reason.

A node takes the correct rows of a request and names the others. A node of 0.1.0 takes or refuses a complete request,
and names the wrong rows: these are left out and the rest is sent again; if it names none, the request is halved until
it is one row. The order of rows is kept throughout, since the last region of a user counts.

A request may be sent twice without harm: the node counts distinct users of a slot, and a row counts as accepted here
once, with the answer that arrived. Nothing here does I/O: like `steps`, these are generators of requests and waits.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from dpcrowd.client.delivery import Delivery, RefusedRow
from dpcrowd.client.errors import NodeError, NotTaken, RequestRefused, RowsRefused
from dpcrowd.client.rows import CheckinRows, checkin_rows, content_type, encode
from dpcrowd.client.steps import Ask, Patience, RefusedDetail, Reply, Steps, read, refused_rows, send, send_nothing

__all__ = ["send_checkins"]

_MOST_REQUESTS = 500
"""Limit per batch, for a node that refuses everything and never says which row is wrong."""
_FAST = 1  # level of gzip: ids of users hardly become smaller with more effort
_ABOUT_ROWS, _TOO_LARGE = (400, 409, 413), (408, 413)
_ROW_IN_TEXT = re.compile(r"^row (\d+): (?:(user|region|time): |(not a check-in))?")


def send_checkins(
    users: Any,
    regions: Any,
    times: Any,
    batch: int,
    encoding: str,
    patience: Patience,
    *,
    strict: bool = False,
    compress: bool = False,
) -> Steps[Delivery]:
    """Send check-ins in batches; an empty list is sent, too.

    strict    raise `RowsRefused` at the end if a row was refused
    compress  compress the bodies with gzip

    If no row is taken, the node's refusal is raised, or `BadInput` where there was nothing to send.
    """
    content_type(encoding)  # a wrong one is refused before anything is read
    checkins = checkin_rows(users, regions, times)
    if not checkins.rows:
        if checkins.wrong:
            raise checkins.problem()
        yield from send_nothing(patience)
        return Delivery(0)
    delivery = _OpenDelivery(checkins, max(1, batch), encoding, patience, compress=compress)
    first = 0
    while first < len(checkins.rows):
        part = range(first, min(first + delivery.size, len(checkins.rows)))
        yield from delivery.settle(part)
        first = part.stop
    return delivery.outcome(strict=strict)


class _OpenDelivery:
    """The rows of one call while they are sent.

    A position is an index into `checkins.rows`; a number is the index of a row in the caller's argument, wrong rows
    included.

    size  rows per request; smaller, once a body was too large
    """

    def __init__(
        self, checkins: CheckinRows, size: int, encoding: str, patience: Patience, *, compress: bool = False
    ) -> None:
        self.size = size
        self._compress = compress
        self._checkins, self._encoding, self._patience = checkins, encoding, patience
        self._accepted = 0
        self._refused = [RefusedRow(*wrong) for wrong in checkins.wrong]
        self._refused_count = len(self._refused)
        self._refusal: tuple[NodeError, str] | None = None

    def delivery(self) -> Delivery:
        """Return what was taken and refused so far."""
        return Delivery(self._accepted, tuple(sorted(self._refused)), self._refused_count)

    def outcome(self, *, strict: bool) -> Delivery:
        """Return the delivery of all rows, or raise the error for it."""
        delivery = self.delivery()
        if not delivery.accepted and self._refusal is not None:
            error, text = self._refusal
            raise error.of_all_rows(text, delivery)
        if strict and delivery.refused_count:
            text = f"refused: {delivery.in_words()}; all other rows were taken."
            rows = [refused.row for refused in delivery.refused]
            raise RowsRefused(text, reason="rows-refused", text=text, rows=rows, delivery=delivery)
        return delivery

    def settle(self, batch: Sequence[int]) -> Steps[None]:
        """Send the rows at these positions until each is taken or refused."""
        parts = [batch]  # the next one to be sent is the last
        requests = 0
        while parts:
            part = parts.pop()
            if len(part) > self.size:
                parts.append(part[self.size :])
                part = part[: self.size]
            requests += 1
            try:
                self._accept(part, (yield from self._send(part)))
            except NodeError as error:
                if error.status in _TOO_LARGE and len(part) > 1:
                    self.size = len(part) // 2
                    parts.append(part)
                elif isinstance(error, (NotTaken, RequestRefused)) and error.status in _ABOUT_ROWS:
                    parts += reversed(self._rest(part, error, last=requests >= _MOST_REQUESTS))
                else:
                    raise error.interrupting(self._checkins.numbers[part[0]], self.delivery()) from None

    def _send(self, part: Sequence[int]) -> Steps[Reply]:
        body = encode([self._checkins.rows[position] for position in part], self._encoding)
        headers = {"content-type": content_type(self._encoding)}
        if self._compress:
            body, headers["content-encoding"] = gzip.compress(body, _FAST, mtime=0), "gzip"
        return (yield from send(Ask("POST", "/v1/checkins", (), body, headers), self._patience, (202, 207)))

    def _accept(self, part: Sequence[int], reply: Reply) -> None:
        answer = read(reply, lambda content: _checked(_answer.decode(content), reply.status, len(part)))
        count = 0 if answer.accepted is None else len(part) - answer.accepted
        reasons = _reasons_by_row(refused_rows(answer.refused), len(part))
        self._accepted += len(part) - count
        self._refuse(part, dict(list(reasons.items())[:count]), count)

    def _rest(self, part: Sequence[int], error: NodeError, *, last: bool) -> list[Sequence[int]]:
        """Return what to send after a refusal of the complete request, in its order."""
        if self._refusal is None:
            self._refusal = error, self._text(part, error)
        reasons = _reasons_by_row(error.delivery.refused, len(part))
        if error.delivery.refused_count >= len(part):  # every row was examined: sending it again would change nothing
            self._refuse(part, reasons, len(part))
            return []
        if not reasons:
            reasons = _reasons_by_row(((row, _reason(error, row)) for row in error.rows or ()), len(part))
        if last or len(part) == 1:
            reasons = {row: reasons.get(row) or _reason(error, row) for row in range(len(part))}
        if not reasons:
            return [part[: len(part) // 2], part[len(part) // 2 :]]
        self._refuse(part, reasons, len(reasons))
        rest = [position for row, position in enumerate(part) if row not in reasons]
        return [rest] if rest else []

    def _refuse(self, part: Sequence[int], reasons: Mapping[int, str], count: int) -> None:
        self._refused += [RefusedRow(self._checkins.numbers[part[row]], reason) for row, reason in reasons.items()]
        self._refused_count += count

    def _text(self, part: Sequence[int], error: NodeError) -> str:
        """Return the node's sentence, with the row's number for the caller."""
        match = _ROW_IN_TEXT.match(error.text)
        if match is None or int(match[1]) >= len(part):
            return error.text
        return f"row {self._checkins.numbers[part[int(match[1])]]}{error.text[match.end(1) :]}"


class _Answer(msgspec.Struct):
    accepted: int | None = None  # None: a node of 0.1.0, which has taken all
    refused: list[RefusedDetail] = []


_answer = msgspec.json.Decoder(_Answer)


def _checked(answer: _Answer, status: int, size: int) -> _Answer:
    if (answer.accepted is None and status != 202) or not 0 <= (answer.accepted or 0) <= size:
        raise ValueError
    return answer


def _reasons_by_row(rows: Iterable[tuple[int, str]], size: int) -> dict[int, str]:
    """Return the reasons by row, for rows that the request had, in ascending order."""
    return dict(sorted({row: reason for row, reason in reversed(list(rows)) if 0 <= row < size}.items()))


def _reason(error: NodeError, row: int) -> str:
    """Return the reason of a row that a node of 0.1.0 names; its sentence is about one row, others may differ."""
    if error.reason != "field":
        return error.reason
    match = _ROW_IN_TEXT.match(error.text)
    if match is None or int(match[1]) != row:
        return "field"
    return match[2] or ("malformed" if match[3] else "field")
