"""Networks by name: `build("ring", 50, rng)`.

Every network has at least two servers and nobody isolated; every link gets a delay drawn from U(50, 150) ms, unless
a file says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dpcrowd.errors import BadInput, unknown_name
from dpcrowd.network import shapes
from dpcrowd.network.adjacency import parse_adjacency
from dpcrowd.network.checks import check_bounds, check_servers, check_size
from dpcrowd.network.graph import Graph
from dpcrowd.network.random_graph import LATENCY_MS, RandomGraph, draw_latency

__all__ = ["TOPOLOGIES", "build"]

TOPOLOGIES = ("random", "ring", "grid", "small-world", "scale-free", "geometric", "complete", "file")

FIXED: dict[str, Callable[[int], shapes.Links]] = {
    "ring": shapes.ring,
    "grid": shapes.grid,
    "complete": shapes.complete,
}
FITTED: dict[str, Callable[..., shapes.Links]] = {
    "small-world": shapes.small_world,
    "scale-free": shapes.scale_free,
    "geometric": shapes.geometric,
}
PARAMETERS = {"small-world": ("rewire",), "file": ("text",)}


def build(
    name: str,
    servers: int | None,
    rng: np.random.Generator,
    density: float = 0.1,
    latency: tuple[float, float] | None = LATENCY_MS,
    **params: Any,
) -> Graph:
    """A network of the named topology.

    density  wanted by random (in expectation), small-world, geometric (to the link) and scale-free (in expectation);
             ring, grid, complete and file have their own
    latency  bounds of the link delays in ms, or None for no delays
    params   small-world: rewire=0.1; file: text= the file's content (servers may then be None)

    >>> build("ring", 5, np.random.default_rng(0)).neighbours(0)
    array([1, 4], dtype=int32)
    """
    if name not in TOPOLOGIES:
        raise unknown_name("graph", name, TOPOLOGIES)
    for given in params:
        if given not in PARAMETERS.get(name, ()):
            allowed = ", ".join(PARAMETERS.get(name, ())) or "none"
            raise BadInput(f"graph '{name}' has no parameter '{given}'; allowed: {allowed}.")
    check_bounds(latency)
    if name == "file":
        if "text" not in params:
            raise BadInput("graph 'file' was asked for without the file's text; give text=.")
        graph = parse_adjacency(params["text"], servers)
        if graph.latency_ms is not None:
            return graph
        sources, targets, _ = graph.pairs()
        return _with_delays(graph.servers, (sources, targets), rng, latency)
    if servers is None:
        raise BadInput(f"graph '{name}' needs the number of servers; only 'file' can do without.")
    check_servers(servers)
    if name == "random":
        return RandomGraph(servers, density, latency).draw(rng)
    if name == "complete":
        check_size(servers, servers * (servers - 1) // 2)
    links = FIXED[name](servers) if name in FIXED else FITTED[name](servers, density, rng, **params)
    return _with_delays(servers, links, rng, latency)


def _with_delays(
    servers: int, links: shapes.Links, rng: np.random.Generator, latency: tuple[float, float] | None
) -> Graph:
    delays = None if latency is None else draw_latency(rng, links[0].size, latency)
    return Graph.from_edges(servers, *links, delays)
