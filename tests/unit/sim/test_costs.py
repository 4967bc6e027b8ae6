"""Frequency, packets, bytes and latency against loops over who spoke to whom."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pytest

import dpcrowd
from dpcrowd.network.graph import Graph
from dpcrowd.schemes.base import Scheme
from dpcrowd.sim.recorder import RunRecords
from dpcrowd.sim.simulate import configure, simulate
from dpcrowd.sim.topology import Networks
from sim_support import TINY, spy_on_engine

SERVERS, SLOTS, RUNS, BURN_IN = TINY["servers"], TINY["slots"], TINY["runs"], TINY["burn_in"]
HEADER = 140 + 75  # of a packet, and of the one record in it


def _nx(graph: Graph) -> nx.Graph:
    network = nx.Graph()
    network.add_nodes_from(range(graph.servers))
    network.add_weighted_edges_from(zip(*(part.tolist() for part in graph.pairs()), strict=True))
    return network


def _observed(
    monkeypatch: pytest.MonkeyPatch, scheme: Scheme, **more: Any
) -> tuple[RunRecords, list[list[nx.Graph]], np.ndarray]:
    """The records, the networks [slot][run], and who spoke (slots, runs, servers)."""
    spy = spy_on_engine(monkeypatch)
    settings = {**TINY, **more}
    record = simulate(scheme, jobs=1, **settings)[scheme.name]
    networks = Networks(configure(scheme, **settings).network, 0, range(RUNS), None, "numpy")
    graphs = []
    for slot in range(SLOTS):
        union = networks.at(slot).graph
        graphs.append([_nx(union.part(run * SERVERS, SERVERS)) for run in range(RUNS)])
    spoke = np.array([release.speaks for release in spy.of(scheme)]).reshape(SLOTS, RUNS, SERVERS)
    return record, graphs, spoke


def _check(record: RunRecords, packets: np.ndarray, latest: np.ndarray, values: int) -> None:
    """packets, latest: (slots, runs), with 0 as the latest arrival where nobody speaks."""
    for run in range(RUNS):
        mean = packets[BURN_IN:, run].mean()
        assert record.packets_per_slot[run] == pytest.approx(mean, rel=1e-12)
        assert record.bytes_per_slot[run] == pytest.approx(mean * (HEADER + values), rel=1e-12)
        arrivals = latest[BURN_IN:, run]
        assert record.latency_ms[run] == pytest.approx(arrivals[arrivals > 0].mean(), rel=1e-6)


@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.parametrize("scheme", [dpcrowd.DPCrowd(), dpcrowd.NonPrivate()], ids=["dpcrowd", "non-private"])
def test_one_hop_costs_a_packet_a_link_of_each_speaker(
    monkeypatch: pytest.MonkeyPatch, scheme: Scheme, dynamic: bool
) -> None:
    """The paper's main claim is about these packets: counting silent servers, or links once, would be wrong."""
    record, graphs, spoke = _observed(monkeypatch, scheme, dynamic=dynamic)
    packets, latest = np.zeros((SLOTS, RUNS)), np.zeros((SLOTS, RUNS))
    for slot in range(SLOTS):
        for run, graph in enumerate(graphs[slot]):
            for speaker in np.flatnonzero(spoke[slot, run]):
                for _, _, delay in graph.edges(int(speaker), data="weight"):
                    packets[slot, run] += 1
                    latest[slot, run] = max(latest[slot, run], delay)
    assert spoke[BURN_IN:].any()
    _check(record, packets, latest, values=25)


@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.parametrize("density", [0.2, 0.5])
def test_flooding_costs_every_link_of_the_component_for_each_message(
    monkeypatch: pytest.MonkeyPatch, density: float, dynamic: bool
) -> None:
    """Every server forwards a new message once on all its links; at density 0.2 the network is in pieces."""
    record, graphs, spoke = _observed(monkeypatch, dpcrowd.DFAST(), dynamic=dynamic, density=density)
    packets, latest = np.zeros((SLOTS, RUNS)), np.zeros((SLOTS, RUNS))
    for slot in range(SLOTS):
        for run, graph in enumerate(graphs[slot]):
            for speaker in np.flatnonzero(spoke[slot, run]):
                away = nx.single_source_dijkstra_path_length(graph, int(speaker))
                packets[slot, run] += sum(graph.degree(server) for server in away)
                latest[slot, run] = max(latest[slot, run], *away.values())
    assert spoke.all(), "a server that floods does so in every slot"
    _check(record, packets, latest, values=16)


