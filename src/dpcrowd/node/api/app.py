"""The whole API as one Starlette application."""

from __future__ import annotations

import time
from collections.abc import Callable

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from dpcrowd.node.api import admin, estimates, status, stream
from dpcrowd.node.api.answers import refusal
from dpcrowd.node.api.ingest import Ingest, take_checkins, take_counts
from dpcrowd.node.api.limits import RequestLimit
from dpcrowd.node.api.service import Context, Service, Tokens

__all__ = ["Api", "make_app"]

_REASONS = {404: ("not-found", "there is no such path; /openapi.json lists them."), 405: ("method", "not this method.")}


class Api(Starlette):
    """Check-ins and counts go straight to their handlers: no middleware, no routing."""

    straight: dict[str, ASGIApp]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            handler = self.straight.get(scope["path"])
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
    """The API of one node."""
    context = Context(service, tokens, max_body, now, RequestLimit(requests_per_second))
    straight: dict[str, ASGIApp] = {
        "/v1/checkins": Ingest(context, take_checkins),
        "/v1/counts": Ingest(context, take_counts),
    }
    routes = [
        *(Route(path, handler) for path, handler in straight.items()),
        *estimates.routes(context),
        *stream.routes(context),
        *status.routes(context),
        *admin.routes(context),
    ]
    app = Api(routes=routes, exception_handlers={HTTPException: _http_error, 500: _internal})
    app.straight = straight
    return app


async def _http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    reason, text = _REASONS.get(error.status_code, ("refused", "the request cannot be answered."))
    return refusal(error.status_code, reason, text, error.headers)


async def _internal(_: Request, __: Exception) -> Response:
    return refusal(500, "internal", "the node could not handle this request; its log says why.")
