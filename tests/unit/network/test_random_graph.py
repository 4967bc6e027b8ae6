"""Random graphs: reproducible run by run, never an isolated server, the density that was asked for."""

from __future__ import annotations

import numpy as np
import pytest

from dpcrowd.errors import BadInput
from dpcrowd.network import random_graph
from dpcrowd.network.density import link_probability, lowest_density
from dpcrowd.network.graph import Graph
from dpcrowd.network.random_graph import RandomGraph, decode_pairs
from dpcrowd.network.repair import join_isolated


def same(one: Graph, other: Graph) -> bool:
    return all(
        np.array_equal(getattr(one, name), getattr(other, name))
        for name in ("servers", "indptr", "indices", "latency_ms")
    )


@pytest.mark.parametrize("density", [0.05, 0.1, 0.6, 1.0])
def test_a_batch_is_its_runs_one_by_one(density: float) -> None:
    """A run's result must not depend on which other runs share its batch."""
    kind = RandomGraph(20, max(density, lowest_density(20)))
    batch = [np.random.default_rng(seed) for seed in range(6)]
    alone = [np.random.default_rng(seed) for seed in range(6)]
    for slots in (3, 1, 5):
        unions = kind.draw_unions(batch, slots)
        assert [graph.servers for graph in unions] == [120] * slots
        for run, rng in enumerate(alone):
            for slot, graph in enumerate(kind.draw_unions([rng], slots)):
                assert same(unions[slot].part(run * 20, 20), graph)


def test_draw_is_a_union_of_one() -> None:
    """Static and dynamic networks of one seed must start from the same graph."""
    kind = RandomGraph(30, 0.1)
    assert same(kind.draw(np.random.default_rng(3)), kind.draw_unions([np.random.default_rng(3)], 1)[0])


def test_slots_differ() -> None:
    """A dynamic network that repeats one graph would not be dynamic."""
    first, second = RandomGraph(30, 0.2).draw_unions([np.random.default_rng(0)], 2)
    assert not np.array_equal(first.indices, second.indices)


def test_every_graph_is_valid_and_nobody_is_isolated() -> None:
    """Trusted assembly skips the checks, so the drawn links themselves must satisfy them."""
    for servers, density in ((2, 1.0), (3, 0.7), (11, 0.12), (50, 1 / 49), (50, 0.03)):
        for graph in RandomGraph(servers, density).draw_unions([np.random.default_rng(s) for s in range(5)], 20):
            sources, targets, delays = graph.pairs()
            assert same(Graph.from_edges(graph.servers, sources, targets, delays), graph)
            assert delays is not None
            assert ((delays >= 50) & (delays <= 150)).all()


def test_the_complete_graph_is_exact() -> None:
    """Density 1 means every link, always."""
    graph = RandomGraph(9, 1.0).draw(np.random.default_rng(0))
    assert (graph.edges, graph.density) == (36, 1.0)


def test_the_sparsest_graph_is_a_perfect_matching() -> None:
    """At the lower end of the range all links come from the repair: ceil(n / 2) of them."""
    for servers in (2, 10, 11, 51, 400):
        graph = RandomGraph(servers, lowest_density(servers)).draw(np.random.default_rng(1))
        assert graph.edges == (servers + 1) // 2


@pytest.mark.parametrize(("servers", "density"), [(50, 0.02), (50, 1.01), (50, 0.0), (50, float("nan")), (51, 0.02)])
def test_densities_out_of_reach_are_refused_with_the_range(servers: int, density: float) -> None:
    """A density that cannot be had must not be replaced by another in silence."""
    with pytest.raises(BadInput, match=r"allowed: 0\.020\d+ \(nobody isolated\) to 1"):
        RandomGraph(servers, density)


