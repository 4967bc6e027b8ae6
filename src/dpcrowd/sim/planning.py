"""How many samples relay takes, and how far records travel, if the user does not say: what has least predicted error.

The prediction (`schemes.prediction`) knows what servers of a real network would know before they begin: the graph, the
shares, Q and the guarantee. Only in a simulation of counts without a given Q does Q come from the counts: from the
complete file. `dpcrowd plan` asks the same functions, so what it recommends is what a simulation does.

    samples  the fewest within 2% of the least predicted error, or a number near it with which servers that learn shares
             meet (`prediction.best_samples`)
    reach    the fewest hops within 2% of the predicted error of records that reach every server, each with its best n
             (`prediction.best_reach`)

With a process model, nine tenths of what records gain over the model alone have to remain as well.

Every run of a simulation has its own graph and shares; those of the first run stand for all runs, so that a result does
not depend on which runs share a batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from dpcrowd.arrays import Floats, Ints
from dpcrowd.network.arrivals import NEVER, arrival_rounds
from dpcrowd.network.graph import Graph
from dpcrowd.privacy import Guarantee
from dpcrowd.sampling.schedule import all_meet
from dpcrowd.schemes.prediction import PublicFacts, best_reach, best_samples, reach_choices
from dpcrowd.schemes.relay import Hops, Relay, schedule_offsets
from dpcrowd.sim.config import SimulationConfig
from dpcrowd.sim.data.checkins import CheckIns
from dpcrowd.sim.data.seeds import Purpose, generator
from dpcrowd.sim.data.shares import draw_shares, normalised
from dpcrowd.sim.data.synthetic import SyntheticData
from dpcrowd.sim.topology import Networks

__all__ = [
    "planned_reach",
    "planned_samples",
    "public_facts",
    "relay_phases",
    "schedules_meet",
    "with_reach",
]

MOST_EXACT = 512
"""Servers up to which every delay is computed; in larger networks the delays to a few servers stand for all."""

_RECEIVERS, _BEGINNINGS, _CELLS = 12, 3, 1 << 22


def relay_phases(networks: Networks, guarantee: Guarantee, samples: int, *, meetings: bool) -> Ints | None:
    """Return the offsets of all servers' schedules, (runs x servers,); None: one phase, for users who roam."""
    return schedule_offsets(networks.phases, guarantee, samples, networks.spec.servers if meetings else 0)


def schedules_meet(config: SimulationConfig, guarantee: Guarantee, samples: int) -> bool:
    """Return whether the schedules of the first run let all servers meet in turn."""
    networks = Networks(config.network, config.seed, [0], None, "numpy", config.model.growth)
    phases = relay_phases(networks, guarantee, samples, meetings=config.meetings)
    return phases is None or all_meet(samples, guarantee.length, phases)


def planned_samples(config: SimulationConfig, scheme: Relay, guarantee: Guarantee) -> int:
    """Return the best number of samples per window or horizon, from public facts of the first run."""
    return _answer(_Question(config, scheme, guarantee, _key(config, scheme, guarantee)))


def with_reach(scheme: Relay, reach: Hops) -> Relay:
    """Return the same relay with another reach."""
    hops: Hops = "all" if scheme.rounds is None else scheme.rounds
    return Relay(scheme.samples, scheme.interval, reach, hops, scheme.lag, scheme.guard, scheme.groups)


def planned_reach(config: SimulationConfig, scheme: Relay, guarantee: Guarantee) -> Hops:
    """Return the best reach, from public facts of the first run."""
    return _reach(_Question(config, scheme, guarantee, _key(config, scheme, guarantee)))


@lru_cache(maxsize=256)
def _reach(question: _Question) -> Hops:
    config, scheme, guarantee = question.config, question.scheme, question.guarantee
    is_open = scheme.samples is None and scheme.interval is None
    samples = None if is_open else scheme.samples_per(guarantee.length)
    choices = reach_choices(lambda reach: public_facts(config, with_reach(scheme, reach), guarantee), samples)
    return best_reach(choices).reach


@dataclass(frozen=True)
class _Question:
    """A question whose `key` holds everything on which the answer depends."""

    config: SimulationConfig = field(compare=False)
    scheme: Relay = field(compare=False)
    guarantee: Guarantee = field(compare=False)
    key: tuple[object, ...]


@lru_cache(maxsize=256)
def _answer(question: _Question) -> int:
    return best_samples(public_facts(question.config, question.scheme, question.guarantee))


