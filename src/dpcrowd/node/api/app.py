"""The complete API as one Starlette application, with the endpoints that report on the node or operate it.

Check-ins and counts are in `ingest`, releases in `estimates`, `history` and `stream`, the plan of the network in
`topology`, the files of the live page in `page`. The other endpoints are short and are here: budget, network, quality,
health, readiness, metrics and the OpenAPI document; and POST /v1/admin/..., an operator's commands.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import get_args

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from dpcrowd.errors import DpcrowdError
from dpcrowd.node.api import estimates, history, stream, topology
from dpcrowd.node.api.answers import answer, refusal
from dpcrowd.node.api.ingest import Ingest, take_checkins, take_counts
from dpcrowd.node.api.limits import RequestLimit
from dpcrowd.node.api.openapi import document
from dpcrowd.node.api.page import page_apps
from dpcrowd.node.api.rights import bearer, guarded
from dpcrowd.node.api.service import Context, Service, Tokens
from dpcrowd.node.api.views import Done, Health, Level, LogLevel, Readiness

__all__ = ["Api", "make_app"]

_PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
_MOST_BODY = 1_000  # bytes of an operator's command
_REASONS = {
    404: ("not-found", "this path does not exist; /openapi.json lists the paths of this node."),
    405: ("method", "this path does not take this method; /openapi.json lists the methods of each path."),
}
_levels = msgspec.json.Decoder(LogLevel)


class Api(Starlette):
    """The application. Check-ins, counts and files of the page go directly to their handlers, without routing."""

    direct: dict[str, ASGIApp]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            handler = self.direct.get(scope["path"])
            if handler is not None:
                await handler(scope, receive, send)
                return
        await super().__call__(scope, receive, send)


def make_app(
    service: Service,
    tokens: Tokens,
    *,
    max_body: int = 8 << 20,
    now: Callable[[], int] = time.time_ns,
    requests_per_second: float = 0.0,
) -> Starlette:
    """Return the API of one node."""
    context = Context(service, tokens, max_body, now, RequestLimit(requests_per_second))
    direct: dict[str, ASGIApp] = {
        "/v1/checkins": Ingest(context, take_checkins),
        "/v1/counts": Ingest(context, take_counts),
    }
    routes = [
        *(Route(path, handler) for path, handler in direct.items()),
        *estimates.routes(context),
        *history.routes(context),
        *topology.routes(context),
        *stream.routes(context),
        *_status_routes(context),
        *_admin_routes(context),
    ]
    app = Api(routes=routes, exception_handlers={HTTPException: _http_error, 500: _internal})
    app.direct = direct | page_apps(tokens)
    return app


def _status_routes(context: Context) -> list[BaseRoute]:
    """Return the routes for the state of the node; health and readiness need no token, for supervisors."""
    service = context.service

    def is_operator(request: Request) -> bool:
        return "admin" in context.tokens.rights_of(bearer(request.headers.raw))

    async def budget(_: Request) -> Response:
        return answer(await service.budget())

    async def network(request: Request) -> Response:
        return answer(await service.network(operator=is_operator(request)))

    async def quality(request: Request) -> Response:
        estimates.check_names(request.query_params, set())
        return answer(service.quality())

    async def proofs(request: Request) -> Response:
        estimates.check_names(request.query_params, set())
        return answer(service.proofs())

    async def metrics(request: Request) -> Response:
        text = await (service.operator_metrics() if is_operator(request) else service.metrics())
        return Response(text, media_type=_PROMETHEUS)

    async def healthz(_: Request) -> Response:
        return answer(Health())

    def state() -> Readiness:
        ready, problems = service.ready()
        return Readiness(ready, list(problems), list(service.warnings()))

    async def readyz(_: Request) -> Response:
        current = state()
        return answer(current, 200 if current.ready else 503)

    async def readiness(_: Request) -> Response:
        return answer(state())

    async def openapi(request: Request) -> Response:
        rights = context.tokens.rights_of(bearer(request.headers.raw))
        return answer(document(tuple(service.regions) if rights else None))

    return [
        Route("/v1/budget", guarded(context, "read", budget), methods=["GET"]),
        Route("/v1/readiness", guarded(context, "read", readiness), methods=["GET"]),
        Route("/v1/network", guarded(context, "read", network, or_right="admin"), methods=["GET"]),
        Route("/v1/quality", guarded(context, "read", estimates.refusing(quality)), methods=["GET"]),
        Route("/v1/proofs", guarded(context, "admin", estimates.refusing(proofs)), methods=["GET"]),
        Route("/metrics", guarded(context, "read", metrics), methods=["GET"]),
        Route("/healthz", healthz, methods=["GET"]),
        Route("/readyz", readyz, methods=["GET"]),
        Route("/openapi.json", openapi, methods=["GET"]),
    ]


def _admin_routes(context: Context) -> list[BaseRoute]:
    """Return the routes for an operator's commands, which answer with a sentence that says what was done."""
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
    """Return the body of a command; empty if it is larger than any command is."""
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


async def _http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    reason, text = _REASONS.get(error.status_code, ("refused", "the request cannot be answered."))
    return refusal(error.status_code, reason, text, error.headers)


async def _internal(_: Request, __: Exception) -> Response:
    return refusal(500, "internal", "the node could not handle this request; its log says why.")
