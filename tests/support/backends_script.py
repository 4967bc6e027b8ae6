"""One backend, tried for real: `python backends_script.py MODE local|dask FOLDER|ADDRESS` says how it went.

A process of its own, because Dask keeps threads and warns at exit, and because whatever its workers print has
to show up somewhere. Functions of a script travel to workers by value, as those of a user's script do.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from dpcrowd.errors import BadInput
from dpcrowd.sim.backends import Backend, run_tasks
from dpcrowd.sim.simulate import simulate
from sim_support import assert_same_records

SETTING: dict[str, Any] = {"servers": 6, "density": 0.5, "slots": 100, "runs": 3, "keep_estimates": True}


def square(number: int) -> tuple[int, int]:
    return number * number, os.getpid()


def square_or_die(number: int, folder: str) -> int:
    """Task 2 kills its worker the first time; a file remembers how often each task was begun."""
    with (Path(folder) / f"begun-{number}").open("a") as file:
        file.write(".")
    if number == 2 and (Path(folder) / "begun-2").stat().st_size == 1:
        os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))
    time.sleep(0.05)
    return number * number


def die(number: int) -> None:
    os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))


def refuse(number: int) -> int:
    if number == 3:
        raise BadInput("three is not allowed; take four.")
    return number


def stumble(number: int) -> float:
    return 1 / number


def caught(backend: Backend, function: Any, count: int) -> list[str]:
    try:
        list(run_tasks(function, [(number,) for number in range(count)], backend))
    except Exception as error:
        return [type(error).__name__, str(error), *getattr(error, "__notes__", [])]
    return []


def started(name: str, folder: str) -> dict[str, Any]:
    """A cluster that is started for the work: a killed worker costs time only."""
    survived = sorted(run_tasks(square_or_die, [(number, folder) for number in range(12)], Backend(name, 2)))
    begun = [(Path(folder) / f"begun-{number}").stat().st_size for number in range(12)]
    return {"survived": survived, "begun": begun}


def same_bits(backend: Backend) -> list[str]:
    """Simulate in one process and with workers; return the schemes whose results are the same to the last bit."""
    schemes = "dpcrowd,dfast,dpcrowd-plus"
    alone = simulate(schemes, "multi-linear", jobs=1, **SETTING)
    spread = simulate(schemes, "multi-linear", jobs=2, backend=backend.name, cluster=backend.cluster, **SETTING)
    for scheme in alone.records:
        assert_same_records(alone[scheme], spread[scheme])
    return sorted(alone.records)


def running(name: str, address: str | None) -> dict[str, Any]:
    """A cluster that runs already (or local processes): the same bits, who does the work, and how errors arrive."""
    backend = Backend(name, None if address else 2, address)
    results = list(run_tasks(square, [(number,) for number in range(12)], backend))
    early = run_tasks(square, [(number,) for number in range(12)], backend)
    next(early)
    early.close()  # type: ignore[attr-defined]
    return {
        "same": same_bits(backend),
        "squares": sorted((index, value) for index, (value, _) in results),
        "elsewhere": all(process != os.getpid() for _, (_, process) in results),
        "refused": caught(backend, refuse, 6),
        "stumbled": caught(backend, stumble, 3),
        "dying": caught(backend, die, 3),
    }


def work_for_ever(folder: str) -> None:
    (Path(folder) / f"at-work-{os.getpid()}").touch()
    time.sleep(1000)


def interrupted(name: str, folder: str) -> str:
    """Ends when Control-C comes."""
    try:
        list(run_tasks(work_for_ever, [(folder,)] * 6, Backend(name, 2)))
    except KeyboardInterrupt:
        return "interrupted"
    return "finished"


def dask_cluster() -> Any:
    import distributed

    return distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0", silence_logs=50
    )


if __name__ == "__main__":
    mode, name, where = sys.argv[1:]
    if mode == "interrupt":
        print(interrupted(name, where))
    elif mode == "started":
        print(json.dumps(started(name, where)))
    elif name == "dask":
        with dask_cluster() as cluster:
            print(json.dumps(running(name, cluster.scheduler_address)))
    else:
        print(json.dumps(running(name, where or None)))
