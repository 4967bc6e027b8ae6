"""A small world in which schemes are checked: servers, shares, counts, networks, and noise that records its calls.

A *trial* is one scheme under one setting in one world. Everything is seeded: a trial that fails, fails again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcrowd.arrays import Bools, Floats, Ints
from dpcrowd.filters import default_gain
from dpcrowd.network.costs import components
from dpcrowd.network.graph import Graph, union
from dpcrowd.network.hearing import Hearing, central_hearing, flooded_hearing, one_hop_hearing
from dpcrowd.network.mixing import Mixing, mixing_of
from dpcrowd.network.random_graph import RandomGraph
from dpcrowd.privacy import Noise, SeededNoise
from dpcrowd.schemes.base import Release, Scheme, Setting, run_slot
from dpcrowd.schemes.tuning import Tuning

__all__ = [
    "SAMPLES",
    "SERVERS",
    "SLOTS",
    "TUNING",
    "WINDOW",
    "Bits",
    "BlindNoise",
    "Read",
    "WatchedNoise",
    "World",
    "bits",
    "charges_of",
    "fingerprint",
    "hearing_of",
    "hearings",
    "make_world",
    "play",
    "same",
]

SERVERS, SLOTS, WINDOW = 6, 28, 8

SAMPLES = 3
"""Per window or horizon, for schemes that leave it to the setting."""

# Chosen so that in such small, short worlds intervals grow and shrink and regions are due in slots of their own.
TUNING = Tuning(xi=0.2, sample_fraction=0.5, rescue_theta=2.0, epsilon_max=0.5, phi=0.5, tau2=-0.5)


@dataclass(frozen=True)
class World:
    """counts (slots, servers, regions), shares (servers, 1), and one graph per slot or one for all."""

    counts: Ints
    shares: Floats
    graphs: tuple[Graph, ...]
    seed: int = 0

    @property
    def slots(self) -> int:
        return len(self.counts)

    @property
    def servers(self) -> int:
        return int(self.counts.shape[1])

    @property
    def regions(self) -> int:
        return int(self.counts.shape[2])

    def graph(self, slot: int) -> Graph:
        return self.graphs[slot % len(self.graphs)]

    def noise(self, only: int | None = None, runs: int = 1) -> SeededNoise:
        """Return the noise of the world, the same in each of the runs."""
        return SeededNoise([self.noise_seed] * runs, self.servers, self.regions, only)

    @property
    def noise_seed(self) -> np.random.SeedSequence:
        """The seed of the noise of the world."""
        return np.random.SeedSequence(self.seed, spawn_key=(7,))

    @property
    def gain(self) -> float:
        """One consensus step that is safe for all graphs of the world."""
        return float(default_gain(max(graph.max_degree for graph in self.graphs)))


@cache
def make_world(
    seed: int = 0,
    servers: int = SERVERS,
    regions: int = 1,
    slots: int = SLOTS,
    *,
    changing: bool = False,
    size: float = 400.0,
) -> World:
    """Return a world of drifting counts, one large region and small ones to be grouped, without isolated servers."""
    rng = np.random.default_rng([seed, servers, regions, slots])
    sizes = np.concatenate([[size], np.linspace(20.0, 8.0, regions - 1)])
    truth = np.abs(sizes * np.exp(np.cumsum(rng.normal(0.0, 0.05, (slots, regions)), axis=0)))
    shares = rng.uniform(0.2, 1.0, (servers, 1))
    counts = np.maximum(np.rint(shares * truth[:, None, :] + rng.normal(0, 2, (slots, servers, regions))), 0)
    draw = RandomGraph(servers, min(1.0, 2.0 / (servers - 1))).draw
    graphs = tuple(draw(rng) for _ in range(slots if changing else 1))
    return World(counts.astype(np.int64), shares, graphs, seed)


def hearing_of(scheme: Scheme, graphs: Sequence[Graph], gain: float, *, fixed: bool = True) -> Hearing:
    """Return who hears whom when each of the graphs is one run of a batch; `fixed`: whether links stay what they are.

    Of links that change, nobody knows what they do to errors: a server of such a world is told nothing, either.
    """
    graph = union(list(graphs))
    if scheme.reach == "one-hop":
        return one_hop_hearing(graph, gain, mixing=(lambda: links_mixing(graph)) if fixed else None)
    if scheme.reach == "flooding":
        return flooded_hearing(components(graph))
    if scheme.reach == "central":
        return central_hearing(len(graphs), graphs[0].servers, one_hop_hearing(graph, gain))
    if scheme.reach == "relay":
        return replace(one_hop_hearing(graph, gain), graph=graph)
    return Hearing()


def hearings(scheme: Scheme, world: World) -> list[Hearing]:
    """Return who hears whom, for each graph of a world."""
    return [hearing_of(scheme, [graph], world.gain, fixed=len(world.graphs) == 1) for graph in world.graphs]


def links_mixing(graph: Graph) -> Mixing:
    """Return what the links of a graph do to errors."""
    sources, targets, _ = graph.pairs()
    return mixing_of(graph.servers, sources, targets)


def play(
    scheme: Scheme,
    setting: Setting,
    world: World,
    *,
    noise: Noise | None = None,
    counts: Ints | None = None,
    step: Callable[..., Release] = run_slot,
) -> list[Release]:
    """Run every slot of a world, all servers in one batch; `step` drives one slot.

    Every run has its own copy of the shares: what a scheme writes into them must not reach another run, or scheme.
    """
    state = scheme.start(setting)
    noise = world.noise() if noise is None else noise
    counts = world.counts if counts is None else counts
    shares, releases = world.shares.copy(), []
    audiences = hearings(scheme, world)
    for slot in range(world.slots):
        hearing = audiences[slot % len(audiences)]
        releases.append(step(scheme, state, slot, shares, counts[slot].copy(), noise, hearing))
    return releases


def charges_of(releases: Sequence[Release], regions: int) -> Ints:
    """Return the nano-epsilon that each release says was paid, (slots, servers, regions)."""
    return np.stack([np.broadcast_to(r.charge, (len(r.charge), regions)) for r in releases])


Bits = tuple[tuple[int, ...], bytes]
"""Shape and content of an array."""


def bits(values: NDArray[Any]) -> Bits:
    """Return values with every bit, signs of zeros and NaNs included, and their shape."""
    return values.shape, values.tobytes()


def fingerprint(release: Release) -> tuple[Bits, ...]:
    """Return all values of a release, to the last bit."""
    parts = (release.estimate, release.variance, release.sampled, release.charge, release.speaks)
    return tuple(bits(part) for part in parts)


def same(first: Sequence[Release], second: Sequence[Release]) -> bool:
    """Whether two runs released the same bits."""
    return [fingerprint(r) for r in first] == [fingerprint(r) for r in second]


@dataclass(frozen=True)
class Read:
    """One call of the noise, with arrays of one shape: what was to be made noisy, at which price."""

    slot: int
    number: int
    counts: Ints
    charge: Ints
    sensitivity: Ints
    where: Bools

    @property
    def blank(self) -> bool:
        """Whether nothing but zeros was made noisy, as for the threshold of a test."""
        return not self.counts.any()


class WatchedNoise:
    """Noise that records its calls."""

    private = False

    def __init__(self, noise: SeededNoise) -> None:
        self._noise = noise
        self.reads: list[Read] = []

    def noisy(self, slot: int, counts: Any, charge: Any, sensitivity: Any, where: Any, read: int = 0) -> Any:
        parts = (np.full(np.shape(where), part) for part in (counts, charge, sensitivity, where))
        self.reads.append(Read(slot, read, *parts))
        return self._noise.noisy(slot, self.input_of(counts), charge, sensitivity, where, read)

    def input_of(self, counts: Any) -> Any:
        """Return the counts to which noise is added."""
        return counts


class BlindNoise(WatchedNoise):
    """Noise that ignores its counts: whatever depends on raw counts under it has bypassed the noise."""

    def input_of(self, counts: Any) -> Any:
        return np.full(np.shape(counts), 50)
