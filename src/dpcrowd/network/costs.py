"""The costs of communication: packets, bytes and delay of a slot, by one hop or by flooding.

One hop: a server that speaks sends one packet on each of its links; the slot's latency is the slowest of these links.
Flooding: every server of the speaker's connected component forwards a new message once on all its links, so a message
costs the sum of the degrees of the component; the latency is the last arrival, over shortest paths of link delays.

A graph is a union of `runs` networks of equal size, run by run; what depends on the graph alone is one value per server
(`degree`, `flood_cost`, `link_reach`, `flood_reach`), to be computed once for a graph that stays; what depends on who
speaks is then a sum or a maximum over each run.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcrowd.arrays import Bools, Floats, Ints
from dpcrowd.errors import BadInput
from dpcrowd.network.checks import check_runs
from dpcrowd.network.graph import Graph

__all__ = [
    "HEADER_BYTES",
    "RECORD_BYTES",
    "RELAYED_RECORD_BYTES",
    "components",
    "flood_cost",
    "flood_reach",
    "last_arrival",
    "link_reach",
    "message_bytes",
    "packets",
    "relayed_bytes",
    "varint_bytes",
]


# Sizes as the live format has them (`dpcrowd.node.wire`, or what a record of relay needs); tests measure them.

HEADER_BYTES = 140
"""Bytes of every packet: version, digest, server, slot, round, counters of five neighbours, and a signature."""

RECORD_BYTES = 75
"""Bytes besides the values that a packet carries: their origin and its signature."""

RELAYED_RECORD_BYTES = 90
"""Bytes of a record that is passed on, besides its integers: origin, slot, epsilon, hops, groups and a signature.

Groups take one byte of them where every region is by itself, as in all records so far.
"""

DENSE_SERVERS = 300
"""Up to this many servers per run, all shortest paths are found at once in a dense table."""

MOST_SOURCES = 256
SOURCE_WORK = 4_000_000
DENSE_CELLS = 1 << 16  # of one table: it stays in the cache


def message_bytes(values: int) -> int:
    """Return the size of a message whose values take `values` bytes."""
    return HEADER_BYTES + RECORD_BYTES + values


def relayed_bytes(packets: NDArray[Any], records: NDArray[Any], value_bytes: NDArray[Any]) -> Floats:
    """Return the size of packets with records that are passed on, whose integers take `value_bytes` bytes."""
    return np.asarray(HEADER_BYTES * packets + RELAYED_RECORD_BYTES * records + value_bytes, dtype=np.float64)


def varint_bytes(values: NDArray[np.floating]) -> Ints:
    """Return the bytes of whole numbers written as variable-length integers: zigzag, seven bits per byte."""
    zigzag = np.where(values < 0, -2.0 * values - 1.0, 2.0 * values)
    bits = np.frexp(zigzag)[1]  # 0 for 0
    return np.asarray(np.maximum(-(-bits // 7), 1), dtype=np.int64)


def packets(cost: NDArray[np.integer], speaks: Bools, runs: int) -> Ints:
    """Return the packets in each run if a message of server i costs cost[i].

    `speaks` is (N,) or (slots, N), and the result (..., runs).
    """
    each = check_runs(cost.size, runs)
    totals: Ints = np.where(speaks, cost, 0).reshape(*speaks.shape[:-1], runs, each).sum(axis=-1, dtype=np.int64)
    return totals


def last_arrival(reach: Floats, speaks: Bools, runs: int) -> Floats:
    """Return the latency in each run, shaped as in `packets`: the largest reach of a speaker; NaN without messages."""
    each = check_runs(reach.size, runs)
    latest = np.where(speaks, reach, 0.0).reshape(*speaks.shape[:-1], runs, each).max(axis=-1)
    return np.where(latest > 0.0, latest, np.nan)


def components(graph: Graph) -> NDArray[np.int32]:
    """Return a label for the connected component of each server."""
    from scipy.sparse.csgraph import connected_components

    # In a symmetric graph the strong components are the components, and need no transposed copy.
    labels: NDArray[np.int32] = connected_components(graph.hearing, directed=True, connection="strong")[1]
    return labels


def flood_cost(graph: Graph) -> Ints:
    """Return the packets of one flooded message by its origin: the sum of degrees in the origin's component."""
    labels = components(graph)
    # float64 adds whole numbers exactly up to 2^53
    cost: Ints = np.bincount(labels, weights=graph.degree)[labels].astype(np.int64)
    return cost


def link_reach(graph: Graph) -> Floats:
    """Return the slowest link of each server in ms; 0 for a server without links."""
    reach = np.zeros(graph.servers)
    linked = graph.degree > 0
    if linked.any():
        reach[linked] = np.maximum.reduceat(_delays(graph), graph.indptr[:-1][linked])
    return reach


def flood_reach(graph: Graph, runs: int) -> Floats:
    """Return when a message of each server has reached its complete component, in ms.

    Exact (to float32) up to 300 servers per run. Beyond, paths start from evenly spread servers only (256, fewer in
    very large networks): exact for these, and for the others the farthest of these, which is a lower bound.
    """
    each = check_runs(graph.servers, runs)
    _delays(graph)
    if each > DENSE_SERVERS:
        return np.concatenate([_sampled_reach(graph.part(run * each, each)) for run in range(runs)])
    step = max(1, DENSE_CELLS // each**2)
    return np.concatenate([_dense_reach(graph, run, min(run + step, runs), each) for run in range(0, runs, step)])


def _dense_reach(graph: Graph, first: int, last: int, each: int) -> Floats:
    """Run Floyd-Warshall on runs first .. last - 1 side by side."""
    part = graph.part(first * each, (last - first) * each)
    apart = np.full((last - first, each, each), np.inf, dtype=np.float32)
    rows = np.repeat(np.arange(part.servers), part.degree)
    columns = part.indices - rows // each * each
    if columns.size and not (columns.min() >= 0 and columns.max() < each):
        raise BadInput(f"a link joins two runs of {each} servers; give the number of runs that the graph is made of.")
    apart.reshape(-1, each)[rows, columns] = _delays(part)
    apart[:, np.arange(each), np.arange(each)] = 0.0
    detour = np.empty_like(apart)
    for middle in range(each):
        leg = apart[:, middle, :]  # symmetric: both the way to `middle` and the way from it
        np.add(leg[:, :, None], leg[:, None, :], out=detour)
        np.minimum(apart, detour, out=apart)
    apart[np.isinf(apart)] = 0.0
    farthest: Floats = apart.max(axis=2).ravel().astype(np.float64)
    return farthest


def _sampled_reach(graph: Graph) -> Floats:
    """Run Dijkstra from evenly spread sources, one at a time: memory stays linear in the servers."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import dijkstra

    delays = csr_array((_delays(graph).astype(np.float64), graph.indices, graph.indptr), shape=(graph.servers,) * 2)
    count = min(graph.servers, MOST_SOURCES, max(4, SOURCE_WORK // graph.servers))
    reach = np.zeros(graph.servers)
    for source in np.linspace(0, graph.servers - 1, count).astype(np.int64):
        away = dijkstra(delays, directed=True, indices=source)
        away[np.isinf(away)] = 0.0
        np.maximum(reach, away, out=reach)
        reach[source] = away.max()
    return reach


def _delays(graph: Graph) -> NDArray[np.float32]:
    if graph.latency_ms is None:
        raise BadInput("the network has no link latencies; build it with latency=(low, high).")
    return graph.latency_ms
