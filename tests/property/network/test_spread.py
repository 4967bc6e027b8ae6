"""Who has which record after which round, for any graph, reach and number of rounds, held against plain sets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcrowd.network.arrivals import arrival_rounds
from dpcrowd.network.bit_spread import BitSpread
from dpcrowd.network.graph import Graph, union
from dpcrowd.network.sparse_spread import SparseSpread
from dpcrowd.network.spread import Spread
from examples_support import examples

KINDS = [(kind, engine) for kind in (BitSpread, SparseSpread) for engine in ("numpy", "numba")]


def some_graph(rng: np.random.Generator, servers: int, density: float) -> Graph:
    upper = np.triu(rng.random((servers, servers)) < density, 1)
    return Graph.from_edges(servers, *np.nonzero(upper), check=False)


@dataclass
class PlainSets:
    """The rules of the module's text, with sets of (origin, slot) and hops counted one by one."""

    servers: int
    lag: int
    rounds: int
    reach: float
    has: list[dict[tuple[int, int], int]] = field(default_factory=list)
    fresh: list[set[tuple[int, int]]] = field(default_factory=list)
    before: list[set[tuple[int, int]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.has, self.fresh, self.before = [{} for _ in range(self.servers)], *(self._none() for _ in range(2))

    def _none(self) -> list[set[tuple[int, int]]]:
        return [set() for _ in range(self.servers)]

    def slot(self, slot: int, graph: Graph, speaks: Any, same_links: bool) -> dict[str, Any]:
        if not same_links:
            self.before = self._none()
        for server in np.flatnonzero(speaks).tolist():
            self.has[server][server, slot] = 0
            self.fresh[server].add((server, slot))
        packets = records = 0
        oldest = [slot] * self.servers
        for _ in range(self.rounds):
            fresh = [
                {key for key in mine if self.has[i][key] < self.reach and key[1] > slot - self.lag}
                for i, mine in enumerate(self.fresh)
            ]
            if not any(fresh):
                break
            learned: list[dict[tuple[int, int], int]] = [{} for _ in range(self.servers)]
            for sender in range(self.servers):
                for receiver in graph.neighbours(sender).tolist():
                    sent = fresh[sender] - self.before[receiver]
                    packets += bool(sent)
                    records += len(sent)
                    for key in sent - self.has[receiver].keys():
                        learned[receiver][key] = self.has[sender][key] + 1
            for server in range(self.servers):
                self.has[server].update(learned[server])
                oldest[server] = min([oldest[server], *(key[1] for key in learned[server])])
            self.before, self.fresh = fresh, [set(mine) for mine in learned]
        return {"packets": packets, "records": records, "oldest": oldest}


def holdings(spread: Spread, slot: int, engine: str) -> list[list[int]]:
    held = spread.holdings(slot, engine)
    return [held.indices[a:b].tolist() for a, b in zip(held.indptr, held.indptr[1:], strict=False)]


@given(
    seed=st.integers(0, 2**32 - 1),
    servers=st.integers(2, 70),
    lag=st.integers(1, 5),
    rounds=st.sampled_from([None, 1, 2, 3]),
    reach=st.sampled_from([None, 1, 2, 3, 4]),
    changes=st.one_of(st.just(frozenset(range(8))), st.just(frozenset()), st.frozensets(st.integers(1, 7), max_size=2)),
)
@settings(max_examples=examples(30), deadline=None)
@pytest.mark.slow
def test_bits_and_lists_are_the_sets_of_the_rules(
    seed: int, servers: int, lag: int, rounds: int | None, reach: int | None, changes: frozenset[int]
) -> None:
    """Two records where there is one would count information twice; one more hop would break the promised reach.

    changes  the slots in which the links are new; records that are on their way then must not be lost
    """
    rng = np.random.default_rng(seed)
    density = float(rng.uniform(0.02, 0.4))
    graph = some_graph(rng, servers, density)
    plain = PlainSets(servers, lag, 10**6 if rounds is None else rounds, np.inf if reach is None else reach)
    spreads = [(kind(1, servers, lag), engine) for kind, engine in KINDS]
    for slot in range(8):
        graph = some_graph(rng, servers, density) if slot in changes else graph
        same = slot > 0 and slot not in changes
        speaks = rng.random(servers) < 0.3
        wanted = plain.slot(slot, graph, speaks, same)
        for spread, engine in spreads:
            spread.open(slot, speaks)
            oldest, traffic = spread.exchange(slot, graph, rounds, reach, same_links=same, engine=engine)
            found = {
                "packets": int(traffic.packets[0]),
                "records": int(traffic.records[0]),
                "oldest": oldest.tolist(),
            }
            assert found == wanted, (type(spread).__name__, engine, slot)
            for past in range(max(0, slot - lag + 1), slot + 1):
                has = [sorted(origin for origin, made in mine if made == past) for mine in plain.has]
                assert holdings(spread, past, engine) == has, (type(spread).__name__, engine, slot, past)


@pytest.mark.slow
@given(seed=st.integers(0, 2**32 - 1), rounds=st.sampled_from([None, 1, 2]), reach=st.sampled_from([None, 1, 3]))
@settings(max_examples=20, deadline=None)
def test_runs_of_a_batch_do_not_hear_each_other(seed: int, rounds: int | None, reach: int | None) -> None:
    """A batch of runs is one graph; a record that crossed over would come from another world."""
    rng = np.random.default_rng(seed)
    servers, lag = 9, 3
    graphs = [some_graph(rng, servers, 0.3) for _ in range(3)]
    speaks = rng.random((6, 3, servers)) < 0.4
    for kind, engine in KINDS:
        together, alone = kind(3, servers, lag), [kind(1, servers, lag) for _ in range(3)]
        for slot in range(6):
            together.open(slot, speaks[slot].ravel())
            oldest, traffic = together.exchange(slot, union(graphs), rounds, reach, same_links=True, engine=engine)
            rows = holdings(together, slot, engine)
            for run, spread in enumerate(alone):
                spread.open(slot, speaks[slot, run])
                own, its = spread.exchange(slot, graphs[run], rounds, reach, same_links=True, engine=engine)
                mine = slice(run * servers, (run + 1) * servers)
                assert oldest[mine].tolist() == own.tolist()
                assert (traffic.packets[run], traffic.records[run]) == (its.packets[0], its.records[0])
                shifted = [[origin + run * servers for origin in row] for row in holdings(spread, slot, engine)]
                assert rows[mine] == shifted


@given(
    seed=st.integers(0, 2**32 - 1),
    servers=st.integers(2, 20),
    rounds=st.sampled_from([None, 1, 2, 3]),
    most=st.sampled_from([None, 1, 2, 5]),
)
@settings(max_examples=40, deadline=None)
def test_arrivals_are_those_of_the_spread(seed: int, servers: int, rounds: int | None, most: int | None) -> None:
    """The number of samples is planned with these delays; they have to be those of the records."""
    rng = np.random.default_rng(seed)
    graphs = [some_graph(rng, servers, 0.2) for _ in range(30)]
    found = arrival_rounds(graphs.__getitem__, np.arange(servers), rounds, most)
    assert (np.diag(found) == 0).all()
    plain = PlainSets(servers, 100, 10**6 if rounds is None else rounds, np.inf if most is None else most)
    nobody, everybody = np.zeros(servers, dtype=bool), np.ones(servers, dtype=bool)
    for slot in range(1 if rounds is None else 25):
        plain.slot(slot, graphs[slot], nobody if slot else everybody, same_links=False)
    wanted = [[plain.has[server].get((origin, 0), -1) for server in range(servers)] for origin in range(servers)]
    assert found.tolist() == wanted
