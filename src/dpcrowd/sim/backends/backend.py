"""The choice of a backend, and the workers that each kind of backend offers to `run_tasks`."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

from dpcrowd.errors import BadInput, unknown_name, whole_number

__all__ = ["BACKENDS", "CONNECT_SECONDS", "Backend", "Workers", "open_workers", "unreachable"]

BACKENDS = ("local", "dask")
CONNECT_SECONDS = 30.0


@dataclass(frozen=True)
class Backend:
    """Where tasks are run.

    name     local (processes of this machine) or dask
    jobs     workers to start; None: one per core
    cluster  the address of a running Dask cluster; None: start one on this machine that ends with the work
    """

    name: str = "local"
    jobs: int | None = None
    cluster: str | None = None

    def __post_init__(self) -> None:
        if self.name == "ray":
            raise BadInput("the backend ray was removed in version 0.2; choose dask, which gives the same results.")
        if self.name not in BACKENDS:
            raise unknown_name("backend", str(self.name), BACKENDS)
        if self.jobs is not None:
            whole_number("jobs", self.jobs, 1, None, "; leave it out for as many processes as pay off")
        if self.cluster is not None and self.name == "local":
            raise BadInput(f"the local backend has no cluster; for {self.cluster} choose the backend dask.")


@dataclass(frozen=True)
class Workers:
    """Workers that are ready.

    options   of `joblib.Parallel`
    lost      the errors by which joblib reports that workers are gone
    attempts  how often in a row lost tasks are given to new workers; 0 where the cluster itself has already done so
    patient   whether the error of a task waits for the tasks under way, instead of stopping them
    """

    options: dict[str, Any]
    lost: tuple[type[BaseException], ...]
    attempts: int
    patient: bool = False


def open_workers(backend: Backend) -> AbstractContextManager[Workers]:
    """Connect to or start the workers; what was started ends with the context."""
    if backend.name == "dask":
        from dpcrowd.sim.backends.dask_workers import dask_workers

        return dask_workers(backend)
    return _local_workers(backend)


@contextmanager
def _local_workers(backend: Backend) -> Iterator[Workers]:
    """Start loky's processes. One that dies breaks the pool, so a new pool is started and gets the remaining tasks.

    `patient`, because a thread of loky sometimes fails, and prints so, when tasks are taken from it.
    """
    from concurrent.futures.process import BrokenProcessPool

    _silence_cancelled_tasks()
    with warnings.catch_warnings():
        # loky renews a worker whose memory has grown, loses nothing by it, and warns each time.
        warnings.filterwarnings("ignore", "A worker stopped while some jobs", UserWarning)
        yield Workers({"n_jobs": backend.jobs or -1}, (BrokenProcessPool,), attempts=3, patient=True)


def unreachable(kind: str, address: str, reason: object) -> BadInput:
    """Return the error for a cluster that does not answer."""
    return BadInput(
        f"no {kind} cluster answers at '{address}' within {CONNECT_SECONDS:g} s ({reason}); check the address and that "
        f"it runs, or leave the cluster out to start one on this machine."
    )


@cache
def _silence_cancelled_tasks() -> None:
    """Suppress the traceback of loky's thread when it looks for a cancelled task that is gone already.

    That is harmless. Any other exception in a thread is still reported.
    """
    default_hook = threading.excepthook

    def hook(args: threading.ExceptHookArgs) -> None:
        is_manager = args.thread is not None and args.thread.name == "ExecutorManagerThread"
        if not (is_manager and args.exc_type is KeyError):
            default_hook(args)

    threading.excepthook = hook