def _key(config: SimulationConfig, scheme: Relay, guarantee: Guarantee) -> tuple[object, ...]:
    model, level = config.model, _level(config)
    return (
        config.network,
        config.seed,
        config.shares if isinstance(config.shares, str) else (config.shares.shape, config.shares.tobytes()),
        isinstance(config.data, CheckIns),
        model.transition.tobytes(),
        model.process_var.tobytes(),
        model.process_var.shape,
        *(() if model.course is None else (model.course.profile.tobytes(), model.course.variance.tobytes())),
        None if model.course is None or model.course.scale is None else model.course.scale.tobytes(),
        None if model.change_var is None else model.change_var.tobytes(),
        None if level is None else level.tobytes(),
        config.tuning.alpha,
        config.observation,
        config.form,
        config.meetings,
        guarantee,
        (scheme.rounds, scheme.max_hops, scheme.lag, scheme.samples, scheme.interval),
    )


def public_facts(config: SimulationConfig, scheme: Relay, guarantee: Guarantee, run: int = 0) -> PublicFacts:
    """Return the public facts of the first run, or of another one."""
    networks = Networks(config.network, config.seed, [run], None, "numpy", config.model.growth)
    servers = config.servers
    exact = servers <= MOST_EXACT

    def phases(samples: int) -> Ints:
        if guarantee.users == "roaming":
            return np.zeros(servers, dtype=np.int64)
        if not exact:  # spreading them over a large graph takes long, and changes little
            return np.arange(servers) * guarantee.length // max(1, guarantee.length // samples) % guarantee.length
        offsets = relay_phases(networks, guarantee, samples, meetings=config.meetings)
        assert offsets is not None
        return offsets

    return PublicFacts(
        guarantee=guarantee,
        model=config.model,
        shares=_shares(config, run),
        delays=_delays(networks, scheme, servers),
        phases=phases,
        meetings=config.meetings,
        alpha=config.tuning.alpha,
        observation=config.observation,
        form=config.form,
        level=_level(config),
        blocks=_BEGINNINGS if networks.static is None else 1,
    )


def _shares(config: SimulationConfig, run: int) -> Floats:
    """Return the shares of a run, (m,) or (m, d); if they change, those of its first slot."""
    rng = generator(config.seed, run, Purpose.SHARES)
    shares = np.atleast_2d(draw_shares(config.shares, config.servers, config.data.slots, rng))[0]
    return normalised(shares) if isinstance(config.data, CheckIns) else shares


def _level(config: SimulationConfig) -> Floats | None:
    """Return the level that the model or the definition of the data says; nothing is taken from the counts."""
    data = config.data
    if data.model.course is not None:
        return np.asarray(data.model.course.profile.mean(axis=0))
    return data.expected_level if isinstance(data, SyntheticData) else None


def _delays(networks: Networks, scheme: Relay, servers: int) -> Ints:
    """Return the slots until a record arrives, (receivers, servers)."""
    rounds = scheme.rounds
    most = scheme.lag * rounds if rounds is not None else None
    if scheme.max_hops is not None:
        most = scheme.max_hops if most is None else min(most, scheme.max_hops)
    number = _RECEIVERS * (_BEGINNINGS if networks.static is not None else 1)
    receivers = np.linspace(0, servers - 1, min(servers, number, max(4, _CELLS // servers))).astype(np.int64)
    parts = []
    for graph_at in _beginnings(networks):
        if servers <= MOST_EXACT:
            arrived = arrival_rounds(graph_at, np.arange(servers), rounds, most).T[receivers]
        else:  # the way back takes as long, on average also where links change
            arrived = arrival_rounds(graph_at, receivers, rounds, most)
        slots = np.maximum(arrived - 1, 0) // (rounds if rounds is not None else max(servers, 1))
        parts.append(np.where(arrived == NEVER, NEVER, slots))
    delays = np.concatenate(parts)
    return np.where(delays < scheme.lag, delays, NEVER)


def _beginnings(networks: Networks) -> list[Callable[[int], Graph]]:
    """Return functions that give the links, counted from some slot: from several slots if the network changes."""
    static = networks.static
    if static is not None:
        return [lambda _slot: static.graph]
    graphs: list[Graph] = []

    def at(slot: int) -> Graph:
        while len(graphs) <= slot:
            graphs.append(networks.at(len(graphs)).graph)
        return graphs[slot]

    return [lambda slot, first=first: at(first + slot) for first in range(_BEGINNINGS)]  # type: ignore[misc]
