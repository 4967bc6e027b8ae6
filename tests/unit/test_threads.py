"""One thread for linear algebra while filters compute: without a choice of the user, and with the same results."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from dpcrowd.sim import engine
from dpcrowd.sim import simulate as simulate_module
from dpcrowd.sim.backends import Backend, run_tasks
from dpcrowd.sim.planner import plan as plan_module
from dpcrowd.sim.planner.plan import plan
from dpcrowd.sim.simulate import simulate
from dpcrowd.threads import VARIABLES, begin_with_one_thread, threads_are_chosen
from sim_support import assert_same_records

SHARES: dict[str, Any] = {
    **{"servers": 12, "dynamic": False, "graph": "ring", "shares": "partition", "composition": 5.0, "window": 20},
    **{"share_width": 0.1, "hops_per_slot": "all", "slots": 40, "runs": 1, "burn_in": 10, "jobs": 1},
}


def numbers() -> set[int]:
    """How many threads each library of linear algebra has in this process."""
    return {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"}


@pytest.fixture
def two_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A user's program on two cores, who has chosen nothing; the tests themselves run with one thread."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    np.ones((2, 2)) @ np.ones((2, 2))
    with threadpool_limits(2, user_api="blas"):
        assert numbers() == {2}
        yield


@pytest.mark.usefixtures("two_threads")
def test_a_simulation_has_one_thread_and_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that wait for each other took five times the processor time; no number may depend on them."""
    seen: list[set[int]] = []
    run_slot = engine.run_slot

    def listen(*arguments: Any) -> Any:
        seen.append(numbers())
        return run_slot(*arguments)

    monkeypatch.setattr(engine, "run_slot", listen)
    one = simulate("relay", "multi-linear", **SHARES)
    assert seen[-1] == {1}
    assert numbers() == {2}, "the user's program has to get its threads back"
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "2")
    two = simulate("relay", "multi-linear", **SHARES)
    assert seen[-1] == {2}, "an explicit choice has to be kept"
    assert_same_records(one["relay"], two["relay"])


@pytest.mark.usefixtures("two_threads")
def test_planning_has_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """`plan`, and a simulation that plans its samples, compute with the same small matrices."""
    seen: list[set[int]] = []

    def listen(real: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(real)
        def wrapped(*arguments: Any, **settings: Any) -> Any:
            seen.append(numbers())
            return real(*arguments, **settings)

        return wrapped

    monkeypatch.setattr(plan_module, "predict", listen(plan_module.predict))
    monkeypatch.setattr(simulate_module, "configure", listen(simulate_module.configure))
    plan({"north": 5000}, process_var=400, servers=4, density=1.0, window=10, advice=False)
    assert seen
    monkeypatch.setattr(simulate_module, "run_batch", lambda *arguments: pytest.fail("only the plan is of interest"))
    with pytest.raises(pytest.fail.Exception):
        simulate("relay", "linear", servers=4, density=1.0, slots=20, window=10, runs=1)
    assert {*map(tuple, seen)} == {(1,)}


@pytest.mark.slow
@pytest.mark.parametrize(("choice", "expected"), [(None, {1}), ("2", {2})])
def test_workers_do_as_their_caller(choice: str | None, expected: set[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Joblib gives two workers on eight cores four threads each, in a variable that looks like a user's choice."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    if choice is not None:
        monkeypatch.setenv("OPENBLAS_NUM_THREADS", choice)
    monkeypatch.setattr("joblib.externals.loky.backend.context.cpu_count", lambda *_, **__: 8)
    monkeypatch.setattr("joblib._parallel_backends.cpu_count", lambda *_, **__: 8)
    outcomes = dict(run_tasks(numbers, [()] * 2, Backend("local", jobs=2)))
    assert outcomes == {0: expected, 1: expected}


@pytest.mark.parametrize("name", VARIABLES)
def test_each_variable_is_a_choice(name: str) -> None:
    """Whoever has eight cores for one simulation of large matrices may want them; an empty variable says nothing."""
    assert threads_are_chosen({name: "8"})
    assert not threads_are_chosen({name: ""})


def test_a_loaded_library_keeps_its_environment() -> None:
    """A variable that comes too late would change nothing but hide that nobody has chosen."""
    environment: dict[str, str] = {}
    begin_with_one_thread(environment)
    assert not environment


@pytest.mark.slow
@pytest.mark.parametrize(("choice", "expected"), [({}, "1"), ({"OMP_NUM_THREADS": "2"}, "2")])
def test_the_command_begins_with_one_thread(choice: dict[str, str], expected: str) -> None:
    """Live servers and their demo are started by the command; a limit that waits for NumPy starts threads first."""
    code = (
        "from dpcrowd.cli.main import main; main(['--version']); import numpy, threadpoolctl; "
        "print(*{one['num_threads'] for one in threadpoolctl.threadpool_info()})"
    )
    environment = {name: value for name, value in os.environ.items() if name not in VARIABLES} | choice
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split()[-1] == expected
