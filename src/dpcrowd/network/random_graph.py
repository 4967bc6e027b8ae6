"""The paper's network: a random graph of density rho, drawn anew each slot or once, nobody isolated.

Links of G(n, p) are found by skipping: the gaps between links in the list of all pairs are geometric, so the work
grows with the links and not with the pairs. All slots of all runs of a call are drawn and assembled in a few array
operations, because a graph of 50 servers is too small to be worth a function call of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from dpcrowd.arrays import Floats32, Ints, Ints32
from dpcrowd.errors import BadInput
from dpcrowd.network.checks import check_bounds, check_servers, check_size
from dpcrowd.network.density import link_probability
from dpcrowd.network.graph import Graph
from dpcrowd.network.repair import join_isolated, repair_draws

__all__ = ["LATENCY_MS", "RandomGraph", "decode_pairs", "draw_latency"]


LATENCY_MS = (50.0, 150.0)
"""Link delays are uniform around 100 ms, as in the paper."""

TABLE_SERVERS = 512


@dataclass(frozen=True)
class RandomGraph:
    """Random graphs whose expected density is `density`; every server has at least one neighbour.

    latency  bounds in ms between which each link's delay is drawn, or None for graphs without delays
    """

    servers: int
    density: float
    latency: tuple[float, float] | None = LATENCY_MS

    def __post_init__(self) -> None:
        check_servers(self.servers)
        check_bounds(self.latency)
        link_probability(self.servers, self.density)

    def draw(self, rng: np.random.Generator) -> Graph:
        """Draw one graph."""
        return self.draw_unions([rng], 1)[0]

    def draw_unions(self, rngs: Sequence[np.random.Generator], slots: int) -> list[Graph]:
        """Draw, for each of `slots` slots, the union over the runs of fresh graphs; run b draws from rngs[b] only.

        The graphs of a run do not depend on the other runs of the batch. They do depend on how the slots are cut into
        calls, because a call reads each generator for all its slots together: use the same `slots` sequence to get
        the same graphs. With sixteen slots or more at a time the cost of the call itself hardly counts.
        """
        n, runs = self.servers, len(rngs)
        if runs < 1 or slots < 1:
            raise BadInput(f"graphs of {runs} runs and {slots} slots were asked for; allowed: at least 1 of each.")
        check_size(slots * runs * n, math.ceil(slots * runs * n * (n - 1) // 2 * self.density))
        by_run = [self._links(rng, slots, run, runs) for run, rng in enumerate(rngs)]
        low, high = (np.concatenate([links[end] for links in by_run]) for end in (0, 1))
        one, other, added_run = self._repair(low, high, rngs, slots)
        added = np.bincount(added_run, minlength=runs)
        delays = self._delays(rngs, [links[0].size for links in by_run], added.tolist())
        ends = np.concatenate((low, one)), np.concatenate((high, other))
        return _cut(Graph.from_edges(slots * runs * n, *ends, delays, check=False), slots)

    def _links(self, rng: np.random.Generator, slots: int, run: int, runs: int) -> tuple[Ints32, Ints32]:
        """Return the links of one run before the repair, numbered as in the union over (slot, run, server).

        Run by run, because arrays of a few thousand links stay in the cache and out of the page allocator.
        """
        n = self.servers
        pairs = n * (n - 1) // 2
        place = _successes(rng, slots * pairs, link_probability(n, self.density))
        slot = place // pairs
        place -= slot * pairs
        low, high = (ends[place] for ends in _table(n)) if n <= TABLE_SERVERS else decode_pairs(place)
        slot *= runs * n
        slot += run * n
        return (low + slot).astype(np.int32), (high + slot).astype(np.int32)

    def _repair(
        self, low: Ints32, high: Ints32, rngs: Sequence[np.random.Generator], slots: int
    ) -> tuple[Ints32, Ints32, Ints]:
        """Return links for the isolated servers, ordered by run and then slot, and the run of each."""
        n, runs = self.servers, len(rngs)
        linked = np.zeros(slots * runs * n, dtype=np.bool_)
        linked[low] = True
        linked[high] = True
        isolated = np.flatnonzero(~linked)
        slot, run = np.divmod(isolated // n, runs)
        by_run = np.argsort(run, kind="stable")
        counts = np.bincount(run, minlength=runs)
        draws = np.concatenate([repair_draws(rng, int(k)) for rng, k in zip(rngs, counts, strict=True)], axis=1)
        graph, server, partner = join_isolated(n, (run * slots + slot)[by_run], (isolated % n)[by_run], draws)
        added_run, added_slot = np.divmod(graph, slots)
        base = (added_slot * runs + added_run) * n
        return (server + base).astype(np.int32), (partner + base).astype(np.int32), added_run

    def _delays(
        self, rngs: Sequence[np.random.Generator], before: Sequence[int], added: Sequence[int]
    ) -> Floats32 | None:
        """Draw, run by run, the delays of the links before the repair, then of those added by it."""
        if self.latency is None:
            return None
        by_run = [draw_latency(rng, a + b, self.latency) for rng, a, b in zip(rngs, before, added, strict=True)]
        first = [delays[:a] for delays, a in zip(by_run, before, strict=True)]
        return np.concatenate(first + [delays[a:] for delays, a in zip(by_run, before, strict=True)])


def draw_latency(rng: np.random.Generator, links: int, bounds: tuple[float, float]) -> Floats32:
    """Return uniform link delays in ms."""
    low, high = np.float32(bounds[0]), np.float32(bounds[1])
    return low + (high - low) * rng.random(links, dtype=np.float32)


def decode_pairs(index: Ints) -> tuple[Ints, Ints]:
    """Return the pair (i, j), i < j, with number j(j-1)/2 + i; exact for up to 2^30 servers.

    From about 2^26 servers on the square root may round j up or down by one; then i leaves 0 .. j-1 and tells.
    """
    j = ((1.0 + np.sqrt(1.0 + 8.0 * index)) / 2.0).astype(np.int64)
    i = index - j * (j - 1) // 2
    wrong = np.flatnonzero((i < 0) | (i >= j))
    if wrong.size:
        j[wrong] += np.where(i[wrong] < 0, -1, 1)
        i[wrong] = index[wrong] - j[wrong] * (j[wrong] - 1) // 2
    return i, j


@lru_cache(maxsize=4)
def _table(servers: int) -> tuple[Ints, Ints]:
    """Return all pairs of a small network: looking a pair up is cheaper than decoding it."""
    return decode_pairs(np.arange(servers * (servers - 1) // 2))


def _successes(rng: np.random.Generator, trials: int, p: float) -> Ints:
    """Return the places of the successes in `trials` independent trials of probability p, ascending."""
    if p >= 1.0:
        return np.arange(trials)
    if p <= 0.0:
        return np.zeros(0, dtype=np.int64)
    scale = -1.0 / math.log1p(-p)  # floor(exponential * scale) is geometric
    parts: list[Ints] = []
    last = -1
    while last < trials:
        mean = (trials - last) * p
        gaps = rng.standard_exponential(int(mean + 5.0 * math.sqrt(mean)) + 8)
        gaps *= scale
        np.minimum(gaps, trials, out=gaps)  # a gap beyond the end needs no exact value, and must not overflow
        places = gaps.astype(np.int64)
        places += 1
        np.cumsum(places, out=places)
        places += last
        parts.append(places)
        last = int(places[-1])
    places = np.concatenate(parts)
    return places[: np.searchsorted(places, trials)]


def _cut(chunk: Graph, slots: int) -> list[Graph]:
    """Cut the union over all slots into one graph per slot."""
    size = chunk.servers // slots
    bounds = chunk.indptr[::size]
    graphs = []
    for slot in range(slots):
        begin, end = bounds[slot], bounds[slot + 1]
        indptr = chunk.indptr[slot * size : (slot + 1) * size + 1] - begin
        indices = chunk.indices[begin:end] - np.int32(slot * size)
        latency = None if chunk.latency_ms is None else chunk.latency_ms[begin:end]
        graphs.append(Graph(size, indptr, indices, latency))
    return graphs
