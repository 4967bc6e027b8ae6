"""Invariants of every graph that the layer can make."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcrowd.errors import BadInput
from dpcrowd.network import costs
from dpcrowd.network.adjacency import parse_adjacency
from dpcrowd.network.density import lowest_density
from dpcrowd.network.graph import Graph, union
from dpcrowd.network.random_graph import RandomGraph
from dpcrowd.network.topologies import build
from examples_support import examples

seeds = st.integers(0, 2**32 - 1)


@st.composite
def link_lists(draw: Any) -> tuple[int, list[tuple[int, int]]]:
    """A number of servers and links in random order and direction that leave nobody out."""
    servers = draw(st.integers(2, 25))
    tree = [(i, draw(st.integers(0, i - 1))) for i in range(1, servers)]
    pair = st.tuples(st.integers(0, servers - 1), st.integers(0, servers - 1)).filter(lambda ends: ends[0] != ends[1])
    links = {tuple(sorted(ends)) for ends in [*tree, *draw(st.lists(pair, max_size=40))]}
    turned = [(b, a) if draw(st.booleans()) else (a, b) for a, b in sorted(links)]
    return servers, draw(st.permutations(turned))


@st.composite
def densities(draw: Any) -> tuple[int, float]:
    servers = draw(st.integers(2, 40))
    return servers, draw(st.floats(lowest_density(servers), 1.0))


def assert_sound(graph: Graph) -> None:
    """Symmetric with equal delays, ascending rows, no self-loops, nobody isolated, hearing = rows and oneself."""
    rows = np.repeat(np.arange(graph.servers), graph.degree)
    steps = np.diff(graph.indices)[np.diff(rows) == 0]
    assert (steps > 0).all()
    assert (graph.indices != rows).all()
    assert (graph.degree > 0).all()
    delays = np.ones(rows.size) if graph.latency_ms is None else graph.latency_ms
    table = np.zeros((graph.servers, graph.servers))
    table[rows, graph.indices] = delays
    assert np.array_equal(table, table.T)
    hearing = graph.hearing
    assert np.array_equal(hearing.toarray(), (table > 0) + np.eye(graph.servers))
    hearing_rows = np.repeat(np.arange(graph.servers), np.diff(hearing.indptr))
    assert (np.diff(hearing.indices)[np.diff(hearing_rows) == 0] > 0).all()


@pytest.mark.slow
@given(link_lists(), st.booleans())
def test_links_in_links_out(given_links: tuple[int, list[tuple[int, int]]], delayed: bool) -> None:
    """Any order and direction of the links gives one and the same sound graph, and the links come back."""
    servers, links = given_links
    ends = np.array(links)
    delays = 1.0 + np.arange(len(links)) if delayed else None
    graph = Graph.from_edges(servers, ends[:, 0], ends[:, 1], delays)
    assert_sound(graph)
    low, high, back = graph.pairs()
    assert list(zip(low.tolist(), high.tolist(), strict=True)) == sorted(tuple(sorted(ends)) for ends in links)
    if delays is not None and back is not None:
        of = {tuple(sorted(link)): delay for link, delay in zip(links, delays, strict=True)}
        assert back.tolist() == [of[pair] for pair in zip(low.tolist(), high.tolist(), strict=True)]


@pytest.mark.slow
@given(link_lists())
def test_text_in_links_out(given_links: tuple[int, list[tuple[int, int]]]) -> None:
    """A network written as links or as a matrix is read back as it was."""
    servers, links = given_links
    ends = np.array(links)
    graph = Graph.from_edges(servers, ends[:, 0], ends[:, 1])
    matrix = (graph.hearing.toarray() - np.eye(servers)).astype(int)
    for text in ("\n".join(f"{a},{b}" for a, b in links), "\n".join(" ".join(map(str, row)) for row in matrix)):
        again = parse_adjacency(text, servers)
        assert np.array_equal(again.indptr, graph.indptr)
        assert np.array_equal(again.indices, graph.indices)


@given(st.text(alphabet="01239,. \n-x#", max_size=60))
def test_any_text_is_a_network_or_one_clear_line(text: str) -> None:
    """A parser that dies of anything else than BadInput shows users a traceback."""
    line = ""
    try:
        assert_sound(parse_adjacency(text))
    except BadInput as error:
        line = str(error)
    assert "\n" not in line


@pytest.mark.slow
@given(densities(), seeds, st.integers(1, 4), st.integers(1, 4))
@settings(max_examples=examples(60))
def test_random_graphs_are_sound_and_runs_are_independent(
    kind: tuple[int, float], seed: int, runs: int, slots: int
) -> None:
    """Every attainable density, size and batch: sound graphs, and the last run is the same alone."""
    servers, density = kind
    graphs = RandomGraph(servers, density)
    unions = graphs.draw_unions([np.random.default_rng((seed, run)) for run in range(runs)], slots)
    alone = graphs.draw_unions([np.random.default_rng((seed, runs - 1))], slots)
    for whole, part in zip(unions, alone, strict=True):
        assert_sound(whole)
        cut = whole.part((runs - 1) * servers, servers)
        assert np.array_equal(cut.indices, part.indices)
        assert np.array_equal(cut.latency_ms, part.latency_ms)


@pytest.mark.slow
@given(st.sampled_from(["small-world", "scale-free", "geometric"]), densities(), seeds)
@settings(max_examples=examples(60))
def test_fitted_topologies_are_sound_or_refused(name: str, kind: tuple[int, float], seed: int) -> None:
    """At any size and density: a sound graph, or a line that states the range."""
    line = "allowed"
    try:
        assert_sound(build(name, kind[0], np.random.default_rng(seed), density=kind[1]))
    except BadInput as error:
        line = str(error)
    assert "allowed" in line


@given(st.lists(densities(), min_size=1, max_size=5), seeds)
@settings(max_examples=examples(50))
def test_union_and_part_are_inverse(kinds: list[tuple[int, float]], seed: int) -> None:
    """Whatever the sizes, each graph comes back out of the union unchanged."""
    rng = np.random.default_rng(seed)
    graphs = [RandomGraph(*kind).draw(rng) for kind in kinds]
    whole = union(graphs)
    assert_sound(whole)
    first = 0
    for graph in graphs:
        again = whole.part(first, graph.servers)
        assert np.array_equal(again.indptr, graph.indptr)
        assert np.array_equal(again.indices, graph.indices)
        assert np.array_equal(again.latency_ms, graph.latency_ms)
        first += graph.servers


@given(densities(), seeds, st.integers(1, 4))
@settings(max_examples=examples(50))
def test_costs_of_a_batch_are_those_of_its_runs(kind: tuple[int, float], seed: int, runs: int) -> None:
    """Packets and latency of a run do not depend on the runs beside it; flooding never costs less than one hop."""
    servers, density = kind
    rng = np.random.default_rng(seed)
    graphs = [RandomGraph(servers, density).draw(rng) for _ in range(runs)]
    whole, speaks = union(graphs), rng.random(runs * servers) < 0.5
    reach, flood = costs.link_reach(whole), costs.flood_reach(whole, runs)
    single = [
        (
            int(costs.packets(graph.degree, part, 1)[0]),
            int(costs.packets(costs.flood_cost(graph), part, 1)[0]),
            float(costs.last_arrival(costs.link_reach(graph), part, 1)[0]),
            float(costs.last_arrival(costs.flood_reach(graph, 1), part, 1)[0]),
        )
        for graph, part in zip(graphs, speaks.reshape(runs, servers), strict=True)
    ]
    batch = (
        costs.packets(whole.degree, speaks, runs),
        costs.packets(costs.flood_cost(whole), speaks, runs),
        costs.last_arrival(reach, speaks, runs),
        costs.last_arrival(flood, speaks, runs),
    )
    np.testing.assert_array_equal(np.array(single, dtype=np.float64).T, np.array(batch, dtype=np.float64))
    assert (batch[1] >= batch[0]).all()
