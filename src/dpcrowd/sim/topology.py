"""The networks of a batch of runs, slot by slot: static, or drawn anew in each slot.

The graph of run b in slot t depends on (seed, b, t) alone. What a slot needs besides the graph (who hears whom, the
consensus step, the price and delay of a message) is derived here once and shared by all schemes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcrowd.arrays import Floats, Ints
from dpcrowd.errors import BadInput, DpcrowdError
from dpcrowd.filters import check_gain, default_gain
from dpcrowd.kernels.engine import Engine
from dpcrowd.network.costs import components, flood_cost, flood_reach, link_reach
from dpcrowd.network.graph import Graph, union
from dpcrowd.network.hearing import Hearing, Reach, central_hearing, flooded_hearing, one_hop_hearing
from dpcrowd.network.mixing import Mixing, changing_mixing, mixing_of
from dpcrowd.network.random_graph import LATENCY_MS, RandomGraph, draw_latency
from dpcrowd.network.topologies import TOPOLOGIES, build
from dpcrowd.plugins import Plugin, find_plugin
from dpcrowd.sampling.schedule import spread_phases
from dpcrowd.sim.data.seeds import Purpose, generator

__all__ = ["NetworkSpec", "Networks", "SlotLinks"]

# Slots are drawn this many at a time; a constant, because it is part of what the random numbers mean.
_SLOTS_AT_A_TIME = 16
_CHEAP = 2000
_REDRAWN = ("random", "small-world", "scale-free", "geometric")


@dataclass(frozen=True)
class NetworkSpec:
    """The network to draw.

    name     a topology of `dpcrowd.network.topologies`, "file" with its text, or that of a plug-in
    dynamic  whether it is drawn anew in each slot
    """

    name: str
    servers: int
    density: float = 0.1
    dynamic: bool = False
    text: str | None = None

    def __post_init__(self) -> None:
        if self.dynamic and self.name in TOPOLOGIES and self.name not in _REDRAWN:
            raise BadInput(f"graph '{self.name}' is fixed and cannot be dynamic; these can: {', '.join(_REDRAWN)}.")
        # Wrong parameters should be refused before any work begins, but a large network is not built twice for that.
        if self.name == "random":
            RandomGraph(self.servers, self.density)
        elif self.servers <= _CHEAP or self.name not in TOPOLOGIES:
            self.draw(np.random.default_rng(0))

    @property
    def _extra(self) -> dict[str, Any]:
        return {} if self.text is None else {"text": self.text}

    def draw(self, rng: np.random.Generator) -> Graph:
        """Draw one network."""
        plugin = None if self.name in TOPOLOGIES else find_plugin("topology", self.name)
        if plugin is not None:
            return _draw_plugin(plugin, self.servers, self.density, rng)
        return build(self.name, self.servers, rng, self.density, **self._extra)


def _draw_plugin(plugin: Plugin, servers: int, density: float, rng: np.random.Generator) -> Graph:
    """Draw a network of a plug-in, whose function returns a `dpcrowd.Graph`, or the two ends of each link, once.

    Links without a latency get one from U(50, 150) ms, as in every other topology.
    """
    value: Any = plugin.call(servers, density, rng)
    try:
        graph = value if isinstance(value, Graph) else Graph.from_edges(servers, *value)
    except (DpcrowdError, TypeError, ValueError) as error:
        raise plugin.broken(f"it returned neither a dpcrowd.Graph nor links ({error})") from error
    if graph.servers != servers or (graph.degree == 0).any():
        raise plugin.broken(f"its network must link all of {servers} servers; given {graph!r}")
    if graph.latency_ms is not None:
        return graph
    sources, targets, _ = graph.pairs()
    return Graph.from_edges(servers, sources, targets, draw_latency(rng, sources.size, LATENCY_MS))


class SlotLinks:
    """One slot's graph of a batch of runs and everything derived from it."""

    def __init__(
        self, graph: Graph, runs: int, beta: float | None, engine: Engine, growth: float = 1.0, *, same: bool = False
    ) -> None:
        self.graph = graph
        self.same = same
        self.runs = runs
        self._beta = beta
        self._engine = engine
        self._growth = growth

    @cached_property
    def gain(self) -> Floats | float:
        """beta: the configured one, or `default_gain` of each run's network."""
        if self._beta is not None:
            return self._beta
        largest = self.graph.degree.reshape(self.runs, -1).max(axis=1)
        gains = default_gain(largest, self._growth)
        return np.repeat(gains, self.graph.servers // self.runs)[:, None]

    def hearing(self, reach: Reach) -> Hearing:
        """Return who hears whom in this slot."""
        if reach == "one-hop":
            return self._one_hop
        if reach == "flooding":
            return self._flooded
        if reach == "relay":
            return self._relay
        return self._central if reach == "central" else Hearing()

    @cached_property
    def _relay(self) -> Hearing:
        return replace(self._one_hop, graph=self.graph, same_links=self.same)

    @cached_property
    def _one_hop(self) -> Hearing:
        return one_hop_hearing(self.graph, self.gain, self._engine, lambda: self._mixing)

    @cached_property
    def _mixing(self) -> Mixing:
        if not self.same:
            return changing_mixing(self.graph.degree, self.runs)
        sources, targets, _ = self.graph.pairs()
        return mixing_of(self.graph.servers, sources, targets)

    @cached_property
    def _flooded(self) -> Hearing:
        return flooded_hearing(components(self.graph))

    @cached_property
    def _central(self) -> Hearing:
        return central_hearing(self.runs, self.graph.servers // self.runs, self._one_hop)

    @cached_property
    def one_hop_cost(self) -> NDArray[np.integer]:
        """Packets of a message, by its sender."""
        return self.graph.degree

    @cached_property
    def one_hop_delay(self) -> Floats:
        return link_reach(self.graph)

    @cached_property
    def flood_cost(self) -> NDArray[np.integer]:
        return flood_cost(self.graph)

    @cached_property
    def flood_delay(self) -> Floats:
        return flood_reach(self.graph, self.runs)


class Networks:
    """The links of a batch of runs, for slots in ascending order."""

    def __init__(
        self,
        spec: NetworkSpec,
        seed: int,
        runs: Sequence[int],
        beta: float | None,
        engine: Engine,
        growth: float = 1.0,
    ) -> None:
        self.spec = spec
        self._growth = growth
        self._rngs = [generator(seed, run, Purpose.GRAPH) for run in runs]
        self._beta, self.engine = beta, engine
        self._chunk_number = -1
        self._chunk: list[Graph] = []
        self._static = None if spec.dynamic else self._links(union([spec.draw(rng) for rng in self._rngs]))
        if beta is not None:  # a network that changes can give a server every other one for a neighbour
            check_gain(beta, spec.servers - 1 if self._static is None else self._static.graph.max_degree, growth)

    def _links(self, graph: Graph) -> SlotLinks:
        return SlotLinks(graph, len(self._rngs), self._beta, self.engine, self._growth, same=not self.spec.dynamic)

    @property
    def static(self) -> SlotLinks | None:
        """The links of all slots if they never change, else None."""
        return self._static

    def phases(self, interval: int) -> Ints:
        """Return the public phases of staggered sampling: spread over the graph, or by number if it changes."""
        servers = self.spec.servers
        if self._static is None:
            numbers = np.arange(servers)
            phases = numbers % interval if interval <= servers else numbers * interval // servers
            return np.tile(phases, len(self._rngs))
        graph = self._static.graph
        parts = [graph.part(run * servers, servers) for run in range(len(self._rngs))]
        return np.concatenate([spread_phases(part.indptr, part.indices, interval) for part in parts])

    def at(self, slot: int) -> SlotLinks:
        """Return the links of a slot."""
        if self._static is not None:
            return self._static
        number, place = divmod(slot, _SLOTS_AT_A_TIME)
        while self._chunk_number < number:
            self._chunk = self._draw_chunk()
            self._chunk_number += 1
        return self._links(self._chunk[place])

    def _draw_chunk(self) -> list[Graph]:
        if self.spec.name == "random":
            return RandomGraph(self.spec.servers, self.spec.density).draw_unions(self._rngs, _SLOTS_AT_A_TIME)
        return [union([self.spec.draw(rng) for rng in self._rngs]) for _ in range(_SLOTS_AT_A_TIME)]
