"""Packets, bytes and latency on networks small enough to count by hand."""

from __future__ import annotations

import numpy as np
import pytest

from dpcrowd.errors import BadInput
from dpcrowd.network import costs
from dpcrowd.network.graph import Graph, union

# Run 0: path 0 - 1 - 2 (10, 20 ms) and, apart from it, 3 - 4 (40 ms). Run 1: a star around 0 (5, 6, 7, 8 ms).
PATHS = Graph.from_edges(5, [0, 1, 3], [1, 2, 4], [10.0, 20.0, 40.0])
STAR = Graph.from_edges(5, [0, 0, 0, 0], [1, 2, 3, 4], [5.0, 6.0, 7.0, 8.0])
BOTH = union([PATHS, STAR])


def speaking(*servers: int) -> np.ndarray:
    speaks = np.zeros(10, dtype=bool)
    speaks[list(servers)] = True
    return speaks


def test_one_hop_packets_are_the_links_of_the_speakers() -> None:
    """Server 1 has two links, server 3 one; the star's centre has four."""
    assert costs.packets(BOTH.degree, speaking(1, 3, 5), 2).tolist() == [3, 4]
    assert costs.packets(BOTH.degree, speaking(), 2).tolist() == [0, 0]


def test_flooding_costs_every_link_of_the_component_both_ways() -> None:
    """A message of 0 crosses 2 links twice; one of 3 crosses its link twice; every message in the star 8."""
    assert costs.flood_cost(BOTH).tolist() == [4, 4, 4, 2, 2, 8, 8, 8, 8, 8]
    assert costs.packets(costs.flood_cost(BOTH), speaking(0, 3, 4, 7, 8), 2).tolist() == [8, 16]


def test_reach_by_one_hop_and_by_flooding() -> None:
    """One hop ends at the slowest own link; flooding at the farthest server of the component."""
    assert costs.link_reach(BOTH).tolist() == [10, 20, 20, 40, 40, 8, 5, 6, 7, 8]
    assert costs.flood_reach(BOTH, 2).tolist() == [30, 20, 30, 40, 40, 8, 13, 14, 15, 15]


def test_latency_is_that_of_the_last_arrival_and_undefined_in_silence() -> None:
    """A silent slot has no latency; counting it as 0 would make quiet schemes look fast."""
    reach = costs.flood_reach(BOTH, 2)
    assert costs.last_arrival(reach, speaking(0, 1, 6, 7), 2).tolist() == [30, 14]
    latency = costs.last_arrival(reach, speaking(3), 2)
    assert latency[0] == 40
    assert np.isnan(latency[1])


def test_servers_without_links_send_nothing() -> None:
    """Schemes that never talk cost no packet and have no latency."""
    alone = Graph.alone(6)
    everybody = np.ones(6, dtype=bool)
    assert costs.packets(alone.degree, everybody, 2).tolist() == [0, 0]
    assert costs.packets(costs.flood_cost(alone), everybody, 2).tolist() == [0, 0]
    assert costs.link_reach(alone).tolist() == [0] * 6
    assert costs.flood_reach(alone, 2).tolist() == [0] * 6
    assert np.isnan(costs.last_arrival(costs.link_reach(alone), everybody, 2)).all()
    mixed = union([Graph.alone(2), PATHS, Graph.alone(1)])
    assert costs.link_reach(mixed).tolist() == [0, 0, 10, 20, 20, 40, 40, 0]


def test_bytes_of_messages() -> None:
    """A header per packet, a signed record or several, and their values: each counts once."""
    assert costs.message_bytes(816) == 140 + 75 + 816
    packets, records, values = np.array([0, 2]), np.array([0, 5]), np.array([0.0, 11.0])
    assert costs.relayed_bytes(packets, records, values).tolist() == [0, 2 * 140 + 5 * 90 + 11]


def test_bytes_of_integers() -> None:
    """Seven bits per byte, the sign in the lowest one: written out with a loop."""

    def encoded(value: int) -> bytes:
        rest, written = (value << 1) ^ (value >> 63), bytearray()
        while rest >= 128:
            written.append(rest & 127 | 128)
            rest >>= 7
        return bytes([*written, rest])

    values = [0, 1, -1, 63, 64, -64, -65, 8191, 8192, -8192, -8193, 10**6, -(10**9), 2**45, -(2**45)]
    assert costs.varint_bytes(np.array(values, dtype=np.float64)).tolist() == [len(encoded(value)) for value in values]


def test_what_cannot_be_counted_is_refused() -> None:
    """Wrong runs would mix networks; missing delays would read as instant links."""
    with pytest.raises(BadInput, match="cannot be 3 runs"):
        costs.packets(BOTH.degree, speaking(1), 3)
    with pytest.raises(BadInput, match="joins two runs"):
        costs.flood_reach(STAR, 5)
    bare = Graph.from_edges(2, [0], [1])
    for reach in (costs.link_reach, lambda graph: costs.flood_reach(graph, 1)):
        with pytest.raises(BadInput, match="no link latencies"):
            reach(bare)
