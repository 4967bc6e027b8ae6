"""Records that join small regions: servers and simulation agree bit by bit, whatever arrives when, in every filter."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcrowd.filters import Course, ProcessModel
from dpcrowd.network.graph import Graph
from dpcrowd.network.hearing import one_hop_hearing
from dpcrowd.privacy import Guarantee
from dpcrowd.schemes.base import run_slot
from dpcrowd.schemes.records import RecordMessages
from dpcrowd.schemes.server import Server
from examples_support import examples
from relay_support import KnownNoise, Network
from schemes_support import bits

SLOTS, SERVERS, REGIONS = 24, 5, 6
WALK = ProcessModel.of(1.0, np.full(REGIONS, 1.0))
LEVEL = np.array([[1.0, 2.0, 0.5, 300.0, 1.0, 0.2]])
COURSE = ProcessModel.around(Course(LEVEL, LEVEL * 0.5), 0.5, region_correlation=1.0)


def make_network(model: ProcessModel = WALK, **more: Any) -> Network:
    options: dict[str, Any] = {"lag": 6, "observation": "binomial", "options": {"groups": "auto"}, **more}
    return Network(
        shares=np.full(SERVERS, 1.0 / SERVERS),
        model=model,
        guarantee=Guarantee.window(20, 1.0),
        samples=7,
        phases=np.arange(SERVERS, dtype=np.int64) * 3 % 20,
        **options,
    )


def counts_of(slot: int) -> Any:
    return np.random.default_rng([slot, 3]).poisson(LEVEL[0] / SERVERS, (SERVERS, REGIONS))


def simulate(network: Network, engine: Any) -> tuple[list[Any], int]:
    """The releases of a ring as a simulation computes them, and how many records join regions."""
    ring = np.arange(SERVERS)
    graph = Graph.from_edges(SERVERS, ring, (ring + 1) % SERVERS)
    hearing = replace(one_hop_hearing(graph, 0.1, engine), graph=graph)
    scheme, noise = network.scheme(), KnownNoise(SERVERS, REGIONS)
    state, releases, joined = scheme.start(network.setting()), [], 0
    for slot in range(SLOTS):
        releases.append(run_slot(scheme, state, slot, network.shares[:, None], counts_of(slot), noise, hearing))
        joined += state.table(slot).groups is not None
    return releases, joined


def run_servers(network: Network) -> list[list[Any]]:
    """The same ring as single servers, of which one per slot is saved and restored with its slot open."""
    servers, releases = [network.server(number) for number in range(SERVERS)], []
    for slot in range(SLOTS):
        sent = [server.observe(slot, counts_of(slot)[number]) for number, server in enumerate(servers)]
        number = slot % SERVERS
        saved, fresh = servers[number].save(), network.server(number)
        fresh.restore(saved)
        assert fresh.save() == saved
        servers[number] = fresh
        near = [((n - 1) % SERVERS, (n + 1) % SERVERS) for n in range(SERVERS)]
        heard = [{n: message for n in pair if (message := sent[n]) is not None} for pair in near]
        releases.append([server.hear(messages) for server, messages in zip(servers, heard, strict=True)])
    assert not any(server.mailbox.refused.any() for server in servers)
    return releases


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"guard": False, "observation": "paper"},
        pytest.param({"learn": True}, marks=pytest.mark.slow),
        pytest.param({"turnover": 0.1}, marks=pytest.mark.slow),
        {"turnover": 0.1, "learn": True, "model": COURSE},
        pytest.param({"model": COURSE}, marks=pytest.mark.slow),
        pytest.param({"model": COURSE, "form": "matrix"}, marks=pytest.mark.slow),
        {"options": {"groups": "auto", "reach": 1}},
    ],
    ids=lambda more: ",".join(more) or "walk",
)
def test_servers_that_join_regions_release_the_bits_of_the_simulation(more: dict[str, Any]) -> None:
    """If they differed, a simulated figure with groups would say nothing about a network that runs."""
    network = make_network(**more)
    servers = run_servers(network)
    for engine in ("numpy", "numba"):
        releases, joined = simulate(network, engine)
        assert joined > 3, "no record joins regions: the test shows nothing"
        for single, release in zip(servers, releases, strict=True):
            for number, one in enumerate(single):
                assert bits(one.estimate) == bits(release.estimate[number]), (engine, release.slot, number)
                assert bits(one.variance) == bits(release.variance[number]), (engine, release.slot, number)


def message_of(records: dict[tuple[int, int], tuple[Any, Any]], keys: list[tuple[int, int]], nano: int) -> Any:
    return RecordMessages.of(
        np.array([origin for origin, _ in keys]),
        np.array([slot for _, slot in keys]),
        np.full(len(keys), nano),
        np.ones(len(keys), dtype=np.int64),
        np.array([records[key][0] for key in keys]),
        np.array([records[key][1] for key in keys]),
    )


def draw_groups(rng: np.random.Generator) -> Any:
    """Random groups, named by their lowest regions."""
    groups = np.arange(REGIONS)
    label = rng.integers(0, 4, REGIONS)
    for one in range(4):
        members = np.flatnonzero(label == one)
        groups[members] = members.min(initial=REGIONS)
    return groups if rng.random() < 0.8 else np.arange(REGIONS)


@pytest.mark.slow
@settings(max_examples=examples(30))
@given(
    st.integers(0, 10**6),
    st.sampled_from([{}, {"form": "matrix", "model": COURSE}, {"learn": True}, {"turnover": 0.2}, {"model": COURSE}]),
)
def test_the_order_of_arrival_makes_no_difference(seed: int, more: dict[str, Any]) -> None:
    """Groups that were divided by what a server knew when a record came would let servers disagree for ever."""
    network, rng = make_network(**more), np.random.default_rng(seed)
    records = {}
    for slot in range(10):
        for origin in range(1, SERVERS):
            if network.due(slot, origin):
                groups = draw_groups(rng)
                values = np.rint(rng.normal(LEVEL[0] / SERVERS, 6.0))
                records[origin, slot] = np.where(groups == np.arange(REGIONS), values, 0.0), groups
    released = []
    for _ in range(2):
        server: Server = network.server(0)
        arrivals: dict[int, list[tuple[int, int]]] = {}
        for key in records:
            arrivals.setdefault(key[1] + int(rng.integers(0, network.lag)), []).append(key)
        for slot in range(16):  # the last records are final
            server.observe(slot, None)
            keys = [*arrivals.get(slot, [])]
            rng.shuffle(keys)
            release = server.hear({1: message_of(records, keys, network.price)} if keys else {})
        released.append((bits(release.estimate), bits(release.variance), server.innovations.shape))
        assert not server.mailbox.refused.any()
    assert released[0] == released[1]
