"""Run the points that are not on disk yet, on one machine or on a cluster, and store each batch as soon as it ends.

It does not matter which runs share a batch, nor which worker computes it: seeds belong to runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from dpcrowd.experiments.points.plan import RunPlan
from dpcrowd.experiments.points.point import Point
from dpcrowd.experiments.points.store import Store
from dpcrowd.schemes.relay import Relay
from dpcrowd.sim.backends import Backend, run_tasks
from dpcrowd.sim.config import SimulationConfig
from dpcrowd.sim.engine import run_batch
from dpcrowd.sim.notes import attribution, notes, promise, setup
from dpcrowd.sim.result import SimulationResult
from dpcrowd.sim.simulate import batches

__all__ = ["Progress", "Results", "Tick", "run_points"]


@dataclass(frozen=True)
class Tick:
    """Progress of a reproduction; `work` is an estimate of computing time, in no particular unit."""

    figure: str
    runs_done: int
    runs: int
    work_done: float
    work: float


Progress = Callable[[Tick], None]


class Results:
    """The results of simulations, by point; only points that were run can be asked for."""

    def __init__(self, plan: RunPlan, store: Store) -> None:
        self._plan, self._store = plan, store
        self._by_key: dict[str, SimulationResult] = {}
        self._keys: dict[Point, str] = {}

    def __getitem__(self, point: Point) -> SimulationResult:
        key = self._keys.get(point)
        if key is None:
            key = self._keys[point] = key_of(self._plan, point)
        if key not in self._by_key:
            config = config_of(self._plan, point)
            records = self._store.read(key, config.runs)
            self._by_key[key] = SimulationResult(
                records=records,
                guarantees={entrant.label: promise(config, entrant) for entrant in config.entrants},
                notes=(*config.data.notes, *notes(config, list(records.values()))),
                setup={entrant.label: setup(config, entrant) for entrant in config.entrants},
                attributions={entrant.label: attribution(entrant) for entrant in config.entrants},
            )
        return self._by_key[key]

    def samples(self, point: Point, label: str) -> int | None:
        """Return how many samples per window or horizon a scheme takes that chooses the number itself; else None."""
        entrants = config_of(self._plan, point).entrants
        return next(entrant.samples for entrant in entrants if entrant.label == label)


@dataclass(frozen=True, eq=False)
class _Task:
    figure: str
    key: str
    point: Point
    config: SimulationConfig
    runs: list[int]

    @property
    def work(self) -> float:
        return len(self.runs) * _work_per_run(self.config)


def config_of(plan: RunPlan, point: Point) -> SimulationConfig:
    """Return the simulation of a point under a plan."""
    known = plan.knowledge(point.data)
    return point.config(plan.data[point.data], runs=plan.runs, seed=plan.seed, servers=plan.servers, knowledge=known)


def key_of(plan: RunPlan, point: Point) -> str:
    """Return the name under which the results of a point are stored."""
    known = plan.knowledge(point.data)
    return point.key(plan.data[point.data], seed=plan.seed, servers=plan.servers, knowledge=known)


def run_points(
    plan: RunPlan,
    points_by_figure: Mapping[str, Iterable[Point]],
    store: Store,
    backend: Backend,
    progress: Progress | None = None,
) -> Results:
    """Run what is missing of the points of each figure; a point of two figures is run once."""
    tasks, runs, work = _pending_tasks(plan, points_by_figure, store)
    runs_done = runs - sum(len(task.runs) for task in tasks)
    work_done = work - sum(task.work for task in tasks)
    if progress is not None:
        progress(Tick(tasks[0].figure if tasks else "", runs_done, runs, work_done, work))
    for number, records in run_tasks(run_batch, [(task.config, task.runs) for task in tasks], backend):
        task = tasks[number]
        store.write(task.key, records, by_slot=task.point.by_slot)
        runs_done += len(task.runs)
        work_done += task.work
        if progress is not None:
            progress(Tick(task.figure, runs_done, runs, work_done, work))
    return Results(plan, store)


def _pending_tasks(
    plan: RunPlan, points_by_figure: Mapping[str, Iterable[Point]], store: Store
) -> tuple[list[_Task], int, float]:
    """Return the tasks that remain, and the number of runs and the work of all tasks, finished or not."""
    keys: set[str] = set()
    tasks: list[_Task] = []
    runs, work = 0, 0.0
    for figure, points in points_by_figure.items():
        for point in points:
            key = key_of(plan, point)
            if key in keys:
                continue
            keys.add(key)
            config = config_of(plan, point)
            runs += config.runs
            work += config.runs * _work_per_run(config)
            on_disk = store.runs_on_disk(key)
            remaining = [run for run in range(config.runs) if run not in on_disk]
            # Batches are not split among cores: there are more points than cores, and a large batch costs less per run.
            tasks += [_Task(figure, key, point, config, batch) for batch in batches(config, remaining, 1)]
    return tasks, runs, work


def _work_per_run(config: SimulationConfig) -> float:
    """Return about how long one run takes, in microseconds of one core as measured once; for the time that remains."""
    regions = len(config.data.regions)
    if config.form == "matrix":
        per_server_slot = 10.0 + 0.05 * regions**2
    else:
        per_server_slot = 0.4 + 0.1 * regions + 0.5 * config.network.density
    # Relay filters the records of all servers at each of them.
    weight = sum(4.0 if isinstance(entrant.scheme, Relay) else 1.0 for entrant in config.entrants)
    return config.data.slots * config.servers * weight * per_server_slot
