"""The simulation loop: all schemes of a comparison on one batch of runs, slot by slot.

A batch of runs is one network of runs x servers: the disjoint union of the runs' graphs. Truth, shares, counts, graphs
and noise belong to the runs and are drawn once for all schemes, so that schemes are compared on the same draws.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from dpcrowd.arrays import Floats, Ints
from dpcrowd.filters import ProcessModel
from dpcrowd.kernels.engine import Engine, best_engine
from dpcrowd.network.gather import neighbour_sums
from dpcrowd.network.graph import Graph
from dpcrowd.network.hearing import one_hop_hearing
from dpcrowd.privacy import Guarantee, SeededNoise
from dpcrowd.schemes.base import Setting, run_slot
from dpcrowd.schemes.dpcrowd import DPCrowd
from dpcrowd.schemes.history import PosteriorHistory
from dpcrowd.schemes.registry import staggered_interval
from dpcrowd.schemes.relay import Relay
from dpcrowd.schemes.relay_state import RelayState
from dpcrowd.sim.config import Entrant, SimulationConfig
from dpcrowd.sim.data import RunData, draw_run
from dpcrowd.sim.data.seeds import Purpose, sequence
from dpcrowd.sim.planning import relay_phases
from dpcrowd.sim.recorder import Recorder, RunRecords
from dpcrowd.sim.topology import Networks
from dpcrowd.threads import one_thread

__all__ = ["draw_data", "run_batch"]


@cache
def warm_up(engine: Engine) -> None:
    """Compile the loops before anything is timed: a few slots of two servers use all of them."""
    from scipy.sparse import csr_array

    neighbour_sums(csr_array(np.eye(2), dtype=np.float64), np.ones((2, 4)), engine)
    hearing = one_hop_hearing(Graph.from_edges(2, [0], [1]), np.full((2, 1), 0.1), engine)
    noise = SeededNoise([np.random.SeedSequence(0)], 2, 1, engine=engine)
    setting = Setting(2, ProcessModel.of(1.0, [1.0]), Guarantee.finite(8, 1.0), engine=engine)
    scheme = DPCrowd()
    state = scheme.start(setting)
    for slot in range(8):
        run_slot(scheme, state, slot, np.ones((2, 1)), np.ones((2, 1), dtype=np.int64), noise, hearing)


@one_thread()
def run_batch(
    config: SimulationConfig, runs: Sequence[int], tick: Callable[[int], None] | None = None
) -> list[RunRecords]:
    """Simulate the runs with every scheme and return one `RunRecords` per scheme.

    tick  is called with 1 after each slot
    """
    engine = best_engine()
    numbers = np.asarray(runs, dtype=np.int64)
    world = _World(config, runs)
    beta = config.beta if config.has_consensus else None
    networks = Networks(config.network, config.seed, runs, beta, engine, config.growth)
    scheme_runs = [_SchemeRun(config, entrant, numbers, world, networks) for entrant in config.entrants]
    seeds = [sequence(config.seed, run, Purpose.NOISE) for run in runs]
    noise = SeededNoise(seeds, config.servers, len(config.data.regions), engine=engine)
    static = networks.static is not None
    warm_up(engine)
    drawing = 0.0
    for slot in range(config.data.slots):
        began = time.perf_counter()
        links = networks.at(slot)
        noise.prepare(slot)
        drawing += time.perf_counter() - began
        shares, counts = world.shares(slot), world.counts[slot]
        for scheme_run in scheme_runs:
            began = time.perf_counter()
            scheme = scheme_run.entrant.scheme
            release = run_slot(scheme, scheme_run.state, slot, shares, counts, noise, links.hearing(scheme.reach))
            scheme_run.recorder.seconds += time.perf_counter() - began
            scheme_run.recorder.add(slot, release, links, static=static, groups=scheme_run.record_groups(slot))
            if scheme_run.history is not None:
                scheme_run.history.add(slot)
        if tick is not None:
            tick(1)
    return [scheme_run.recorder.finish(networks.static, drawing, scheme_run.history) for scheme_run in scheme_runs]


def draw_data(config: SimulationConfig, run: int) -> RunData:
    """Draw truth, shares and counts of a run."""
    return draw_run(
        config.data,
        seed=config.seed,
        run=run,
        servers=config.servers,
        shares=config.shares,
        observation=config.observation,
        users=config.users,
        turnover=config.turnover,
        composition=config.composition,
    )


class _World:
    """Truth, shares and counts of a batch: slots first, then runs x servers, then regions."""

    def __init__(self, config: SimulationConfig, runs: Sequence[int]) -> None:
        by_run = [draw_data(config, run) for run in runs]
        self.truth = np.stack([run.truth for run in by_run], axis=1).astype(np.float64)
        self.counts = np.concatenate([run.counts for run in by_run], axis=1)
        shares = [run.shares if run.shares.ndim == 3 else np.atleast_2d(run.shares)[..., None] for run in by_run]
        self._shares = np.concatenate(shares, axis=1)

    def shares(self, slot: int) -> Floats:
        """Return the shares in a slot, (runs x servers, 1), or (runs x servers, d) where they differ by region."""
        return np.asarray(self._shares[slot if len(self._shares) > 1 else 0])


class _SchemeRun:
    """One scheme in a batch of runs, with its state and its recorder."""

    def __init__(
        self, config: SimulationConfig, entrant: Entrant, runs: Ints, world: _World, networks: Networks
    ) -> None:
        self.entrant = entrant
        interval = staggered_interval(entrant.scheme)
        setting = Setting(
            servers=len(runs) * config.servers,
            model=config.model_of(entrant),
            guarantee=entrant.guarantee,
            tuning=config.tuning_of(entrant),
            observation=config.observation,
            accounting=config.accounting,
            form=config.form,
            phases=_phases(config, entrant, interval, networks),
            runs=len(runs),
            samples=entrant.samples,
            learn=config.learn_of(entrant),
            turnover=config.turnover,
            share_width=config.share_width,
            engine=networks.engine,
        )
        self.state: Any = entrant.scheme.start(setting)
        self.recorder = Recorder(config, entrant, runs, world.truth, entrant.scheme.data_bytes(setting))
        self.history: PosteriorHistory | None = None
        if config.smoothed and isinstance(entrant.scheme, Relay):
            self.history = PosteriorHistory(entrant.scheme, self.state)

    def record_groups(self, slot: int) -> Ints | None:
        """Return the groups (N, d) of the records of a slot; None: no records are made in groups."""
        state = self.state
        if not isinstance(state, RelayState) or state.own_groups is None:
            return None
        servers = np.arange(state.setting.servers)
        return state.groups_of(np.full(len(servers), slot % state.lag), servers)


def _phases(config: SimulationConfig, entrant: Entrant, interval: int | None, networks: Networks) -> Ints | None:
    scheme, guarantee = entrant.scheme, entrant.guarantee
    if isinstance(scheme, Relay):
        assert guarantee is not None
        samples = scheme.samples_per(guarantee.length, entrant.samples)
        return relay_phases(networks, guarantee, samples, meetings=config.meetings)
    return None if interval is None else networks.phases(interval)
