"""Machines whose servers pass records on, on any graph, and the same network as a batch, as the simulator runs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcrowd.filters import ProcessModel
from dpcrowd.network.graph import Graph
from dpcrowd.network.hearing import one_hop_hearing
from dpcrowd.node.machine.revision import RecordTerms
from dpcrowd.privacy import Guarantee
from dpcrowd.schemes.base import Plan, Release, run_slot
from dpcrowd.schemes.relay import Relay
from dpcrowd.schemes.relay_state import RelayState
from node_support import Network, Node, make_view
from relay_support import KnownNoise
from relay_support import Network as Facts

__all__ = ["RING", "counts_of", "facts_of", "make_network", "simulate", "terms_of"]

Links = Mapping[int, frozenset[int]]
RING: Links = {number: frozenset({(number - 1) % 5, (number + 1) % 5}) for number in range(5)}


def facts_of(servers: int = 5, *, regions: int = 3, lag: int = 5, roaming: bool = False, **options: Any) -> Facts:
    """Public facts: three samples in any eight slots, at different times."""
    phases = np.zeros(servers, dtype=np.int64) if roaming else np.arange(servers, dtype=np.int64) * 3 % 8
    return Facts(
        shares=np.linspace(0.1, 0.3, servers),
        model=ProcessModel.of(1.0, np.full(regions, 400.0)),
        guarantee=Guarantee.window(8, 3.0, users="roaming" if roaming else "pinned"),
        samples=3,
        phases=phases,
        lag=lag,
        options=options,
    )


def counts_of(facts: Facts, slots: int, seed: int = 0) -> NDArray[np.int64]:
    """A crowd that wanders, (slots, servers, regions)."""
    rng = np.random.default_rng(seed)
    crowd = 2000 + np.cumsum(rng.normal(0, 20, (slots, facts.model.regions)), axis=0)
    return rng.poisson(crowd[:, None, :] * facts.shares[None, :, None]).astype(np.int64)


def terms_of(facts: Facts) -> RecordTerms:
    reach = facts.options.get("reach", "all")
    return RecordTerms(
        samples=facts.samples,
        length=facts.guarantee.length,
        lag=facts.lag,
        reach=None if reach == "all" else reach,
        offsets=tuple(facts.phases.tolist()),
        moves=facts.guarantee.users == "pinned",
        least=-1e6,
        most=1e6,
        groups=facts.options.get("groups") == "auto",
    )


def make_network(facts: Facts, links: Links = RING, *, send_offset_ns: int = 0) -> Network:
    """One node for each server."""

    def node(number: int) -> Node:
        view = make_view(
            number,
            facts.servers,
            lambda slot: links[number],
            regions=facts.model.regions,
            form=facts.form,
            send_offset_ns=send_offset_ns,
            records=terms_of(facts),
        )
        made = Node(view, lambda: facts.server(number))
        # At first all neighbours can be reached; after a restart, those whose links come up.
        made.machine.present = {view.names[near] for near in links[number]}
        return made

    return Network([node(number) for number in range(facts.servers)])


class _AsSampled(Relay):
    """Relay whose servers sample when live ones did, (slots, servers), if `sampled` says so."""

    sampled: NDArray[np.bool_] | None = None

    def plan(self, state: RelayState, slot: int, shares: Any) -> Plan:
        plan = super().plan(state, slot, shares)
        return plan if self.sampled is None else replace(plan, due=self.sampled[slot][:, None])


def simulate(
    facts: Facts,
    counts: NDArray[np.int64],
    links: Links = RING,
    hops: Any = "all",
    sampled: NDArray[np.bool_] | None = None,
) -> list[Release]:
    """What the simulator computes of the same counts and noise, with so many hops per slot.

    sampled  (slots, servers): who samples when, instead of the schedule, which moves where a server was away
    """
    pairs = [(one, other) for one, near in links.items() for other in near if one < other]
    graph = Graph.from_edges(facts.servers, [one for one, _ in pairs], [other for _, other in pairs])
    scheme = _AsSampled(samples=facts.samples, lag=facts.lag, guard=facts.guard, hops_per_slot=hops, **facts.options)
    scheme.sampled = sampled
    state = scheme.start(replace(facts.setting(), servers=facts.servers))
    noise, hearing = KnownNoise(facts.servers, facts.model.regions), replace(one_hop_hearing(graph, 0.0), graph=graph)
    return [
        run_slot(scheme, state, slot, facts.shares[:, None], counts[slot], noise, hearing)
        for slot in range(len(counts))
    ]
