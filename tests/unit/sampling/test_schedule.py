"""Schedules known in advance: which slots, how many, and phases spread over the graph."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

from dpcrowd.errors import BadInput
from dpcrowd.network.graph import Graph
from dpcrowd.network.topologies import build
from dpcrowd.sampling.schedule import (
    all_meet,
    check_interval,
    due,
    samples_due,
    samples_in_horizon,
    samples_in_window,
    spread_phases,
)


def test_fixed_and_lockstep_sample_every_i_th_slot_from_the_first() -> None:
    """Slot 0 belongs to the schedule: a server must not wait I slots for its first estimate."""
    nobody_waits = np.zeros((1, 1), dtype=np.int64)
    assert [slot for slot in range(13) if due(slot, 4, nobody_waits)[0, 0]] == [0, 4, 8, 12]
    assert due(5, 1, nobody_waits).all()


def test_staggered_servers_sample_in_their_own_slots() -> None:
    """(t - phase) mod I = 0, and somebody samples in every slot."""
    phases = np.array([[0], [1], [2], [1]])
    slots = [[slot for slot in range(7) if due(slot, 3, phases)[i, 0]] for i in range(4)]
    assert slots == [[0, 3, 6], [1, 4], [2, 5], [1, 4]]
    assert all(due(slot, 3, phases).any() for slot in range(7))


@pytest.mark.parametrize("interval", [1, 2, 7, np.int64(3), 5.0])
def test_whole_intervals_are_taken(interval: int) -> None:
    """A whole number may come as any type of number."""
    checked = check_interval(interval)
    assert checked == interval
    assert type(checked) is int


@pytest.mark.parametrize("interval", [0, -3, 2.5, True, np.nan, np.inf])
def test_what_is_no_interval_is_refused(interval: int) -> None:
    """NaN and infinity included: they are no whole number, and int() of them is a traceback."""
    with pytest.raises(BadInput, match="whole number of slots >= 1"):
        check_interval(interval)


def test_counts_of_samples() -> None:
    """The budget is divided by these: one too few and the last sample cannot be paid."""
    assert samples_in_horizon(10, 3, np.array([0, 1, 2])).tolist() == [4, 3, 3]
    assert samples_in_horizon(1, 3, np.array([0, 1, 2])).tolist() == [1, 0, 0]
    assert [samples_in_window(w, 3) for w in (1, 2, 3, 4, 6, 7)] == [1, 1, 1, 2, 2, 3]


@pytest.mark.parametrize("servers", [2, 3, 5, 8, 20])
def test_servers_meet_if_the_slots_join_them_all(servers: int) -> None:
    """As a graph says that joins servers and the slots in which they sample. Without it, shares of servers that never
    sample together are learned from how the crowd is expected to move, and that may be wrong."""
    window, offsets = 12, np.arange(servers) * 12 // servers
    found = []
    for samples in range(1, window + 1):
        joined = nx.Graph()
        joined.add_nodes_from(("server", server) for server in range(servers))
        for slot in range(window):
            there = np.flatnonzero(samples_due(slot, samples, window, offsets))
            joined.add_edges_from((("slot", slot), ("server", int(server))) for server in there)
        taken = [node for node in joined if joined.degree(node) or node[0] == "server"]
        expected = nx.is_connected(joined.subgraph(taken))
        assert all_meet(samples, window, offsets) == expected, samples
        found.append(expected)
    divisors = [samples for samples in range(1, window) if window % samples == 0]
    assert not any(found[samples - 1] for samples in divisors), "who takes turns never meets the others"
    assert found[-1], "who samples in every slot meets everybody"


def test_phases_on_a_ring_use_every_phase_and_differ_between_neighbours() -> None:
    """With I above the largest degree no two neighbours need the same slot."""
    ring = build("ring", 50, np.random.default_rng(0))
    phases = spread_phases(ring.indptr, ring.indices, 5)
    assert set(phases.tolist()) == set(range(5))
    rows, columns, _ = ring.pairs()
    assert (phases[rows] != phases[columns]).all()


def test_phases_depend_on_the_graph_alone() -> None:
    """Every server computes all phases for itself: they must come out the same, whatever the integers' type."""
    graph = build("random", 40, np.random.default_rng(1), density=0.2)
    phases = spread_phases(graph.indptr, graph.indices, 7)
    again = spread_phases(graph.indptr.astype(np.int64), graph.indices.astype(np.uint32), 7)
    assert phases.tolist() == again.tolist()
    assert phases.dtype == np.int64


def test_servers_without_links_are_spread_too() -> None:
    """Nobody is nearby, so the rarest phase of all is taken: 0, 1, 2, 0, 1, 2, .."""
    alone = Graph.alone(7)
    assert spread_phases(alone.indptr, alone.indices, 3).tolist() == [0, 1, 2, 0, 1, 2, 0]
    assert spread_phases(alone.indptr, alone.indices, 1).tolist() == [0] * 7


def coverage(graph: Graph, phases: np.ndarray, interval: int) -> float:
    """In how many slots a server hears somebody (itself included), relative to the most that is possible."""
    heard = [{int(phases[i]), *phases[graph.neighbours(i)].tolist()} for i in range(graph.servers)]
    most = np.minimum(interval, graph.degree + 1)
    return float(np.mean([len(each) for each in heard] / most))


@pytest.mark.parametrize(
    ("name", "interval", "least"),
    [("ring", 3, 0.98), ("grid", 4, 0.9), ("grid", 5, 0.98), ("random", 5, 0.9), ("random", 10, 0.88)],
)
def test_around_every_server_somebody_has_fresh_data(name: str, interval: int, least: float) -> None:
    """The purpose of staggering. Keeping only direct neighbours apart reaches 0.7 on the grid with I = 4."""
    graph = build(name, 64, np.random.default_rng(2), density=0.1)
    phases = spread_phases(graph.indptr, graph.indices, interval)
    reached = coverage(graph, phases, interval)
    by_chance = coverage(graph, np.random.default_rng(3).integers(0, interval, 64), interval)
    assert reached >= least
    assert reached > by_chance + 0.05
    rows, columns, _ = graph.pairs()
    assert np.mean(phases[rows] == phases[columns]) < 1 / interval


@pytest.mark.parametrize("interval", [12, 20])
def test_on_a_ring_those_who_are_heard_speak_far_apart(interval: int) -> None:
    """Different phases in a row would leave a server without fresh data for most of the interval."""
    servers = 12
    ring = np.array([sorted(((i - 1) % servers, (i + 1) % servers)) for i in range(servers)])
    phases = spread_phases(np.arange(0, 2 * servers + 1, 2), ring.ravel(), interval)
    longest = []
    for server in range(servers):
        heard = np.sort(phases[[*ring[server], server]])
        longest.append(int(np.diff(np.append(heard, heard[0] + interval)).max()))
    assert np.mean(longest) <= 0.6 * interval, "three voices could at best leave gaps of a third"


def test_a_huge_interval_costs_no_memory_for_each_of_its_slots() -> None:
    """An interval of a billion slots is odd but valid; a table of that width would end the process."""
    phases = spread_phases(np.array([0, 1, 2]), np.array([1, 0]), 10**9)
    assert 0 <= phases.min() < phases.max() < 10**9


def test_whoever_changes_the_phases_changes_only_his_own() -> None:
    """Phases are remembered by graph: a caller's arithmetic in place would move the samples of every later caller."""
    links = np.array([0, 1, 2]), np.array([1, 0])
    phases = spread_phases(*links, 4)
    before = phases.tolist()
    phases += 1
    assert spread_phases(*links, 4).tolist() == before