def test_a_central_filter_hears_one_packet_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit of comparison: a message to the centre is one packet, and how far away the centre is, is not known."""
    record, _, spoke = _observed(monkeypatch, dpcrowd.Central())
    np.testing.assert_allclose(record.packets_per_slot, spoke[BURN_IN:].sum(axis=2).mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(record.bytes_per_slot, record.packets_per_slot * (HEADER + 16), rtol=1e-12)
    assert np.isnan(record.latency_ms).all()


@pytest.mark.slow
@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.parametrize(
    "options", [{"reach": 1}, {"reach": 2}, {}, {"hops_per_slot": 3}, {"reach": 2, "hops_per_slot": "all"}], ids=str
)
def test_relay_pays_for_every_record_on_every_link(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], dynamic: bool
) -> None:
    """Records that are forwarded cost bytes on every hop; what a server has just been sent is not sent back."""
    scheme = dpcrowd.Relay(samples=12, **options)
    record, graphs, spoke = _observed(monkeypatch, scheme, dynamic=dynamic, density=0.4)
    reach = options.get("reach", 99)
    rounds = {"all": 99}.get(options.get("hops_per_slot", 1), options.get("hops_per_slot", 1))
    for run in range(RUNS):
        packets, records, latest = np.zeros(SLOTS), np.zeros(SLOTS), np.zeros(SLOTS)
        has: list[set[tuple[int, int]]] = [set() for _ in range(SERVERS)]
        fresh: list[dict[tuple[int, int], int]] = [{} for _ in range(SERVERS)]  # hops travelled, by record
        before: list[set[tuple[int, int]]] = [set() for _ in range(SERVERS)]
        for slot in range(SLOTS):
            if dynamic:
                before = [set() for _ in range(SERVERS)]
            for server in np.flatnonzero(spoke[slot, run]).tolist():
                has[server].add((server, slot))
                fresh[server][server, slot] = 0
            for _ in range(rounds):
                fresh = [{key: hops for key, hops in mine.items() if hops < reach} for mine in fresh]
                slowest, learned = 0.0, [{} for _ in range(SERVERS)]  # type: ignore[var-annotated]
                earlier = packets[slot]
                for a, b, delay in graphs[slot][run].edges(data="weight"):
                    for sender, receiver in ((a, b), (b, a)):
                        sent = fresh[sender].keys() - before[receiver]
                        packets[slot] += bool(sent)
                        records[slot] += len(sent)
                        learned[receiver].update({key: fresh[sender][key] + 1 for key in sent - has[receiver]})
                        if fresh[sender]:
                            slowest = max(slowest, delay)
                latest[slot] += slowest if packets[slot] > earlier else 0.0  # a round without packets takes no time
                before = [set(mine) for mine in fresh]
                fresh = learned
                for server in range(SERVERS):
                    has[server] |= learned[server].keys()
        assert record.packets_per_slot[run] == pytest.approx(packets[BURN_IN:].mean(), rel=1e-12)
        besides = record.bytes_per_slot[run] - (140 * packets + 90 * records)[BURN_IN:].mean()
        assert 1.5 < besides / records[BURN_IN:].mean() < 3, "a noisy count of thousands takes two or three bytes"
        assert record.latency_ms[run] == pytest.approx(latest[BURN_IN:][latest[BURN_IN:] > 0].mean(), rel=1e-6)


@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.parametrize("scheme", [dpcrowd.DPCrowd(), dpcrowd.Relay(samples=12)], ids=["dpcrowd", "relay"])
def test_heartbeats_are_the_messages_of_servers_without_a_sample(
    monkeypatch: pytest.MonkeyPatch, scheme: Scheme, dynamic: bool
) -> None:
    """A live server sends every neighbour one message per slot: who counts packets alone orders too small a line."""
    record, graphs, spoke = _observed(monkeypatch, scheme, dynamic=dynamic)
    for run in range(RUNS):
        silent = [
            sum(graphs[slot][run].degree(server) for server in range(SERVERS) if not spoke[slot, run, server])
            for slot in range(BURN_IN, SLOTS)
        ]
        assert record.heartbeats_per_slot[run] == pytest.approx(np.mean(silent), rel=1e-12)
    assert (record.heartbeats_per_slot > 0).all()


def test_schemes_that_do_not_run_live_have_no_heartbeats() -> None:
    """There is no live network of them whose messages could be counted; 0 would be a claim."""
    result = simulate("dfast,central,fast,non-private", **TINY)
    assert all(np.isnan(record.heartbeats_per_slot).all() for record in result.records.values())
    assert all(row["heartbeats_per_slot"] is None for row in result.summary())


def test_a_server_alone_costs_nothing_and_has_no_latency(monkeypatch: pytest.MonkeyPatch) -> None:
    """No message is no packet, no byte; a latency of 0 ms would be a message that arrives at once."""
    for scheme in (dpcrowd.FAST(), dpcrowd.Uniform()):
        window = {"window": 10} if scheme.name == "uniform" else {}
        record, _, _spoke = _observed(monkeypatch, scheme, **window)
        assert (record.packets_per_slot == 0).all()
        assert (record.bytes_per_slot == 0).all()
        assert np.isnan(record.latency_ms).all()


def test_bytes_grow_with_the_regions() -> None:
    """A message holds a number for each region and vector."""
    record = simulate("dpcrowd", "multi-linear", **TINY)["dpcrowd"]
    np.testing.assert_allclose(record.bytes_per_slot, record.packets_per_slot * (HEADER + 25 * 6), rtol=1e-12)


@pytest.mark.parametrize("interval", [1, 5])
@pytest.mark.parametrize("sampling", [None, "lockstep", "staggered"])
def test_the_frequency_of_an_interval_is_one_over_it(interval: int, sampling: str | None) -> None:
    """The paper prints I/T; a schedule that reads counts more often than 1/I would spend more than it says."""
    result = simulate("dpcrowd,fast,central", interval=interval, sampling=sampling, **TINY)
    for record in result.records.values():
        np.testing.assert_allclose(record.frequency, 1 / interval, rtol=1e-12)


@pytest.mark.parametrize("accounting", ["sound", "per-region"])
def test_frequency_counts_slots_in_which_any_region_is_read(monkeypatch: pytest.MonkeyPatch, accounting: str) -> None:
    """With many regions a server that reads one of them has sampled; from the burn-in on, over all servers."""
    spy = spy_on_engine(monkeypatch)
    scheme = dpcrowd.FAST()
    record = simulate(scheme, "multi-linear", jobs=1, accounting=accounting, **TINY)["fast"]
    sampled = [release.sampled.any(axis=1).reshape(RUNS, SERVERS) for release in spy.of(scheme)]
    np.testing.assert_allclose(record.frequency, np.mean(sampled[BURN_IN:], axis=(0, 2)), rtol=1e-12)
    assert 0 < record.frequency.min() < 1


def test_the_burn_in_is_left_out_of_every_metric() -> None:
    """Figures "from slot 20 on" that hold the start would make every scheme look worse than it is."""
    whole, late = (simulate("dpcrowd,dfast", **{**TINY, "burn_in": burn_in}) for burn_in in (0, 12))
    for name in whole.records:
        a, b = whole[name], late[name]
        np.testing.assert_array_equal(a.are_by_slot, b.are_by_slot)
        for metric in ("are", "ace"):
            by_slot = getattr(a, f"{metric}_by_slot")
            np.testing.assert_allclose(getattr(a, metric), by_slot.mean(axis=1), rtol=1e-12)
            np.testing.assert_allclose(getattr(b, metric), by_slot[:, 12:].mean(axis=1), rtol=1e-12)
        assert a.paid == b.paid, "what the first slots cost is paid all the same"
        assert not np.isclose(a.frequency, b.frequency).any()


def test_flooding_in_a_long_changing_network_is_timed_in_some_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    """All shortest paths of every slot would take longer than the simulation; the slots timed are spread evenly."""
    from dpcrowd.sim import recorder

    monkeypatch.setattr(recorder, "_LATENCY_SLOTS", 5)
    record, graphs, _ = _observed(monkeypatch, dpcrowd.DFAST())
    for run in range(RUNS):
        timed = [
            max(max(lengths.values()) for _, lengths in nx.all_pairs_dijkstra_path_length(graphs[slot][run]))
            for slot in range(BURN_IN, SLOTS, 5)
        ]
        assert record.latency_ms[run] == pytest.approx(np.mean(timed), rel=1e-6)
