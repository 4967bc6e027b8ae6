"""Networks of other packages (`dpcrowd.plugins`): a function of servers, density and a random generator."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpcrowd.errors import DpcrowdError
from dpcrowd.network.graph import Graph
from dpcrowd.network.random_graph import LATENCY_MS, draw_latency
from dpcrowd.plugins import Plugin

__all__ = ["draw_plugin"]


def draw_plugin(plugin: Plugin, servers: int, density: float, rng: np.random.Generator) -> Graph:
    """One network: the function returns a `dpcrowd.Graph`, or its links as two arrays of servers, each link once.

    Links without a latency get one from U(50, 150) ms, as in every other topology.
    """
    value: Any = plugin.call(servers, density, rng)
    try:
        graph = value if isinstance(value, Graph) else Graph.from_edges(servers, *value)
    except (DpcrowdError, TypeError, ValueError) as error:
        raise plugin.broken(f"it returned neither a dpcrowd.Graph nor links ({error})") from error
    if graph.servers != servers or (graph.degree == 0).any():
        raise plugin.broken(f"its network must link all of {servers} servers; given {graph!r}")
    if graph.latency_ms is not None:
        return graph
    sources, targets, _ = graph.pairs()
    return Graph.from_edges(servers, sources, targets, draw_latency(rng, sources.size, LATENCY_MS))
