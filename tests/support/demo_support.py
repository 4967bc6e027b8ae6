"""A demo in the simulator: the network of its own files, the check-ins of its own crowd, and noise with a seed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from dpcrowd.demo.crowd import Source
from dpcrowd.network.graph import Graph
from dpcrowd.network.hearing import one_hop_hearing
from dpcrowd.node.config import NetworkConfig
from dpcrowd.privacy import SeededNoise
from dpcrowd.schemes.base import Setting, half_width, run_slot
from dpcrowd.schemes.relay import Relay

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class SimulatedDemo:
    """Totals of all slots: the truth (slots, 1), estimates and half-widths of their intervals (slots, servers)."""

    truth: Floats
    estimate: Floats
    half: Floats

    @property
    def errors(self) -> Floats:
        """Relative errors, (slots, servers)."""
        return np.abs(self.estimate - self.truth) / self.truth

    @property
    def covered(self) -> NDArray[np.bool_]:
        return np.abs(self.estimate - self.truth) <= self.half


def simulate_demo(
    network: NetworkConfig, source: Source, server_of: NDArray[np.int64], slots: int, seed: int
) -> SimulatedDemo:
    """Run a relay network in which every record arrives in its own slot."""
    servers, regions = len(network.servers), len(source.regions)
    assert network.relay is not None
    relay = Relay(network.relay.samples, hops_per_slot="all", lag=network.relay.lag)
    setting = Setting(
        servers,
        network.model(),
        network.guarantee(),
        observation=network.method.observation,
        phases=np.array(network.offsets),
    )
    links = np.array([[link.low, link.high] for link in network.timed_links()]).T
    graph = Graph.from_edges(servers, *links)
    hearing = replace(one_hop_hearing(graph, 0.1), graph=graph, same_links=True)
    noise = SeededNoise([np.random.SeedSequence([seed, 9])], servers, regions)
    state, shares = relay.start(setting), network.shares[:, None]
    truth, estimate, half = np.empty((slots, 1)), np.empty((slots, servers)), np.empty((slots, servers))
    for slot, present in enumerate(islice(source.slots(), slots)):
        counts = np.zeros((servers, regions), dtype=np.int64)
        np.add.at(counts, (server_of[present.people], present.regions), 1)
        noise.prepare(slot)
        release = run_slot(relay, state, slot, shares, counts, noise, hearing)
        truth[slot], estimate[slot] = present.total, release.estimate.sum(axis=1)
        half[slot] = np.sqrt(np.square(half_width(release.variance)).sum(axis=1))
    return SimulatedDemo(truth, estimate, half)
