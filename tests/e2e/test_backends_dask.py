"""The Dask backend on clusters of this machine: one that is started for the work, and one that runs already."""

from __future__ import annotations

import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from backends_support import check_control_c, check_running, check_started, run_script
from dpcrowd.errors import BadInput
from dpcrowd.sim.backends import Backend, backend, run_tasks
from sim_support import tiny_words

# Not importorskip: every process of the tests would import it.
pytestmark = pytest.mark.skipif(find_spec("distributed") is None, reason="Dask is not installed (the extra dask)")


def test_a_killed_worker_costs_time_only(tmp_path: Path) -> None:
    """Results that vanish with a worker would make a cluster useless for a night."""
    check_started(run_script("started", "dask", str(tmp_path)))


def test_a_running_cluster_of_one_worker_gives_the_same_bits() -> None:
    """Results that depend on the workers would make a cluster useless for a paper.

    joblib alone would work in the caller's process, and wait for ever for a task that kills its workers.
    """
    # What a cluster that runs already logs of itself is its own matter, and a restarted worker says that it is back.
    # It gives up a task that has killed two workers, not four: each of them takes a second to start.
    environment = {"DASK_LOGGING__DISTRIBUTED": "error", "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "1"}
    check_running(run_script("running", "dask", "", environment=environment, quiet=False))


@pytest.mark.skipif(sys.platform == "win32", reason="terminals, pipes and signals of POSIX systems")
def test_control_c_leaves_no_worker_behind(tmp_path: Path) -> None:
    """Workers that go on for nobody would hold the cores until somebody finds them."""
    check_control_c("dask", tmp_path)


ADDRESSES = ("nonsense", "nonsense://x", "tcp://127.0.0.1")
"""None of them is one."""
REFUSED = """
import sys
from dpcrowd.cli.main import main
for address in sys.argv[1].split():
    assert main([*sys.argv[2:], "--cluster", address]) == 2
"""


def test_what_is_no_address_is_refused_at_once() -> None:
    """As a process of its own, because a client that never connected waits for a minute and complains at its end."""
    words = [" ".join(ADDRESSES), *tiny_words("dpcrowd", "--backend", "dask")]
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", REFUSED, *words], capture_output=True, text=True, timeout=120
    )
    assert time.monotonic() - began < backend.CONNECT_SECONDS
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    for address, line in zip(ADDRESSES, done.stderr.splitlines(), strict=True):
        assert line.startswith(f"dpcrowd: error: '{address}' is not the address of a Dask scheduler (")


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1"])
def test_a_cluster_that_does_not_answer_is_named(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a deadline a wrong address would look like a long computation."""
    from dpcrowd.sim.backends import dask_workers

    assert backend.CONNECT_SECONDS == 30
    monkeypatch.setattr(dask_workers, "CONNECT_SECONDS", 0.5)
    with pytest.raises(BadInput, match=f"no Dask cluster answers at '{address}' within 30 s"):
        next(run_tasks(abs, [(1,)], Backend("dask", cluster=address)))
