"""Networks by name: `build("ring", 50, rng)`, and the links of each topology.

Every network has at least two servers and nobody isolated; every link gets a delay drawn from U(50, 150) ms, unless
a file says otherwise. Ring, grid and complete graph have a density of their own. Small-world, scale-free and geometric
graphs are fitted to L = round(density * n(n-1)/2) links, as said at each function, so that topologies can be compared
at equal density.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcrowd.errors import BadInput, unknown_name
from dpcrowd.network.adjacency import parse_adjacency
from dpcrowd.network.checks import check_bounds, check_servers, check_size
from dpcrowd.network.graph import Graph
from dpcrowd.network.random_graph import LATENCY_MS, RandomGraph, decode_pairs, draw_latency
from dpcrowd.network.repair import join_isolated, repair_draws

__all__ = ["TOPOLOGIES", "build", "complete", "geometric", "grid", "ring", "scale_free", "small_world"]

TOPOLOGIES = ("random", "ring", "grid", "small-world", "scale-free", "geometric", "complete", "file")
PARAMETERS = {"small-world": ("rewire",), "file": ("text",)}

LinkEnds = tuple[NDArray[Any], NDArray[Any]]
"""The two ends of each link; every link once."""

ALL_PAIRS = 2048
"""Up to this many servers a geometric graph looks at all pairs; beyond, at close ones found by a search tree."""


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
    links = _FIXED[name](servers) if name in _FIXED else _FITTED[name](servers, density, rng, **params)
    return _with_delays(servers, links, rng, latency)


def _with_delays(servers: int, links: LinkEnds, rng: np.random.Generator, latency: tuple[float, float] | None) -> Graph:
    delays = None if latency is None else draw_latency(rng, links[0].size, latency)
    return Graph.from_edges(servers, *links, delays)


def ring(servers: int) -> LinkEnds:
    """Server i next to i + 1, the last next to the first; two servers share one link."""
    sources = np.arange(servers if servers > 2 else 1)
    return sources, (sources + 1) % servers


def grid(servers: int) -> LinkEnds:
    """The most nearly square grid, filled row by row (the last row may be short); up to four neighbours each."""
    width = math.ceil(servers / math.isqrt(servers))
    cell = np.arange(servers)
    right = cell[(cell % width < width - 1) & (cell + 1 < servers)]
    below = cell[cell + width < servers]
    return np.concatenate((right, below)), np.concatenate((right + 1, below + width))


def complete(servers: int) -> LinkEnds:
    """Everybody next to everybody."""
    return decode_pairs(np.arange(servers * (servers - 1) // 2))


def small_world(servers: int, density: float, rng: np.random.Generator, rewire: float = 0.1) -> LinkEnds:
    """Watts-Strogatz: servers on a circle linked to the nearest ones, each link's far end moved at random.

    The circle takes whole rounds of neighbours at distance 1, 2, ... and a random part of the next round, so that
    there are exactly L links. A link moves with probability `rewire` and keeps its near end: nobody is isolated.
    """
    if not 0.0 <= rewire <= 1.0:
        raise BadInput(f"rewire {rewire}; allowed: a probability from 0 to 1.")
    wanted = _wanted_links("small-world", servers, density, least=ring(servers)[0].size)
    starts, distance, left = [], [], wanted
    for step in range(1, servers // 2 + 1):
        around = np.arange(servers // 2 if 2 * step == servers else servers)
        chosen = around if around.size <= left else rng.permutation(around)[:left]
        starts.append(chosen)
        distance.append(np.full(chosen.size, step))
        left -= chosen.size
        if not left:
            break
    sources = np.concatenate(starts)
    targets = (sources + np.concatenate(distance)) % servers
    waiting = np.flatnonzero(rng.random(wanted) < rewire)
    for _ in range(32):  # a proposal that hits an existing link is drawn again; in a near complete graph it stays
        if not waiting.size:
            break
        proposed = rng.integers(servers, size=waiting.size)
        taken = _key(servers, sources, targets)
        keys = _key(servers, sources[waiting], proposed)
        once = np.zeros(waiting.size, dtype=np.bool_)
        once[np.unique(keys, return_index=True)[1]] = True
        fits = once & (proposed != sources[waiting]) & ~np.isin(keys, taken)
        targets[waiting[fits]] = proposed[fits]
        waiting = waiting[~fits]
    return sources, targets


def scale_free(servers: int, density: float, rng: np.random.Generator) -> LinkEnds:
    """Barabasi-Albert: each new server links to m others in proportion to their degree.

    m is a random mix of two neighbouring whole numbers, chosen so that the expected number of links is L. A tree
    (density 2/n) is the sparsest, a density a little above 1/2 the densest such graph.
    """
    if servers < 3:
        return ring(servers)
    most = servers // 2
    wanted = _wanted_links("scale-free", servers, density, least=servers - 1, most=most * (servers - most))
    high = next(m for m in range(1, most + 1) if m * (servers - m) >= wanted)
    import networkx as nx

    # A star of `high` links, then servers - high - 1 newcomers that bring `high` links, or one less with `fewer`.
    newcomers = servers - high - 1
    fewer = (high * (servers - high) - wanted) / newcomers if newcomers else 0.0
    seed = int(rng.integers(2**32))
    if fewer > 0.0:
        made = nx.dual_barabasi_albert_graph(servers, high - 1, high, fewer, seed=seed)
    else:
        made = nx.barabasi_albert_graph(servers, high, seed=seed)
    ends = np.array(made.edges(), dtype=np.int64)
    return ends[:, 0], ends[:, 1]


def geometric(servers: int, density: float, rng: np.random.Generator) -> LinkEnds:
    """Servers at random points of a square, the closest pairs linked.

    The reach is set for the drawn points such that the links, those that join isolated servers included, are L.
    """
    wanted = _wanted_links("geometric", servers, density, least=math.ceil(servers / 2))
    points = rng.random((servers, 2))
    sources, targets = _close_pairs(points, wanted, density)
    apart = np.hypot(*(points[sources] - points[targets]).T)
    order = np.argsort(apart, kind="stable")
    sources, targets = sources[order], targets[order]
    # With the e closest pairs linked, server i is isolated as long as its first pair is not among them.
    first = np.full(servers, order.size)
    np.minimum.at(first, sources, np.arange(order.size))
    np.minimum.at(first, targets, np.arange(order.size))
    linked = np.concatenate(([0], np.cumsum(np.bincount(first, minlength=order.size)[: order.size])))
    total = np.arange(order.size + 1) + (servers - linked + 1) // 2
    closest = int(np.searchsorted(total, wanted))
    isolated = np.flatnonzero(first >= closest)
    _, one, other = join_isolated(servers, np.zeros_like(isolated), isolated, repair_draws(rng, isolated.size))
    return np.concatenate((sources[:closest], one)), np.concatenate((targets[:closest], other))


def _close_pairs(points: NDArray[np.float64], wanted: int, density: float) -> LinkEnds:
    """All pairs, or for many servers at least the `wanted` closest ones."""
    if points.shape[0] <= ALL_PAIRS:
        return complete(points.shape[0])
    from scipy.spatial import cKDTree

    tree = cKDTree(points)
    reach = math.sqrt(2.0 * density / math.pi)
    while (pairs := tree.query_pairs(reach, output_type="ndarray")).shape[0] < wanted:
        reach *= 1.3
    return pairs[:, 0], pairs[:, 1]


def _wanted_links(name: str, servers: int, density: float, least: int, most: int | None = None) -> int:
    pairs = servers * (servers - 1) // 2
    most = pairs if most is None else most
    wanted = round(density * pairs) if math.isfinite(density) else -1
    if not least <= wanted <= most:
        raise BadInput(
            f"density {density} for a {name} graph of {servers} servers; allowed: {least / pairs:.6g} to "
            f"{most / pairs:.6g}."
        )
    return wanted


def _key(servers: int, sources: NDArray[Any], targets: NDArray[Any]) -> NDArray[np.int64]:
    """One number for an undirected pair."""
    key: NDArray[np.int64] = np.minimum(sources, targets) * np.int64(servers) + np.maximum(sources, targets)
    return key


_FIXED: dict[str, Callable[[int], LinkEnds]] = {"ring": ring, "grid": grid, "complete": complete}
_FITTED: dict[str, Callable[..., LinkEnds]] = {
    "small-world": small_world,
    "scale-free": scale_free,
    "geometric": geometric,
}
