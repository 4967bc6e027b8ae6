"""Networks of a batch: a run's graphs belong to (seed, run, slot); what is derived from them is right."""

from __future__ import annotations

import numpy as np
import pytest

from dpcrowd.errors import BadInput
from dpcrowd.network.graph import Graph
from dpcrowd.sim.topology import Networks, NetworkSpec

LINE = "0,1,10\n1,2,20\n2,3,40\n"


def _networks(spec: NetworkSpec, runs: list[int], seed: int = 0, beta: float | None = None) -> Networks:
    return Networks(spec, seed, runs, beta, "numpy")


def _same(a: Graph, b: Graph) -> bool:
    return all(
        np.array_equal(x, y) for x, y in ((a.indptr, b.indptr), (a.indices, b.indices), (a.latency_ms, b.latency_ms))
    )


@pytest.mark.parametrize("name", ["random", "small-world", "scale-free", "geometric"])
@pytest.mark.parametrize("dynamic", [True, False])
def test_a_run_has_its_own_graphs_in_any_batch(name: str, dynamic: bool) -> None:
    """If the graph of run 2 depended on runs 0 and 1, results would change with the batching."""
    spec = NetworkSpec(name, 12, 0.4, dynamic)
    together, alone = _networks(spec, [0, 1, 2]), _networks(spec, [2])
    graphs = []
    for slot in (0, 1, 15, 16, 40):
        graph = together.at(slot).graph
        graphs.append(graph)
        assert _same(graph.part(24, 12), alone.at(slot).graph)
        assert not _same(graph.part(0, 12), graph.part(12, 12)), "runs have networks of their own"
    assert _same(graphs[0], graphs[1]) != dynamic
    assert _same(graphs[2], graphs[3]) != dynamic, "also across a chunk of slots"
    assert not _same(graphs[0], _networks(spec, [0, 1, 2], seed=1).at(0).graph)


@pytest.mark.parametrize("name", ["ring", "grid", "complete"])
def test_a_fixed_network_cannot_be_dynamic(name: str) -> None:
    """A ring drawn anew each slot is the same ring: whoever asks for it has something else in mind."""
    assert _networks(NetworkSpec(name, 6), [0]).static is not None
    with pytest.raises(BadInput, match=f"graph '{name}' is fixed and cannot be dynamic; these can: random,"):
        NetworkSpec(name, 6, dynamic=True)


@pytest.mark.parametrize(
    ("name", "servers", "density", "text"),
    [
        ("rign", 6, 0.5, r"unknown graph 'rign'\. Did you mean 'ring'\?"),
        ("random", 1, 0.5, "a network of 1 server was .* at least 2"),
        ("random", 6, 0.1, "density 0.1 for 6 servers; allowed: 0.2"),
        ("small-world", 6, 7.0, "7"),
    ],
)
def test_a_wrong_network_is_refused_before_any_run(name: str, servers: int, density: float, text: str) -> None:
    """A refusal in the middle of a long simulation would throw the work away."""
    with pytest.raises(BadInput, match=text):
        NetworkSpec(name, servers, density)


def test_a_file_is_the_network_of_every_run() -> None:
    """Links and latencies are those of the file, in all runs and slots."""
    networks = _networks(NetworkSpec("file", 4, text=LINE), [0, 1])
    links = networks.at(3)
    assert links is networks.static
    for run in range(2):
        part = links.graph.part(4 * run, 4)
        assert [part.neighbours(server).tolist() for server in range(4)] == [[1], [0, 2], [1, 3], [2]]
    assert links.one_hop_cost.tolist() == [1, 2, 2, 1] * 2
    assert links.one_hop_delay.tolist() == [10, 20, 40, 40] * 2
    assert links.flood_cost.tolist() == [6] * 8
    assert links.flood_delay.tolist() == [70, 60, 40, 70] * 2


