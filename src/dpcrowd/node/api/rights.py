"""Rights of requests: a token is sent as `Authorization: Bearer TOKEN`; of the three rights none implies another."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from starlette.requests import Request
from starlette.responses import Response

from dpcrowd.node.api.answers import refusal
from dpcrowd.node.api.service import Context, Right, Tokens

__all__ = ["CHALLENGE", "Denied", "bearer", "denied", "guarded"]

CHALLENGE = {"www-authenticate": "Bearer"}
_MEANING: dict[Right, str] = {
    "checkin": "send check-ins and counts",
    "read": "read estimates and state",
    "admin": "operate the node",
}

Headers = Iterable[tuple[bytes, bytes]]
Endpoint = Callable[[Request], Awaitable[Response]]


class Denied(Exception):
    """A request without the right that it needs."""

    def __init__(self, status: int, reason: str, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.reason = reason
        self.text = text


def denied(tokens: Tokens, right: Right, headers: Headers) -> Denied | None:
    """Return why the request does not have the right; None if it has."""
    token = bearer(headers)
    rights = tokens.rights_of(token)
    if right in rights:
        return None
    if rights - tokens.rights_of(None):
        text = f"this token may not {_MEANING[right]}: that needs a token with the right '{right}'."
        return Denied(403, "wrong-right", text)
    if token is not None:
        text = f"this node does not know this token; to {_MEANING[right]}, send a token with the right '{right}'."
        return Denied(401, "no-token", text)
    text = f"to {_MEANING[right]}, send 'Authorization: Bearer TOKEN' with a token that has the right '{right}'."
    return Denied(401, "no-token", text)


def guarded(context: Context, right: Right, endpoint: Endpoint, *, or_right: Right | None = None) -> Endpoint:
    """Return an endpoint that refuses requests without the right, or the other right."""

    async def checked(request: Request) -> Response:
        headers = request.headers.raw
        denial = denied(context.tokens, right, headers)
        if denial is not None and (or_right is None or denied(context.tokens, or_right, headers) is not None):
            return refusal(denial.status, denial.reason, denial.text, CHALLENGE if denial.status == 401 else None)
        return await endpoint(request)

    return checked


def bearer(headers: Headers) -> str | None:
    """Return the token of a request; None if there is none, or more than one."""
    values = [value for name, value in headers if name == b"authorization"]
    if len(values) != 1:
        return None
    method, _, token = values[0].partition(b" ")
    return token.strip().decode("utf-8", "replace") if method.lower() == b"bearer" and token.strip() else None
