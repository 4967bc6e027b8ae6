"""Run tasks on any backend, yield each result when it is ready, and repeat what a lost worker left unfinished."""

from __future__ import annotations

import signal
import threading
import traceback
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from dpcrowd.errors import DpcrowdError
from dpcrowd.sim.backends.backend import Backend, Workers, open_workers
from dpcrowd.threads import one_thread, threads_are_chosen

__all__ = ["WorkersLost", "run_tasks"]

Call = tuple[Callable[..., Any], tuple[Any, ...]]


class WorkersLost(DpcrowdError):
    """Workers died again and again without finishing anything."""


@dataclass(frozen=True)
class _Outcome:
    """What a task returned or raised. An error travels as a value: each backend would wrap it in another way."""

    index: int
    value: Any = None
    error: Exception | None = None


def run_tasks(
    function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]], backend: Backend
) -> Iterator[tuple[int, Any]]:
    """Yield (index of the task, `function(*task)`) as the tasks finish, in any order.

    An error of a task is raised unchanged, and the remaining tasks are cancelled (local: after the running ones). A
    lost worker costs its unfinished tasks, which are run again; if that does not help, `WorkersLost` is raised.
    Closing the iterator, or Control-C, stops the workers.
    """
    if not tasks:
        return
    remaining = dict(enumerate(tasks))
    with open_workers(backend) as workers:
        failures = 0
        while remaining:
            try:
                with closing(_stream(workers, function, remaining)) as outcomes:
                    for outcome in outcomes:
                        if outcome.error is not None:
                            raise outcome.error
                        del remaining[outcome.index]
                        failures = 0
                        yield outcome.index, outcome.value
            except workers.lost as error:
                failures += 1
                if failures > workers.attempts:
                    raise _lost(backend, len(tasks), len(remaining), error) from None


def _stream(
    workers: Workers, function: Callable[..., Any], remaining: dict[int, tuple[Any, ...]]
) -> Generator[_Outcome, None, None]:
    from joblib import Parallel, delayed

    failed: list[_Outcome] = []

    def calls() -> Iterator[Any]:
        chosen = threads_are_chosen()
        for index, task in list(remaining.items()):
            if failed:
                return
            yield delayed(_run)(index, (function, task), chosen)

    # One task at a time: joblib would put short ones together, and together they would be late or lost.
    outcomes = Parallel(batch_size=1, return_as="generator_unordered", **workers.options)(calls())
    try:
        for outcome in outcomes:
            if outcome.error is None or not workers.patient:
                yield outcome
            else:
                failed.append(outcome)
        yield from failed[:1]
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # joblib warns that tasks were given up; that is what we want
            outcomes.close()


def _run(index: int, call: Call, threads_chosen: bool) -> _Outcome:
    """Run one task, in a worker, with one thread for linear algebra unless the caller's user has chosen a number.

    Function and arguments come as a tuple, because joblib would store large arguments with one of Dask's workers; if
    that one is lost they are lost too, and with them every task that needs them.
    """
    _leave_control_c_to_the_caller()
    function, arguments = call
    try:
        with one_thread(chosen=threads_chosen):
            return _Outcome(index, value=function(*arguments))
    except DpcrowdError as error:
        return _Outcome(index, error=error)
    except Exception as error:
        error.add_note(f"In a worker:\n{traceback.format_exc()}")
        return _Outcome(index, error=error)


def _leave_control_c_to_the_caller() -> None:
    """Ignore Control-C in workers: a terminal sends it to them too, and the caller stops them."""
    import multiprocessing

    if multiprocessing.parent_process() is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _lost(backend: Backend, total: int, remaining: int, error: BaseException) -> WorkersLost:
    reason = " ".join(str(error).split()).split(". ")[0][:200].rstrip(".")
    return WorkersLost(
        f"workers of the {backend.name} backend keep dying before they finish a task ({type(error).__name__}: "
        f"{reason}); {total - remaining} of {total} tasks are finished and keep their results. Often memory is short: "
        f"use fewer jobs, servers or regions."
    )
