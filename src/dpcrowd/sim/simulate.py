"""`dpcrowd.simulate`: compare schemes on the same runs, spread over cores."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from dpcrowd.schemes.registry import groups_regions
from dpcrowd.sim.config import Entrant, SimulationConfig, whole_number
from dpcrowd.sim.configure import Schemes, configure
from dpcrowd.sim.data import CheckIns, DataSet
from dpcrowd.sim.engine import run_batch
from dpcrowd.sim.recorder import RunRecords
from dpcrowd.sim.result import SimulationResult, merge_records

__all__ = ["configure", "simulate"]

# Values (runs x servers x regions) of a batch: large enough for NumPy, small enough for the cache.
_BATCH_VALUES = 16_384
_BATCH_BYTES = 2**28
_WORTH_A_WORKER = 20_000_000  # values x slots x schemes below which starting workers costs more than it saves

Progress = Callable[[int, int], None]


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
    if jobs is not None:
        whole_number("jobs", jobs, 1, None, "; leave it out for as many processes as pay off")
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
        guarantees={entrant.label: _promise(config, entrant) for entrant in config.entrants},
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


def _work(config: SimulationConfig) -> int:
    return config.runs * config.servers * len(config.data.regions) * config.data.slots * len(config.entrants)


def _batches(config: SimulationConfig, jobs: int | None) -> list[list[int]]:
    """Runs in batches; which runs share a batch changes nothing but the speed."""
    each = config.servers * len(config.data.regions)
    by_cache = -(-_BATCH_VALUES // each)
    by_memory = _BATCH_BYTES // (8 * each * config.data.slots * (2 + 2 * config.keep_estimates))
    cores = jobs or os.cpu_count() or 1
    by_cores = -(-config.runs // cores)
    size = max(1, min(by_cache, by_memory, by_cores))
    return [list(range(first, min(first + size, config.runs))) for first in range(0, config.runs, size)]


def _promise(config: SimulationConfig, entrant: Entrant) -> str | None:
    """The guarantee in words; the paper's accounting keeps it for some users only."""
    if entrant.guarantee is None:
        return None
    stays = config.accounting == "per-region" and len(config.data.regions) > 1
    only = "Only for a user who stays in one region, since accounting is per region: " if stays else ""
    return f"{only}{entrant.guarantee}"


def _notes(config: SimulationConfig) -> list[str]:
    notes = _different_promises(config)
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


def _different_promises(config: SimulationConfig) -> list[str]:
    """Finite and window schemes side by side spend the same epsilon on different things."""
    lengths: dict[str, list[str]] = {}
    for entrant in config.entrants:
        if entrant.guarantee is not None:
            where = "any window of" if entrant.guarantee.kind == "window" else "a whole stream of"
            lengths.setdefault(f"{where} {entrant.guarantee.length} slots", []).append(entrant.label)
    if len(lengths) < 2:
        return []
    told = "; ".join(f"{span} for {', '.join(labels)}" for span, labels in lengths.items())
    return [f"epsilon covers {told}: their errors are not at the same privacy."]
