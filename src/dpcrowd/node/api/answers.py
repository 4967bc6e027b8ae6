"""Answers that all endpoints share: JSON, and refusals that repeat nothing of the request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import convert
from starlette.responses import Response

from dpcrowd.node.api.views import ErrorBody, ErrorDetail, RefusedRow
from dpcrowd.node.ingest.batch import NAMED_ROWS

__all__ = ["JSON", "answer", "named_rows", "refusal", "refusal_bytes"]

JSON = "application/json"
_encode = msgspec.json.Encoder().encode
_KEEP_NOTHING = {"cache-control": "no-store"}


def answer(value: object, status: int = 200) -> Response:
    """Any view as JSON."""
    return Response(_encode(value), status, _KEEP_NOTHING, JSON)


def refusal(status: int, reason: str, text: str, headers: Mapping[str, str] | None = None) -> Response:
    """`ErrorBody` as a response."""
    return Response(refusal_bytes(reason, text), status, {**_KEEP_NOTHING, **(headers or {})}, JSON)


def refusal_bytes(reason: str, text: str, refused: Sequence[tuple[int, str]] = ()) -> bytes:
    """`ErrorBody` as JSON; `refused` are the rows that were not taken, with their reasons."""
    if not refused:
        return _encode(ErrorBody(ErrorDetail(reason, text)))
    rows = [row for row, _ in refused[:NAMED_ROWS]]
    return _encode(ErrorBody(ErrorDetail(reason, text, rows, named_rows(refused), len(refused))))


def named_rows(refused: Sequence[tuple[int, str]]) -> list[RefusedRow]:
    """The first of them, as an answer names them."""
    return [convert({"row": row, "reason": reason}, RefusedRow) for row, reason in refused[:NAMED_ROWS]]
