"""Who may do what: a token as `Authorization: Bearer TOKEN`, three separate rights, none of which implies another."""

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
    """None if the request has the right."""
    token = bearer(headers)
    held = tokens.rights_of(token)
    if right in held:
        return None
    if held - tokens.rights_of(None):
        return Denied(403, "wrong-right", f"this token may not {_MEANING[right]}: that needs a token of '{right}'.")
    if token is not None:
        text = f"this node does not know the token that was sent; to {_MEANING[right]}, send a token of '{right}'."
        return Denied(401, "no-token", text)
    return Denied(
        401, "no-token", f"to {_MEANING[right]}, send 'Authorization: Bearer TOKEN' with a token of '{right}'."
    )


def guarded(context: Context, right: Right, endpoint: Endpoint, *, or_right: Right | None = None) -> Endpoint:
    """The endpoint for those who hold the right, or the other one."""

    async def checked(request: Request) -> Response:
        headers = request.headers.raw
        no = denied(context.tokens, right, headers)
        if no is not None and (or_right is None or denied(context.tokens, or_right, headers) is not None):
            return refusal(no.status, no.reason, no.text, CHALLENGE if no.status == 401 else None)
        return await endpoint(request)

    return checked


def bearer(headers: Headers) -> str | None:
    """The token of a request; None if there is none, or more than one."""
    given = [value for name, value in headers if name == b"authorization"]
    if len(given) != 1:
        return None
    scheme, _, token = given[0].partition(b" ")
    return token.strip().decode("utf-8", "replace") if scheme.lower() == b"bearer" and token.strip() else None