def test_bad_sizes_and_latencies_are_refused() -> None:
    """One line for each, before anything is drawn."""
    for servers in (1, 0, -3, True):
        with pytest.raises(BadInput, match="at least 2"):
            RandomGraph(servers, 0.5)
    for latency in ((0.0, 10.0), (20.0, 10.0), (1.0, float("inf"))):
        with pytest.raises(BadInput, match="latency"):
            RandomGraph(10, 0.5, latency)
    with pytest.raises(BadInput, match="0 slots"):
        RandomGraph(10, 0.5).draw_unions([np.random.default_rng(0)], 0)
    with pytest.raises(BadInput, match="0 runs"):
        RandomGraph(10, 0.5).draw_unions([], 1)
    with pytest.raises(BadInput, match="lower density"):
        RandomGraph(1_000_000, 0.5).draw(np.random.default_rng(0))


def test_graphs_without_latency() -> None:
    """Delays cost time to draw; whoever needs none may leave them out, and gets the same links."""
    bare = RandomGraph(30, 0.1, None).draw(np.random.default_rng(0))
    assert bare.latency_ms is None
    assert np.array_equal(bare.indices, RandomGraph(30, 0.1).draw(np.random.default_rng(0)).indices)


def test_pairs_are_decoded_exactly_for_any_number_of_servers() -> None:
    """A square root that rounds across a row boundary (it does from 2^26 servers) would make a self-loop."""
    j = np.concatenate((np.arange(1, 3000), np.arange(999_000, 1_000_000), np.arange(2**30 - 500, 2**30)))
    for i in (np.zeros_like(j), j - 1, j // 2):
        low, high = decode_pairs(j * (j - 1) // 2 + i)
        assert np.array_equal(low, i)
        assert np.array_equal(high, j)


def test_a_small_network_looks_pairs_up_and_gets_the_same_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table is a short cut; a large network, which decodes, must follow the same rule."""
    looked_up = RandomGraph(40, 0.1).draw_unions([np.random.default_rng(s) for s in range(3)], 4)
    monkeypatch.setattr(random_graph, "TABLE_SERVERS", 2)
    decoded = RandomGraph(40, 0.1).draw_unions([np.random.default_rng(s) for s in range(3)], 4)
    assert all(same(one, other) for one, other in zip(looked_up, decoded, strict=True))


def test_skipping_goes_on_when_the_first_numbers_do_not_suffice() -> None:
    """Enough gaps are drawn nearly always; when they are not, the rest of the pairs must not stay unlinked."""

    class Hasty:
        """Exponentials that are far too small, so that the first batch ends early."""

        calls = 0

        def standard_exponential(self, size: int) -> np.ndarray:
            self.calls += 1
            return np.full(size, 1e-9)

    rng = Hasty()
    assert random_graph._successes(rng, 1000, 0.01).tolist() == list(range(1000))  # type: ignore[arg-type]
    assert rng.calls > 10


def test_gaps_far_beyond_the_end_do_not_overflow() -> None:
    """Close to the sparsest density p is tiny and a gap exceeds any integer."""
    for p in (1e-300, 1e-18):
        assert random_graph._successes(np.random.default_rng(0), 10**12, p).size == 0


def test_isolated_servers_are_joined_in_pairs_and_the_odd_one_to_anybody() -> None:
    """More links than ceil(K / 2) would make sparse graphs denser than asked for."""
    rng = np.random.default_rng(0)
    picked = set()
    for _ in range(300):
        graph, one, other = join_isolated(6, np.array([0, 0, 0, 4, 4]), np.array([1, 3, 5, 0, 2]), rng.random((2, 5)))
        assert graph.tolist() == [0, 0, 4]
        assert {int(one[2]), int(other[2])} == {0, 2}
        assert {int(one[0]), int(other[0]), int(one[1])} == {1, 3, 5}
        assert one[1] != other[1]
        picked.add((int(one[1]), int(other[1])))
    assert len(picked) == 15  # each of 3 odd ones with each of 5 others


def test_the_link_probability_is_solved_once() -> None:
    """Bisection costs milliseconds: once per kind of graph, not once per slot."""
    link_probability.cache_clear()
    kind = RandomGraph(40, 0.11)
    for _ in range(5):
        kind.draw(np.random.default_rng(0))
    assert link_probability.cache_info().misses == 1
