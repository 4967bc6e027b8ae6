"""GET /v1/topology: servers, links and regions of the network, as network.toml has them; GET /v1/map: their shapes."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from dpcrowd.node.api.answers import answer, refusal
from dpcrowd.node.api.rights import guarded
from dpcrowd.node.api.service import Context

__all__ = ["GEOJSON", "routes"]

GEOJSON = "application/geo+json"


def routes(context: Context) -> list[BaseRoute]:
    """Return both endpoints."""
    service = context.service

    async def topology(_: Request) -> Response:
        return answer(service.topology())

    async def region_map(_: Request) -> Response:
        content = await service.region_map()
        if content is None:
            return refusal(404, "no-map", "this network has no map; [map] of network.toml may name a GeoJSON file.")
        return Response(content, 200, {"cache-control": "no-store"}, GEOJSON)

    return [
        Route("/v1/topology", guarded(context, "read", topology), methods=["GET"]),
        Route("/v1/map", guarded(context, "read", region_map), methods=["GET"]),
    ]
