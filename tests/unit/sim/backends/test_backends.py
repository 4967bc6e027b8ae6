"""`run_tasks` and its backends without a cluster: what is refused, how results and errors come, what is repeated."""

from __future__ import annotations

import builtins
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from backends_support import check_control_c, check_running, check_started, run_script
from dpcrowd.errors import BadInput, MissingExtra
from dpcrowd.sim import simulate as simulate_module
from dpcrowd.sim.backends import Backend, WorkersLost, run_tasks, tasks
from dpcrowd.sim.backends.backend import Workers
from dpcrowd.sim.simulate import simulate
from sim_support import TINY


@pytest.mark.slow
def test_a_killed_local_worker_costs_time_only(tmp_path: Path) -> None:
    """loky gives up when a worker dies; half of a night's runs would be lost to one that ran out of memory."""
    check_started(run_script("started", "local", str(tmp_path)))


@pytest.mark.slow
def test_local_workers_give_the_same_bits_and_report_errors_as_they_are() -> None:
    """The command line turns `BadInput` into one line; a wrapper around it would end in a traceback."""
    check_running(run_script("running", "local", ""))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="terminals, pipes and signals of POSIX systems")
def test_control_c_leaves_no_worker_behind(tmp_path: Path) -> None:
    """Workers that go on for nobody would hold the cores until somebody finds them."""
    check_control_c("local", tmp_path)


def test_no_tasks_start_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """When everything is on disk already, no cluster has to be there."""
    monkeypatch.setattr(tasks, "open_workers", lambda backend: pytest.fail("workers were started"))
    assert list(run_tasks(abs, [], Backend("dask"))) == []


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"name": "dsk"}, "unknown backend 'dsk'. Did you mean 'dask'? Allowed: dask, local."),
        ({"jobs": 0}, "jobs must be a whole number of at least 1; leave it out for as many processes as pay off"),
        ({"cluster": "tcp://here:1"}, "the local backend has no cluster; for tcp://here:1 choose the backend dask."),
    ],
)
def test_backends_that_make_no_sense_are_refused(settings: dict[str, Any], text: str) -> None:
    """A misspelt backend that fell back to local would look like a cluster that does nothing."""
    with pytest.raises(BadInput) as refusal:
        Backend(**settings)
    assert str(refusal.value).startswith(text)


def test_the_removed_backend_names_its_replacement() -> None:
    """The author of an older script would look for a typing error behind "unknown backend 'ray'"."""
    with pytest.raises(BadInput, match=r"the backend ray was removed in version 0\.2; choose dask"):
        Backend("ray")


def test_a_missing_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dask is not among the usual extras, so many will ask for it without having it."""
    real = builtins.__import__

    def without(wanted: str, *arguments: Any) -> Any:
        if wanted.partition(".")[0] == "distributed":
            raise ImportError(wanted)
        return real(wanted, *arguments)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtra, match=r'the backend dask needs .*: pip install "dpcrowd\[dask\]"'):
        next(run_tasks(abs, [(1,)], Backend("dask")))


def _losing(monkeypatch: pytest.MonkeyPatch, attempts: int, finished: list[int]) -> list[list[int]]:
    """Pools that die after so many tasks each (the last one does not); the list says what each was asked to do."""
    asked: list[list[int]] = []

    @contextmanager
    def fake_workers(backend: Backend) -> Iterator[Workers]:
        yield Workers({}, (BrokenProcessPool,), attempts)

    def fake_stream(workers: Workers, function: Callable[..., Any], left: dict[int, tuple[Any, ...]]) -> Iterator[Any]:
        asked.append(list(left))
        share = finished[len(asked) - 1] if len(asked) <= len(finished) else None
        for index in list(left)[:share]:
            yield tasks._run(index, (function, left[index]), True)
        if share is not None:
            raise BrokenProcessPool("a worker was killed. Look at its log.")

    monkeypatch.setattr(tasks, "open_workers", fake_workers)
    monkeypatch.setattr(tasks, "_stream", fake_stream)
    return asked


def test_only_unfinished_tasks_are_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each result is handed out once; progress forgives the failures before it."""
    asked = _losing(monkeypatch, 2, [0, 0, 1, 0])
    assert list(run_tasks(abs, [(-1,), (-2,), (-3,)], Backend())) == [(0, 1), (1, 2), (2, 3)]
    assert asked == [[0, 1, 2]] * 3 + [[1, 2]] * 2


@pytest.mark.parametrize("attempts", [0, 3])
def test_workers_that_die_again_and_again_are_given_up(attempts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that always kills its worker would go on for ever."""
    asked = _losing(monkeypatch, attempts, [1] + [0] * 9)
    results = run_tasks(abs, [(-1,), (-2,), (-3,)], Backend())
    assert next(results) == (0, 1)
    with pytest.raises(WorkersLost) as end:
        next(results)
    assert str(end.value).startswith("workers of the local backend keep dying before they finish a task")
    assert "(BrokenProcessPool: a worker was killed); 1 of 3 tasks are finished and keep their results." in str(
        end.value
    )
    assert asked == [[0, 1, 2]] + [[1, 2]] * attempts


def test_a_backend_that_was_asked_for_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little work stays in the process, except where a cluster was named: that one is meant."""
    heard: list[Backend] = []

    def fake_tasks(function: Callable[..., Any], work: list[tuple[Any, ...]], backend: Backend) -> Iterator[Any]:
        heard.append(backend)
        for index in reversed(range(len(work))):
            yield index, function(*work[index])

    monkeypatch.setattr(simulate_module, "run_tasks", fake_tasks)
    simulate("dpcrowd", jobs=1, **TINY)
    assert heard == []
    done: list[tuple[int, int]] = []
    simulate(
        "dpcrowd", jobs=1, backend="dask", cluster="tcp://there:8786", progress=lambda *at: done.append(at), **TINY
    )
    assert heard == [Backend("dask", 1, "tcp://there:8786")]
    assert done == [(60, 60)]


@pytest.mark.slow
def test_the_thread_of_given_up_tasks_dies_in_silence_and_others_do_not() -> None:
    """After an error or Control-C a traceback of joblib's inside would hide our one line; other errors must be seen."""
    code = """
import threading
from dpcrowd.sim.backends.backend import _silence_cancelled_tasks
_silence_cancelled_tasks()
def dies(error):
    raise error
loky = "ExecutorManagerThread"
for name, error in ((loky, KeyError(14)), ("other", KeyError(15)), (loky, OSError(16))):
    thread = threading.Thread(target=dies, args=(error,), name=name)
    thread.start()
    thread.join()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert "KeyError: 14" not in done.stderr
    assert "KeyError: 15" in done.stderr
    assert "OSError: 16" in done.stderr
