"""`dpcrowd.simulate`: compare schemes on the same runs, spread over cores."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dpcrowd.errors import BadInput
from dpcrowd.filters import Observation
from dpcrowd.network.density import lowest_density
from dpcrowd.network.topologies import TOPOLOGIES
from dpcrowd.privacy import Accounting, Users
from dpcrowd.schemes.base import Form, Scheme
from dpcrowd.schemes.registry import groups_regions, make_scheme
from dpcrowd.schemes.tuning import Tuning
from dpcrowd.sim.config import Entrant, SimulationConfig, guarantee_for
from dpcrowd.sim.data import CheckIns, DataSet, load
from dpcrowd.sim.engine import run_batch
from dpcrowd.sim.recorder import RunRecords
from dpcrowd.sim.result import SimulationResult, merge_records
from dpcrowd.sim.topology import NetworkSpec

__all__ = ["configure", "simulate"]

_DENSITY = 0.1
_BATCH_VALUES = (
    16_384  # values (runs x servers x regions) of a batch: large enough for NumPy, small enough for the cache
)
_BATCH_BYTES = 2**28
_WORTH_A_WORKER = 20_000_000  # values x slots x schemes below which starting workers costs more than it saves

Progress = Callable[[int, int], None]
Schemes = str | Scheme | Iterable[str | Scheme] | Mapping[str, str | Scheme]


def simulate(
    schemes: Schemes,
    data: str | os.PathLike[str] | DataSet = "linear",
    *,
    jobs: int | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> SimulationResult:
    """Simulate one or more schemes on the same runs and compare them.

    schemes   names ("dpcrowd", or "fast,dpcrowd"), schemes made by hand, or a mapping from labels to either
    data      linear, multi-linear, flu, multi-flu, a file of counts or check-ins, or a loaded data set
    jobs      processes; None: as many as pay off
    progress  called with (work done, all work)
    settings  see `configure`: servers, density, epsilon, window, horizon, runs, seed, accounting, users, ...
    """
    config = configure(schemes, data, **settings)
    batches = _batches(config, jobs)
    total = config.data.slots * config.runs
    parts: list[list[RunRecords]] = []
    if len(batches) == 1 or jobs == 1 or _work(config) < _WORTH_A_WORKER:
        done = 0
        for runs in batches:

            def tick(slots: int, width: int = len(runs)) -> None:
                nonlocal done
                done += slots * width
                if progress is not None:
                    progress(done, total)

            parts.append(run_batch(config, runs, tick))
    else:
        parts = _run_parallel(config, batches, jobs, progress, total)
    merged = [merge_records(records) for records in zip(*parts, strict=True)]
    return SimulationResult(
        records={record.label: record for record in merged},
        guarantees={e.label: None if e.guarantee is None else str(e.guarantee) for e in config.entrants},
        notes=(*config.data.notes, *_notes(config)),
    )


def _run_parallel(
    config: SimulationConfig, batches: list[list[int]], jobs: int | None, progress: Progress | None, total: int
) -> list[list[RunRecords]]:
    from joblib import Parallel, delayed

    workers = Parallel(n_jobs=jobs or -1, return_as="generator_unordered")
    parts, done = [], 0
    for records in workers(delayed(run_batch)(config, runs) for runs in batches):
        parts.append(records)
        done += config.data.slots * len(records[0].runs)
        if progress is not None:
            progress(done, total)
    return parts


def configure(
    schemes: Schemes,
    data: str | os.PathLike[str] | DataSet = "linear",
    *,
    servers: int = 50,
    density: float | None = None,
    epsilon: float = 1.0,
    window: int | None = None,
    horizon: int | None = None,
    runs: int = 50,
    seed: int = 0,
    accounting: Accounting = "sound",
    users: Users = "pinned",
    observation: Observation | None = None,
    shares: str | Sequence[float] = "uniform",
    graph: str | os.PathLike[str] = "random",
    dynamic: bool | None = None,
    interval: int | None = None,
    sampling: str | None = None,
    grouping: str | None = None,
    form: Form = "diagonal",
    beta: float | None = None,
    burn_in: int = 20,
    tuning: Tuning | dict[str, Any] | None = None,
    servers_per_slot: int = 1,
    correlation: float = 1.0,
    keep_estimates: bool = False,
    slots: int | None = None,
    regions: Sequence[str] | None = None,
    process_var: object | None = None,
    slot_length: str | float | None = None,
    round_counts: bool = False,
    data_dir: str | os.PathLike[str] | None = None,
) -> SimulationConfig:
    """Check everything and build the configuration of a simulation.

    density           of the network, 2 links/(m (m - 1)); without: 0.1, or the lowest possible where that is higher
    window, horizon   w or T; without: finite schemes take the whole stream, window schemes 100
    accounting        "sound", or "per-region" (the paper's, which a moving user pays more for)
    users             "pinned" or "roaming"
    observation       how counts arise, and the filter's idea of it: "paper" or "binomial"; without: "paper", but
                      "binomial" where every user is at one server (shares="partition", check-ins)
    shares            "uniform", "per-slot", "partition", or a list
    graph             random, ring, grid, small-world, scale-free, geometric, complete, or a file of links
    dynamic           draw the graph anew each slot; without: only for the random graph, as in the paper
    interval          sample every so many slots instead of adaptively; sampling: fixed, staggered or lockstep
    beta              consensus step size; without: 1/(2 (1 + max degree))
    tuning            parameters of sampling, budget and grouping; without: those of the data set
    """
    if not isinstance(data, DataSet):
        data = load(
            data,
            slots=slots,
            process_var=process_var,
            slot_length=slot_length,
            round_counts=round_counts,
            data_dir=data_dir,
            regions=regions,
        )
    if observation is None:
        one_server = shares == "partition" or isinstance(data, CheckIns)
        observation = "binomial" if one_server else "paper"
    network = _network(graph, servers, density, dynamic)
    options = {"sampling": sampling, "interval": interval, "grouping": grouping}
    entrants = []
    for label, scheme in _labelled(schemes):
        made = make_scheme(scheme, **options) if isinstance(scheme, str) else scheme
        guarantee = guarantee_for(
            made,
            epsilon=epsilon,
            window=window,
            horizon=horizon,
            slots=data.slots,
            users=users,
            servers_per_slot=servers_per_slot,
            correlation=correlation,
        )
        entrants.append(Entrant(label or made.name, made, guarantee))
    return SimulationConfig(
        data=data,
        entrants=tuple(entrants),
        network=network,
        runs=runs,
        seed=seed,
        shares=shares if isinstance(shares, str) else np.asarray(shares, dtype=np.float64),
        observation=observation,
        users=users,
        accounting=accounting,
        form=form,
        beta=beta,
        burn_in=burn_in,
        tuning=_tuned(data.tuning, tuning),
        keep_estimates=keep_estimates,
    )


def _labelled(schemes: Schemes) -> list[tuple[str | None, str | Scheme]]:
    if isinstance(schemes, Mapping):
        return list(schemes.items())
    if isinstance(schemes, str):
        schemes = [name.strip() for name in schemes.split(",") if name.strip()]
    return [(None, scheme) for scheme in ([schemes] if isinstance(schemes, Scheme) else schemes)]


def _tuned(base: Tuning, given: Tuning | dict[str, Any] | None) -> Tuning:
    if isinstance(given, Tuning):
        return given
    try:
        return replace(base, **(given or {}))
    except TypeError as error:
        raise BadInput(f"unknown tuning parameter: {error}.") from None


def _network(graph: str | os.PathLike[str], servers: int, density: float | None, dynamic: bool | None) -> NetworkSpec:
    name = os.fspath(graph)
    if density is None:
        density = max(_DENSITY, lowest_density(max(servers, 2)))
    path = Path(name)
    if name not in TOPOLOGIES and (path.suffix or path.exists()):
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(f"cannot read the graph file '{name}': {error}.") from None
        return NetworkSpec("file", servers, density, bool(dynamic), text)
    return NetworkSpec(name, servers, density, name == "random" if dynamic is None else dynamic)


def _work(config: SimulationConfig) -> int:
    return config.runs * config.servers * len(config.data.regions) * config.data.slots * len(config.entrants)


def _batches(config: SimulationConfig, jobs: int | None) -> list[list[int]]:
    """Runs in batches; which runs share a batch changes nothing but the speed."""
    each = config.servers * len(config.data.regions)
    by_cache = -(-_BATCH_VALUES // each)
    by_memory = _BATCH_BYTES // (8 * each * config.data.slots * (2 + 2 * config.keep_estimates))
    cores = jobs if jobs and jobs > 0 else os.cpu_count() or 1
    by_cores = -(-config.runs // cores)
    size = max(1, min(by_cache, by_memory, by_cores))
    return [list(range(first, min(first + size, config.runs))) for first in range(0, config.runs, size)]


def _notes(config: SimulationConfig) -> list[str]:
    notes = []
    if (
        isinstance(config.shares, str)
        and config.shares in ("uniform", "per-slot")
        and not isinstance(config.data, CheckIns)
    ):
        notes.append(
            f"shares are drawn from U(0.05, 1) and sum to about {0.525 * config.servers:.0f}: a user is at that many "
            "servers at once, so epsilon is what one server promises, not the network (use shares=partition for that)."
        )
    if config.accounting == "per-region":
        notes.append("per-region accounting (the paper's): a user who moves between regions pays epsilon_paid.moving.")
    windows = [e for e in config.entrants if e.guarantee is not None and e.guarantee.kind == "window"]
    grouped = [entrant.label for entrant in windows if groups_regions(entrant.scheme)]
    if grouped and config.form == "diagonal" and len(config.data.regions) > 1:
        notes.append(
            f"intervals of {', '.join(grouped)} are uncalibrated: regions of a group share one draw, which the "
            "diagonal form takes for several."
        )
    return notes
