"""A live network's staggered phases against the simulator's, which a comparison of both rests on."""

from __future__ import annotations

import numpy as np
import pytest

from dpcrowd.network.graph import Graph
from dpcrowd.sampling.schedule import spread_phases
from node_support_config import network_of, tables


@pytest.mark.parametrize("interval", [2, 3, 7])
def test_phases_are_those_of_the_graph(interval: int) -> None:
    """Servers that compute other phases than the simulator would release other numbers."""
    plain = tables(6)
    plain["link"] += [{"between": ["f", "a"]}, {"between": ["e", "b"]}]
    plain["scheme"] = {"name": "dpcrowd-w", "process_var": 1, "sampling": "staggered", "interval": interval}
    network = network_of(plain)
    ends = np.array([[0, 1, 2, 3, 4, 5, 4], [1, 2, 3, 4, 5, 0, 1]])
    graph = Graph.from_edges(6, *ends)
    expected = spread_phases(graph.indptr, graph.indices, interval)
    phases = [network.setting(server.name).phases for server in network.servers]
    assert [phase.tolist() for phase in phases if phase is not None] == [[phase] for phase in expected.tolist()]


@pytest.mark.parametrize("times", [{"until_slot": 50}, {"from_slot": 50}])
def test_phases_go_by_number_where_links_change(times: dict[str, int]) -> None:
    """No graph holds for the whole revision, and everybody has to compute the same phases all the same."""
    plain = tables(5)
    plain["link"] += [{"between": ["a", "c"]}, {"between": ["a", "d"], **times}]
    plain["scheme"] = {"name": "dpcrowd-w", "process_var": 1, "sampling": "staggered", "interval": 3}
    network = network_of(plain)
    phases = [network.setting(server.name).phases for server in network.servers]
    assert [int(phase[0]) for phase in phases if phase is not None] == [0, 1, 2, 0, 1]
    del plain["link"][-1]["from_slot" if "from_slot" in times else "until_slot"]
    fixed = [network_of(plain).setting(server.name).phases for server in network.servers]
    assert [int(phase[0]) for phase in fixed if phase is not None] != [0, 1, 2, 0, 1]  # or this could not fail
