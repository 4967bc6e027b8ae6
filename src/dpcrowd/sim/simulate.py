"""`dpcrowd.simulate`: compare schemes on the same runs, distributed over cores."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from dpcrowd.errors import unknown_name
from dpcrowd.schemes.nonprivate import NonPrivate
from dpcrowd.schemes.relay import Relay
from dpcrowd.sim.backends import Backend, run_tasks
from dpcrowd.sim.config import Entrant, SimulationConfig
from dpcrowd.sim.configure import Data, Schemes, configure
from dpcrowd.sim.engine import run_batch
from dpcrowd.sim.link_notes import slow_notes
from dpcrowd.sim.notes import attribution, details, notes, promise, setup, warnings
from dpcrowd.sim.observation_note import observation_note
from dpcrowd.sim.recorder import RunRecords
from dpcrowd.sim.result import Errors, ObservationNoise, SimulationResult, merge_records
from dpcrowd.sim.together import errors_together
from dpcrowd.threads import one_thread

__all__ = ["batches", "configure", "simulate"]

# Values (runs x servers x regions) of a batch: large enough for NumPy, small enough for the cache.
_BATCH_VALUES = 16_384
_BATCH_BYTES = 2**28
_LARGEST_EXTRA_RUN = 50_000_000  # values x slots of a run beyond which `non-private` is not simulated unasked
_WORTH_A_WORKER = 20_000_000  # values x slots x schemes below which starting workers costs more than it saves

Progress = Callable[[int, int], None]


def simulate(
    schemes: Schemes,
    data: Data = "linear",
    *,
    jobs: int | None = None,
    backend: str = "local",
    cluster: str | None = None,
    progress: Progress | None = None,
    announce: Callable[[str], None] | None = None,
    **settings: Any,
) -> SimulationResult:
    """Simulate one or more schemes on the same runs and compare them.

    schemes   names ("dpcrowd", or "fast,dpcrowd"), scheme objects, or a mapping from labels to either
    data      linear, multi-linear, flu, multi-flu, a file of counts or check-ins, counts as an array (T,) or (T, d),
              or a loaded data set
              (schemes, data sets and networks of plug-ins are given by name, or as `package:object`)
    jobs      processes; None: as many as are worthwhile. For a running cluster: parts that the work is divided into
    backend   local or dask: where the processes are
    cluster   the address of a running Dask cluster; None: start one on this machine
    progress  called with (work done, all work)
    announce  called beforehand with each reason why the simulation takes long
    settings  see `dpcrowd.sim.configure.configure`: servers, density, epsilon, window, horizon, runs, seed, users, ...

    >>> result = simulate("fast,dpcrowd", servers=8, density=0.5, slots=60, runs=2, jobs=1)
    >>> sorted(result.records), result["dpcrowd"].are.shape
    (['dpcrowd', 'fast'], (2,))
    >>> result.compare("dpcrowd", "fast").ratio < 1
    True
    """
    where = Backend(backend, jobs, cluster)
    allowed = inspect.signature(configure).parameters
    for name in settings:
        if name not in allowed:
            raise unknown_name("setting", name, allowed)
    with one_thread():
        config = configure(schemes, data, **settings)
    if announce is not None:
        for reason in slow_notes(config):
            announce(reason)
    shared = batches(config, range(config.runs), jobs)
    total = config.data.slots * config.runs
    parts: list[list[RunRecords]] = []
    if backend == "local" and (len(shared) == 1 or jobs == 1 or _work(config) < _WORTH_A_WORKER):
        count = 0
        for runs in shared:

            def tick(slots: int, width: int = len(runs)) -> None:
                nonlocal count
                count += slots * width
                if progress is not None:
                    progress(count, total)

            parts.append(run_batch(config, runs, tick))
    else:
        parts = _run_parallel(config, shared, where, progress, total)
    merged = [merge_records(records) for records in zip(*parts, strict=True)]
    noise = _observation_noise(config, merged)
    cost = [] if noise is None else [observation_note(noise, config)]
    serious = warnings(config, merged)
    return SimulationResult(
        records={record.label: record for record in merged},
        guarantees={entrant.label: promise(config, entrant) for entrant in config.entrants},
        notes=(
            *config.data.notes,
            *notes(config, merged),
            *cost,
        ),
        first_notes=(*serious, *cost),
        warnings=tuple(serious),
        details=tuple(details(config)),
        setup={entrant.label: setup(config, entrant) for entrant in config.entrants},
        attributions={entrant.label: attribution(entrant) for entrant in config.entrants},
        observation_noise=noise,
    )


def _observation_noise(config: SimulationConfig, records: Sequence[RunRecords]) -> ObservationNoise | None:
    """Return what the observation noise alone costs, from the first runs: three, or one of twenty.

    Seeds belong to runs, so truth, shares, counts and networks are those of the other schemes. `non-private` is
    simulated if it was not asked for. None where even one run would take long.
    """
    width = len(config.data.regions) if config.form == "matrix" else 1
    if config.servers * len(config.data.regions) * config.data.slots * width > _LARGEST_EXTRA_RUN:
        return None
    runs = range(max(min(config.runs, 3), config.runs // 20))
    pairs = zip(config.entrants, records, strict=True)
    record = next((record for entrant, record in pairs if isinstance(entrant.scheme, NonPrivate)), None)
    if record is None:
        record = _non_private(config, runs)
    filtered = Errors.of(record.are[: len(runs)], record.total_error[: len(runs)])
    return ObservationNoise.of(Errors.of(*errors_together(config, runs)), filtered, len(runs))


def _non_private(config: SimulationConfig, runs: Sequence[int]) -> RunRecords:
    """Simulate `non-private` on some runs."""
    entrants = (Entrant(NonPrivate.name, NonPrivate(), None),)
    beta = config.beta if config.has_consensus else None  # one that was never checked against the links
    short = replace(config, entrants=entrants, beta=beta, keep_estimates=False, smoothed=False)
    short = replace(short, nonnegative=False, median=False)
    return merge_records([run_batch(short, batch)[0] for batch in batches(short, runs, 1)])


def _run_parallel(
    config: SimulationConfig, shared: list[list[int]], where: Backend, progress: Progress | None, total: int
) -> list[list[RunRecords]]:
    parts, count = [], 0
    for index, records in run_tasks(run_batch, [(config, runs) for runs in shared], where):
        parts.append(records)
        count += config.data.slots * len(shared[index])
        if progress is not None:
            progress(count, total)
    return parts


def _work(config: SimulationConfig) -> int:
    return config.runs * config.servers * len(config.data.regions) * config.data.slots * len(config.entrants)


def batches(config: SimulationConfig, runs: Sequence[int], jobs: int | None) -> list[list[int]]:
    """Divide the runs into batches; which runs share a batch affects nothing but the speed."""
    each = config.servers * len(config.data.regions)
    by_cache = -(-_BATCH_VALUES // each)
    width = len(config.data.regions) if config.form == "matrix" else 1
    arrays = 2 + 2 * config.keep_estimates + (4 * width + 2) * config.smoothed
    by_memory = _BATCH_BYTES // (8 * each * config.data.slots * arrays)
    if (
        config.turnover < 1.0 or config.share_width > 0.0
    ):  # relay remembers the deviations of all servers at all servers, in the last slots
        lag = max((entrant.scheme.lag for entrant in config.entrants if isinstance(entrant.scheme, Relay)), default=0)
        by_memory = min(by_memory, _BATCH_BYTES // (8 * each * config.servers * (lag + 1)))
    cores = jobs or os.cpu_count() or 1
    by_cores = -(-len(runs) // cores)
    size = max(1, min(by_cache, by_memory, by_cores))
    return [list(runs[first : first + size]) for first in range(0, len(runs), size)]
