"""The part of the OpenAPI document about columns and the plan of the network, which the live page reads."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from dpcrowd.node.api.history import DEFAULT_SLOTS
from dpcrowd.node.api.openapi_parts import VIEW, Part, answer, errors, operation, parameter
from dpcrowd.node.api.page_views import MOST_SLOTS, History, NeighbourHistory, Topology
from dpcrowd.node.api.topology import GEOJSON
from dpcrowd.node.api.views import Readiness

__all__ = ["page_paths"]

_Slots = Annotated[int, Meta(ge=1, le=MOST_SLOTS)]
_Slot = Annotated[int, Meta(ge=0)]
_SLOTS = f"Number of slots, the latest ones; default {DEFAULT_SLOTS}."


def page_paths(region: Part) -> Part:
    """Return the paths; `region` is the schema of the name of a region."""

    def regions(text: str, kind: Any) -> Part:
        part = parameter("region", text, kind)
        part["schema"] = {**part["schema"], "items": region} if kind == list[str] else region
        return part

    closed = errors(401, 403)
    history = operation(
        "history",
        "Get many slots as columns",
        "An answer has at most a million numbers; with many regions it has fewer slots, the latest.",
        {"200": answer("The slots.", History), **errors(400), **closed},
        [
            parameter("slots", _SLOTS, _Slots),
            parameter("to", "The last slot (included); default: the latest release.", _Slot),
            regions("Return only these regions; the total is always that of all regions.", list[str]),
            parameter("total_only", "Return no regions, only the total.", bool),
            VIEW,
        ],
    )
    neighbours = operation(
        "neighbourHistory",
        "Get what neighbours estimated, as their messages said",
        "",
        {"200": answer("The slots.", NeighbourHistory), **errors(400), **closed},
        [parameter("slots", _SLOTS, _Slots), regions("The region; default: the sum over all regions.", str)],
    )
    topology = operation(
        "topology",
        "Get the servers, links and regions of the network",
        "",
        {"200": answer("The plan of the network.", Topology), **closed},
    )
    shapes = operation(
        "map",
        "Get the shapes of the regions",
        "The GeoJSON file that `[map]` of network.toml names.",
        {"200": answer("The file.", dict[str, Any], GEOJSON), **errors(404), **closed},
    )
    readiness = operation(
        "readiness",
        "Get whether the node can do all of its work",
        "The body of `/readyz`, with the status 200 in either case: browsers report other ones as errors of a page.",
        {"200": answer("The node is ready, or not.", Readiness), **closed},
    )
    paths = {"/v1/history": history, "/v1/neighbours": neighbours, "/v1/topology": topology, "/v1/map": shapes}
    paths["/v1/readiness"] = readiness
    return {path: {"get": described} for path, described in paths.items()}
