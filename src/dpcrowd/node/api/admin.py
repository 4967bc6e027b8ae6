"""POST /v1/admin/...: what an operator may tell a running node."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import get_args

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from dpcrowd.errors import DpcrowdError
from dpcrowd.node.api.answers import answer, refusal
from dpcrowd.node.api.rights import guarded
from dpcrowd.node.api.service import Context
from dpcrowd.node.api.views import Done, Level, LogLevel

__all__ = ["routes"]

_MOST_BODY = 1_000
_levels = msgspec.json.Decoder(LogLevel)


def routes(context: Context) -> list[BaseRoute]:
    """Each answers with a sentence that says what was done."""
    service = context.service

    def command(carry_out: Callable[[], Awaitable[str]]) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(_: Request) -> Response:
            try:
                return answer(Done(await carry_out()))
            except DpcrowdError as error:
                return refusal(409, "not-done", str(error))

        return guarded(context, "admin", endpoint)

    async def log_level(request: Request) -> Response:
        level = _level(await _small_body(request))
        if level is None:
            allowed = ", ".join(f'"{one}"' for one in get_args(Level))
            return refusal(400, "field", f'allowed: an object {{"level": ...}} with one of {allowed}.')
        service.set_log_level(level)
        return answer(Done(f"the log level is {level}."))

    return [
        Route("/v1/admin/reload", command(service.reload), methods=["POST"]),
        Route("/v1/admin/confirm-loss", command(service.confirm_loss), methods=["POST"]),
        Route("/v1/admin/accept-clock", command(service.accept_clock), methods=["POST"]),
        Route("/v1/admin/log-level", guarded(context, "admin", log_level), methods=["POST"]),
    ]


async def _small_body(request: Request) -> bytes:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _MOST_BODY:
            return b""
    return body


def _level(body: bytes) -> Level | None:
    try:
        return _levels.decode(body).level
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
