"""Backends run tasks: processes of this machine, or a Dask cluster; joblib drives both.

    for index, result in run_tasks(function, tasks, Backend("dask", jobs=2)):
        ...  # write it to disk: results come one by one, as they finish

Seeds belong to the tasks, so that the results do not depend on where, when or how often a task was run. That is what
makes it safe to repeat the tasks of a lost worker.
"""

from __future__ import annotations

from dpcrowd.sim.backends.backend import BACKENDS, Backend
from dpcrowd.sim.backends.tasks import WorkersLost, run_tasks

__all__ = ["BACKENDS", "Backend", "WorkersLost", "run_tasks"]
