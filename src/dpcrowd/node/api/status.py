"""State of the node: budget, network, health, readiness, metrics; and the description of the API itself."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from dpcrowd.node.api.answers import answer
from dpcrowd.node.api.openapi import document
from dpcrowd.node.api.rights import bearer, guarded
from dpcrowd.node.api.service import Context
from dpcrowd.node.api.views import Health, Readiness

__all__ = ["routes"]

_PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


def routes(context: Context) -> list[BaseRoute]:
    """Health and readiness are open to everybody, so that a supervisor needs no token."""
    service = context.service

    async def budget(_: Request) -> Response:
        return answer(await service.budget())

    async def network(request: Request) -> Response:
        operator = "admin" in context.tokens.rights_of(bearer(request.headers.raw))
        return answer(await service.network(operator=operator))

    async def metrics(request: Request) -> Response:
        operator = "admin" in context.tokens.rights_of(bearer(request.headers.raw))
        text = await (service.operator_metrics() if operator else service.metrics())
        return Response(text, media_type=_PROMETHEUS)

    async def healthz(_: Request) -> Response:
        return answer(Health())

    async def readyz(_: Request) -> Response:
        ready, problems = service.ready()
        return answer(Readiness(ready, list(problems), list(service.warnings())), 200 if ready else 503)

    async def openapi(request: Request) -> Response:
        known = context.tokens.rights_of(bearer(request.headers.raw))
        return answer(document(tuple(service.regions) if known else None))

    return [
        Route("/v1/budget", guarded(context, "read", budget), methods=["GET"]),
        Route("/v1/network", guarded(context, "read", network, or_right="admin"), methods=["GET"]),
        Route("/metrics", guarded(context, "read", metrics), methods=["GET"]),
        Route("/healthz", healthz, methods=["GET"]),
        Route("/readyz", readyz, methods=["GET"]),
        Route("/openapi.json", openapi, methods=["GET"]),
    ]
