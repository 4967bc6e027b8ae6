"""Answers that all endpoints share: JSON, and refusals that do not quote the request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from starlette.responses import Response

from dpcrowd.node.api.views import ErrorBody, ErrorDetail, RefusedRow
from dpcrowd.node.ingest.batch import NAMED_ROWS, RowRefusal

__all__ = ["JSON", "answer", "named_rows", "refusal", "refusal_bytes"]

JSON = "application/json"
_encode = msgspec.json.Encoder().encode
_NO_STORE = {"cache-control": "no-store"}


def answer(value: object, status: int = 200) -> Response:
    """Return a view as JSON."""
    return Response(_encode(value), status, _NO_STORE, JSON)


def refusal(status: int, reason: str, text: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return an `ErrorBody` as a response."""
    return Response(refusal_bytes(reason, text), status, {**_NO_STORE, **(headers or {})}, JSON)


def refusal_bytes(reason: str, text: str, refused: Sequence[RowRefusal] = ()) -> bytes:
    """Return an `ErrorBody` as JSON; `refused` are the rows that were not taken, with their reasons."""
    if not refused:
        return _encode(ErrorBody(ErrorDetail(reason, text)))
    rows = [row for row, _ in refused[:NAMED_ROWS]]
    return _encode(ErrorBody(ErrorDetail(reason, text, rows, named_rows(refused), len(refused))))


def named_rows(refused: Sequence[RowRefusal]) -> list[RefusedRow]:
    """Return the first 1,000 refused rows, as an answer names them."""
    return [RefusedRow(row, reason) for row, reason in refused[:NAMED_ROWS]]
