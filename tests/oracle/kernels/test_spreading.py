"""Records over one hop and more: the compiled loops give the numbers of the array operations."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcrowd.filters.records import RecordTable, held_pairs
from dpcrowd.kernels.gather import unsigned
from dpcrowd.kernels.spreading import hop_shells
from dpcrowd.network.graph import Graph, union
from dpcrowd.network.hearing import one_hop_hearing
from dpcrowd.network.random_graph import RandomGraph
from dpcrowd.network.spread import one_hop_holdings, record_totals

RUNS, SERVERS = 3, 8


@given(seed=st.integers(0, 2**32 - 1), density=st.floats(0.2, 0.9), activity=st.floats(0.0, 1.0))
@settings(max_examples=40, deadline=None)
def test_the_same_records_are_heard(seed: int, density: float, activity: float) -> None:
    """A loop over the speakers must not lose a listener, nor change the order in which records are added."""
    rng = np.random.default_rng(seed)
    graph = union([RandomGraph(SERVERS, density, latency=None).draw(rng) for _ in range(RUNS)])
    speaks = rng.random(RUNS * SERVERS) < activity
    table = RecordTable(np.zeros((RUNS * SERVERS, 1)), speaks.astype(np.float64), np.ones(RUNS * SERVERS))
    pairs = []
    for engine in ("numpy", "numba"):
        holdings = one_hop_holdings(one_hop_hearing(graph, 0.0, engine), speaks)
        pairs.append([array.tolist() for array in held_pairs(holdings.indptr, holdings.indices, table)])
    assert pairs[0] == pairs[1]
    assert len(pairs[0][0]) == (graph.degree[speaks] + 1).sum()


@given(seed=st.integers(0, 2**32 - 1), digits=st.integers(0, 15), regions=st.sampled_from([1, 3]))
@settings(max_examples=60, deadline=None)
def test_the_same_bytes_are_counted(seed: int, digits: int, regions: int) -> None:
    """Integers at the limit between two sizes would be counted differently with and without Numba."""
    rng = np.random.default_rng(seed)
    count = RUNS * SERVERS
    noisy = rng.integers(-(10**digits), 10**digits + 1, (count, regions)).astype(np.float64)
    limits = 64.0 * 128.0 ** rng.integers(0, 6, noisy.shape) + rng.integers(-1, 2, noisy.shape)
    noisy = np.where(rng.random(noisy.shape) < 0.5, noisy, limits * rng.choice([-1.0, 1.0], noisy.shape))
    speaks, degree = rng.random(count) < 0.5, rng.integers(0, 9, count)
    totals = [record_totals(noisy, speaks, degree, RUNS, engine) for engine in ("numpy", "numba")]
    assert totals[0].tolist() == totals[1].tolist()
    assert totals[0][1].sum() == speaks.sum()


def test_shells_of_a_long_line_are_its_distances() -> None:
    """The table of shells grows with the distances: beyond its first eight hops, origins would be lost."""
    servers = 20
    line = Graph.from_edges(servers, np.arange(servers - 1), np.arange(1, servers))
    shells, _ = hop_shells(unsigned(line.indptr), unsigned(line.indices), servers, servers)
    distances = np.abs(np.subtract.outer(np.arange(servers), np.arange(servers)))
    bits = np.unpackbits(shells.view(np.uint8), axis=2, bitorder="little")[:, :, :servers]
    for hops, reached in enumerate(bits):
        np.testing.assert_array_equal(reached.astype(bool), distances == hops)
