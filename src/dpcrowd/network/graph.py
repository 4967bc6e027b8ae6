"""An undirected network of servers as a neighbour list (compressed sparse rows).

Row i of `indices` holds the one-hop neighbours N_i of server i in ascending order, without i itself; `hearing` adds
i, so that its row i is J_i = N_i + {i} of Algorithm 1. Ascending order is part of the contract: sums over servers run
in ascending server id, and so agree bit for bit between the simulator and a live node.

A million servers of mean degree 20 are 20 M entries: 80 MB of indices and as much of latencies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpcrowd.arrays import Floats32, Ints32
from dpcrowd.errors import BadInput
from dpcrowd.network.checks import check_edges, check_isolated, check_latency, check_servers, check_size

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = ["Graph", "union"]


@dataclass(frozen=True, eq=False, repr=False)
class Graph:
    """Symmetric neighbour lists of `servers` servers; build one with `from_edges`, `alone` or `union`.

    indptr      (servers + 1,) where each server's row begins and ends
    indices     (2 * links,) neighbours, ascending in each row, never the server itself
    latency_ms  (2 * links,) delay of the link to that neighbour, the same in both directions, or None

    The constructor trusts its arguments; it makes the arrays read-only.

    >>> graph = Graph.from_edges(3, [0, 1], [1, 2])
    >>> graph, graph.max_degree, graph.neighbours(1).tolist()
    (Graph(3 servers, 2 links), 2, [0, 2])
    """

    servers: int
    indptr: Ints32
    indices: Ints32
    latency_ms: Floats32 | None = None

    def __post_init__(self) -> None:
        for array in (self.indptr, self.indices, self.latency_ms):
            if array is not None:
                array.setflags(write=False)

    def __repr__(self) -> str:
        return f"Graph({self.servers} servers, {self.edges} links)"

    @classmethod
    def from_edges(cls, servers: int, sources: Any, targets: Any, latency_ms: Any = None, check: bool = True) -> Graph:
        """Return the graph of undirected links (sources[e], targets[e]), each given once, in any order.

        With `check` a self-loop, a duplicate, an unknown server, an isolated server or a latency that is not a
        positive number is refused; without it the caller is responsible for all of that.
        """
        check_servers(servers, least=1)
        ends = np.asarray(sources), np.asarray(targets)
        delays = None if latency_ms is None else np.asarray(latency_ms, dtype=np.float32)
        if check:
            check_edges(servers, *ends)
            check_latency(delays, ends[0].size)
        check_size(servers, ends[0].size)
        graph = _assemble(servers, ends[0].astype(np.int32), ends[1].astype(np.int32), delays)
        if check:
            if graph.indices.size != 2 * ends[0].size:
                _refuse_duplicate(servers, *ends)
            check_isolated(graph.degree)
        return graph

    @classmethod
    def alone(cls, servers: int) -> Graph:
        """Return servers without any link: the network of a scheme that sends nothing."""
        check_servers(servers, least=1)
        none = np.zeros(0, dtype=np.int32)
        return cls(servers, np.zeros(servers + 1, dtype=np.int32), none, np.zeros(0, dtype=np.float32))

    @cached_property
    def degree(self) -> Ints32:
        """Number of neighbours of each server, shape (servers,)."""
        return np.diff(self.indptr)

    @property
    def max_degree(self) -> int:
        return int(self.degree.max())

    @property
    def edges(self) -> int:
        """Number of undirected links."""
        return self.indices.size // 2

    @property
    def density(self) -> float:
        """rho = 2 * links / (m (m - 1)), Eq. (density); 0 for a single server."""
        return 2.0 * self.edges / max(1, self.servers * (self.servers - 1))

    def neighbours(self, server: int) -> Ints32:
        """Return the one-hop neighbours of a server, ascending."""
        return self.indices[self.indptr[server] : self.indptr[server + 1]]

    def pairs(self) -> tuple[Ints32, Ints32, Floats32 | None]:
        """Return every link once, as (lower server, higher server, latency), sorted by these servers."""
        rows = np.repeat(np.arange(self.servers, dtype=np.int32), self.degree)
        once = rows < self.indices
        return rows[once], self.indices[once], None if self.latency_ms is None else self.latency_ms[once]

    def part(self, first: int, servers: int) -> Graph:
        """Return servers first .. first + servers - 1 as a graph of their own: the inverse of `union`."""
        begin, end = int(self.indptr[first]), int(self.indptr[first + servers])
        indices = self.indices[begin:end] - np.int32(first)
        if indices.size and not (indices.min() >= 0 and indices.max() < servers):
            raise BadInput(f"servers {first} to {first + servers - 1} are linked to others; cut a graph between runs.")
        latency = None if self.latency_ms is None else self.latency_ms[begin:end]
        return Graph(servers, self.indptr[first : first + servers + 1] - np.int32(begin), indices, latency)

    @cached_property
    def hearing(self) -> csr_array:
        """J_i = N_i + {i} as a sparse 0/1 matrix (float64 ones), columns ascending in each row."""
        from scipy.sparse import csr_array

        own = np.arange(self.servers, dtype=np.int32)
        rows = np.repeat(own, self.degree)
        # Row i is (neighbours below i), i, (neighbours above i): the loop's place follows from counting those below.
        below = np.zeros(self.indices.size + 1, dtype=np.int32)
        np.cumsum(self.indices < rows, out=below[1:])
        place = self.indptr[:-1] + own + (below[self.indptr[1:]] - below[self.indptr[:-1]])
        others = np.ones(self.indices.size + self.servers, dtype=np.bool_)
        others[place] = False
        indices = np.empty(others.size, dtype=np.int32)
        indices[others] = self.indices
        indices[place] = own
        indptr = self.indptr + np.arange(self.servers + 1, dtype=np.int32)
        matrix = csr_array((np.ones(indices.size), indices, indptr), shape=(self.servers, self.servers))
        matrix.has_canonical_format = True
        return matrix


def union(graphs: Sequence[Graph]) -> Graph:
    """Return the disjoint union: the servers of graphs[0], then those of graphs[1], and so on; no links in between."""
    if not graphs:
        raise BadInput("a union of 0 graphs was asked for; give at least 1.")
    if len({graph.latency_ms is None for graph in graphs}) > 1:
        raise BadInput("some graphs have link latencies and some have none; give them to all or to none.")
    sizes = np.array([graph.servers for graph in graphs])
    entries = np.array([graph.indices.size for graph in graphs])
    check_size(int(sizes.sum()), int(entries.sum()) // 2)
    first_server = (np.cumsum(sizes) - sizes).astype(np.int32)
    first_entry = (np.cumsum(entries) - entries).astype(np.int32)
    starts = np.concatenate([graph.indptr[:-1] for graph in graphs]) + np.repeat(first_entry, sizes)
    indptr = np.append(starts, np.int32(entries.sum()))
    indices = np.concatenate([graph.indices for graph in graphs]) + np.repeat(first_server, entries)
    delays = [graph.latency_ms for graph in graphs if graph.latency_ms is not None]
    return Graph(int(sizes.sum()), indptr, indices, np.concatenate(delays) if delays else None)


def _assemble(servers: int, sources: Ints32, targets: Ints32, latency_ms: Floats32 | None) -> Graph:
    """Return the graph of both directions of every link, sorted by row in linear time; duplicates become one."""
    from scipy.sparse import coo_array

    rows = np.concatenate((targets, sources))
    columns = np.concatenate((sources, targets))
    if latency_ms is None:
        values: NDArray[Any] = np.ones(rows.size, dtype=np.int8)
    else:
        values = np.concatenate((latency_ms, latency_ms))
    matrix = coo_array((values, (rows, columns)), shape=(servers, servers)).tocsr()
    indptr = matrix.indptr.astype(np.int32, copy=False)
    indices = matrix.indices.astype(np.int32, copy=False)
    return Graph(servers, indptr, indices, None if latency_ms is None else matrix.data)


def _refuse_duplicate(servers: int, sources: NDArray[Any], targets: NDArray[Any]) -> None:
    """Name a link that was given more than once, in whichever direction."""
    low, high = np.minimum(sources, targets).astype(np.int64), np.maximum(sources, targets).astype(np.int64)
    keys, times = np.unique(low * servers + high, return_counts=True)
    worst = int(np.flatnonzero(times > 1)[0])
    a, b = divmod(int(keys[worst]), servers)
    raise BadInput(f"the link between servers {a} and {b} is given {int(times[worst])} times; give each link once.")
