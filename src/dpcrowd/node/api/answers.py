"""Answers that all endpoints share: JSON, and refusals that repeat nothing of the request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from starlette.responses import Response

from dpcrowd.node.api.views import ErrorBody, ErrorDetail

__all__ = ["JSON", "answer", "refusal", "refusal_bytes"]

JSON = "application/json"
_encode = msgspec.json.Encoder().encode
_KEEP_NOTHING = {"cache-control": "no-store"}


def answer(value: object, status: int = 200) -> Response:
    """Any view as JSON."""
    return Response(_encode(value), status, _KEEP_NOTHING, JSON)


def refusal(status: int, reason: str, text: str, headers: Mapping[str, str] | None = None) -> Response:
    """`ErrorBody` as a response."""
    return Response(refusal_bytes(reason, text), status, {**_KEEP_NOTHING, **(headers or {})}, JSON)


def refusal_bytes(reason: str, text: str, rows: Sequence[int] | None = None) -> bytes:
    """`ErrorBody` as JSON."""
    return _encode(ErrorBody(ErrorDetail(reason, text, None if rows is None else list(rows))))
