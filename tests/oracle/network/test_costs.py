"""Degrees, components and shortest delays against networkx."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

from dpcrowd.network import costs
from dpcrowd.network.graph import Graph, union
from dpcrowd.network.random_graph import RandomGraph
from dpcrowd.network.topologies import build


def as_networkx(graph: Graph) -> nx.Graph:
    other = nx.Graph()
    other.add_nodes_from(range(graph.servers))
    sources, targets, delays = graph.pairs()
    assert delays is not None
    other.add_weighted_edges_from(zip(sources.tolist(), targets.tolist(), delays.tolist(), strict=True))
    return other


def farthest(other: nx.Graph) -> np.ndarray:
    """Delay from each server to the last server of its component."""
    paths = dict(nx.all_pairs_dijkstra_path_length(other))
    return np.array([max(paths[server].values()) for server in range(len(other))])


@pytest.mark.parametrize("density", [0.05, 0.08, 0.2])
def test_costs_of_a_batch_agree_with_networkx(density: float) -> None:
    """At density 0.05 the graphs fall into parts, so that messages do not reach everybody."""
    whole = RandomGraph(30, density).draw_unions([np.random.default_rng(seed) for seed in range(6)], 1)[0]
    other = as_networkx(whole)
    parts = list(nx.connected_components(other))
    if density == 0.05:
        assert len(parts) > 6

    assert whole.degree.tolist() == [other.degree[server] for server in range(180)]
    labels = costs.components(whole)
    assert {frozenset(np.flatnonzero(labels == label).tolist()) for label in range(labels.max() + 1)} == {
        frozenset(part) for part in parts
    }
    cost = np.zeros(180, dtype=int)
    for part in parts:
        cost[list(part)] = sum(degree for _, degree in other.degree(part))
    assert costs.flood_cost(whole).tolist() == cost.tolist()
    slowest = [max(data["weight"] for _, _, data in other.edges(server, data=True)) for server in range(180)]
    np.testing.assert_array_equal(costs.link_reach(whole), slowest)
    np.testing.assert_allclose(costs.flood_reach(whole, 6), farthest(other), rtol=1e-5)


def test_tables_cut_into_chunks_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are taken a few at a time to stay in the cache; an offset error would show here."""
    whole = RandomGraph(12, 0.2).draw_unions([np.random.default_rng(seed) for seed in range(7)], 1)[0]
    expected = costs.flood_reach(whole, 7)
    for cells in (1, 300, 500):
        monkeypatch.setattr(costs, "DENSE_CELLS", cells)
        np.testing.assert_array_equal(costs.flood_reach(whole, 7), expected)


def test_large_networks_are_exact_at_the_sources_and_never_above(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the dense limit the reach is a lower bound; with every server a source it is exact."""
    rng = np.random.default_rng(5)
    whole = union([build("random", 60, rng, 0.06) for _ in range(2)])
    exact = farthest(as_networkx(whole))
    monkeypatch.setattr(costs, "DENSE_SERVERS", 10)
    np.testing.assert_allclose(costs.flood_reach(whole, 2), exact, rtol=1e-5)
    monkeypatch.setattr(costs, "MOST_SOURCES", 7)
    bound = costs.flood_reach(whole, 2)
    assert (bound <= exact * (1 + 1e-5)).all()
    sources = np.linspace(0, 59, 7).astype(int)
    for first in (0, 60):
        np.testing.assert_allclose(bound[first + sources], exact[first + sources], rtol=1e-5)
    assert bound.mean() > 0.8 * exact.mean()