def test_the_gain_is_that_of_each_runs_own_network() -> None:
    """beta = 1/(2(1 + max degree)) of the run; that of the batch would tie runs together."""
    links = _networks(NetworkSpec("random", 8, 0.4), [0, 1, 2]).at(0)
    assert isinstance(links.gain, np.ndarray)
    for run in range(3):
        largest = links.graph.part(8 * run, 8).max_degree
        assert (links.gain[8 * run : 8 * run + 8, 0] == 0.5 / (1 + largest)).all()
    assert len(set(links.gain[:, 0])) > 1, "the case should have runs of different degree"


def test_a_given_gain_is_used_or_refused_with_the_bound() -> None:
    """An unstable beta diverges to 1e21 in 400 slots; the message has to say what would work."""
    spec = NetworkSpec("ring", 6)
    assert _networks(spec, [0], beta=0.25).at(0).gain == 0.25
    with pytest.raises(BadInput, match=r"beta = 0\.26 can diverge.*at most 1/\(2\*2\) = 0\.25"):
        _ = _networks(spec, [0], beta=0.26).at(0).gain


def test_hearing_follows_the_architecture() -> None:
    """One hop: neighbours and oneself; flooding: the component; central: the run; alone: oneself."""
    links = _networks(NetworkSpec("file", 4, text="0,1\n2,3\n"), [0, 1]).at(0)
    table = np.arange(1.0, 9.0)[:, None]
    sums = {
        reach: links.hearing(reach).sums(table)[:, 0].tolist() for reach in ("alone", "one-hop", "flooding", "central")
    }
    assert sums["alone"] == table[:, 0].tolist()
    assert sums["one-hop"] == sums["flooding"] == [3, 3, 7, 7, 11, 11, 15, 15]
    assert sums["central"] == [10, 10, 10, 10, 26, 26, 26, 26]
    line = _networks(NetworkSpec("file", 4, text=LINE), [0]).at(0)
    assert line.hearing("one-hop").sums(table[:4])[:, 0].tolist() == [3, 6, 9, 7]
    assert line.hearing("flooding").sums(table[:4])[:, 0].tolist() == [10] * 4
    assert line.hearing("central").one_hop is line.hearing("one-hop")


def test_phases_spread_over_a_static_graph_and_by_number_in_a_changing_one() -> None:
    """Neighbours with the same phase would leave slots in which nobody nearby has fresh data."""
    phases = _networks(NetworkSpec("ring", 6), [0, 1]).phases(3)
    assert phases.reshape(2, 6)[0].tolist() == phases.reshape(2, 6)[1].tolist()
    ring = phases[:6]
    assert all(ring[i] != ring[(i + 1) % 6] for i in range(6))
    assert sorted(ring.tolist()) == [0, 0, 1, 1, 2, 2]
    assert _networks(NetworkSpec("random", 6, 0.5, dynamic=True), [0, 1]).phases(4).tolist() == [0, 1, 2, 3, 0, 1] * 2


def test_few_servers_are_spread_over_a_long_interval() -> None:
    """With phases 0, 1, 2, ... nobody would sample in the rest of the interval."""
    assert _networks(NetworkSpec("random", 6, 0.5, dynamic=True), [0]).phases(60).tolist() == [0, 10, 20, 30, 40, 50]


def test_phases_of_a_run_do_not_depend_on_the_batch() -> None:
    """Phases are public facts of a run's own network."""
    spec = NetworkSpec("random", 10, 0.3)
    np.testing.assert_array_equal(_networks(spec, [0, 1, 2]).phases(4)[20:], _networks(spec, [2]).phases(4))


def test_a_large_network_is_not_built_to_check_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A network of a million servers takes seconds to build; once is enough."""
    from dpcrowd.sim import topology

    built: list[str] = []
    real = topology.build
    monkeypatch.setattr(topology, "build", lambda name, *a, **k: (built.append(name), real(name, *a, **k))[1])
    NetworkSpec("ring", 5000)
    NetworkSpec("random", 100, 0.1)
    assert built == []
    NetworkSpec("ring", 50)
    assert built == ["ring"]
