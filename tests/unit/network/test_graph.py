"""The neighbour list: what it refuses, what it computes, and how graphs are joined and cut."""

from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pytest

from dpcrowd.errors import BadInput
from dpcrowd.network.graph import Graph, union


def path(servers: int, latency: bool = True) -> Graph:
    """0 - 1 - ... - (servers - 1), link i - i+1 with a delay of 10 (i + 1) ms."""
    first = np.arange(servers - 1)
    return Graph.from_edges(servers, first, first + 1, 10.0 * (first + 1) if latency else None)


def test_rows_are_ascending_whatever_the_order_of_the_links() -> None:
    """Unsorted rows would change the last bit of sums between the simulator and a node."""
    graph = Graph.from_edges(5, [4, 0, 3, 2], [0, 2, 0, 1], [40.0, 20.0, 30.0, 21.0])
    assert graph.neighbours(0).tolist() == [2, 3, 4]
    assert graph.neighbours(2).tolist() == [0, 1]
    assert graph.latency_ms is not None
    assert graph.latency_ms.tolist() == [20.0, 30.0, 40.0, 21.0, 20.0, 21.0, 30.0, 40.0]
    assert graph.indices.dtype == graph.indptr.dtype == np.int32
    assert graph.latency_ms.dtype == np.float32


def test_figures_of_a_graph() -> None:
    """Degree bounds the consensus gain and density labels every result."""
    graph = path(4)
    assert graph.degree.tolist() == [1, 2, 2, 1]
    assert (graph.max_degree, graph.edges, graph.density) == (2, 3, 0.5)
    assert repr(graph) == "Graph(4 servers, 3 links)"


def test_hearing_adds_the_server_itself_in_its_place() -> None:
    """Without the self-loop a server would not fuse its own sample; in a wrong place its sums change bits."""
    hearing = path(4).hearing
    assert hearing.indices.tolist() == [0, 1, 0, 1, 2, 1, 2, 3, 2, 3]
    assert hearing.indptr.tolist() == [0, 2, 5, 8, 10]
    assert hearing.indices.dtype == np.int32
    assert hearing.data.dtype == np.float64
    assert (hearing.data == 1.0).all()


def test_a_graph_cannot_be_changed() -> None:
    """Batches share graphs: a write through one user would silently change the others."""
    graph = path(3)
    with pytest.raises(ValueError, match="read-only"):
        graph.indices[0] = 2


def test_a_graph_survives_pickling() -> None:
    """Runs are spread over processes, and their graphs travel by pickle."""
    graph = path(4)
    copy = pickle.loads(pickle.dumps(graph))
    assert copy.pairs()[1].tolist() == graph.pairs()[1].tolist()
    assert (copy.hearing != graph.hearing).nnz == 0


@pytest.mark.parametrize(
    ("servers", "sources", "targets", "latency", "message"),
    [
        (0, [], [], None, "0 servers"),
        (2.5, [0], [1], None, "2.5 servers"),
        (3, [], [], None, "no links"),
        (3, [0, 1], [1], None, "shapes"),
        (3, [0.0, 1.0], [1.0, 2.0], None, "float64"),
        (3, [0, 1], [1, 3], None, "unknown server 3 .*0 to 2"),
        (3, [-1, 1], [1, 2], None, "unknown server -1"),
        (3, [0, 1, 2], [1, 2, 2], None, "itself at server 2"),
        (3, [0, 1, 1], [1, 2, 0], None, "between servers 0 and 1 is given 2 times"),
        (4, [0], [1], None, "no link at servers 2, 3"),
        (9, [0], [1], None, "servers 2, 3, 4, 5, 6 and 2 more"),
        (3, [0, 1], [1, 2], [1.0], r"shape \(1,\)"),
        (3, [0, 1], [1, 2], [1.0, 0.0], "latency of 0.0"),
        (3, [0, 1], [1, 2], [1.0, np.nan], "latency of nan"),
    ],
)
def test_bad_links_are_refused_by_name(
    servers: int, sources: list[int], targets: list[int], latency: list[float] | None, message: str
) -> None:
    """A broken network must be refused where it is given, in one line that names the servers."""
    with pytest.raises(BadInput, match=message) as caught:
        Graph.from_edges(servers, sources, targets, latency)
    assert "\n" not in str(caught.value)


def test_too_large_a_network_is_refused_before_memory_is_taken() -> None:
    """32-bit indices would wrap around."""
    one = Graph.alone(2**20)
    with pytest.raises(BadInput, match="at most 2147483647"):
        union([one] * 2**11)


def test_servers_alone_hear_themselves() -> None:
    """Schemes that never talk run on the same engine: each server's sum is its own row."""
    graph = Graph.alone(3)
    assert (graph.edges, graph.max_degree, graph.density) == (0, 0, 0.0)
    assert graph.hearing.toarray().tolist() == np.eye(3).tolist()
    assert Graph.alone(1).density == 0.0


def test_union_of_different_sizes_keeps_every_part() -> None:
    """A batch is a union; a wrong offset would let runs hear each other."""
    parts = [path(3), Graph.alone(2), path(5), path(2)]
    whole = union(parts)
    assert whole.servers == 12
    first = 0
    for part in parts:
        again = whole.part(first, part.servers)
        for name in ("indptr", "indices", "latency_ms"):
            assert getattr(again, name).tolist() == getattr(part, name).tolist()
        first += part.servers


def test_a_union_of_nothing_or_of_mixed_graphs_is_refused() -> None:
    """Half the links without a delay would make latencies meaningless."""
    with pytest.raises(BadInput, match="0 graphs"):
        union([])
    with pytest.raises(BadInput, match="latencies"):
        union([path(3), path(3, latency=False)])
    assert union([path(3, latency=False)] * 2).latency_ms is None


def test_a_part_that_cuts_links_is_refused() -> None:
    """Cutting inside a run would leave neighbours that do not exist."""
    with pytest.raises(BadInput, match="cut a graph between runs"):
        path(5).part(0, 3)


@pytest.mark.slow
def test_the_layer_imports_no_heavy_library() -> None:
    """`import dpcrowd` must stay as quick as `import numpy`."""
    code = "import sys, dpcrowd.network; print({'scipy', 'networkx', 'numba'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"
