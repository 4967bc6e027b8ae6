"""The Ray backend on clusters of this machine: one that is started for the work, and one that runs already."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from backends_support import SCRIPT, check_control_c, check_running, check_started, run_script
from dpcrowd.errors import BadInput

pytest.importorskip("ray", reason="Ray is not installed (the extra ray)")


@pytest.fixture
def token() -> dict[str, str]:
    """Both sides of a cluster that runs already know its secret."""
    return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32), "RAY_USAGE_STATS_ENABLED": "0"}


@pytest.fixture
def address(token: dict[str, str]) -> Iterator[str]:
    """A cluster with one worker, held by another process until its standard input closes."""
    short = "/tmp" if os.path.isdir("/tmp") else None  # sockets lie there, and their paths have to be short
    with tempfile.TemporaryDirectory(prefix="dpc", dir=short, ignore_cleanup_errors=True) as folder:
        holder = subprocess.Popen(
            [sys.executable, str(SCRIPT), "hold", "ray", folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, **token},
        )
        assert holder.stdout is not None
        yield holder.stdout.readline().strip()
        holder.communicate(timeout=60)


def test_two_workers_give_the_same_bits_and_a_killed_one_costs_time_only(tmp_path: Path) -> None:
    """Results that depend on the workers, or that vanish with one, would make a cluster useless for a paper."""
    check_started(run_script("started", "ray", str(tmp_path)))


def test_a_running_cluster_of_one_worker(address: str, token: dict[str, str]) -> None:
    """joblib alone would work in the caller's process; Ray wraps errors, and prints lost workers to standard output."""
    check_running(run_script("running", "ray", address, environment=token))


@pytest.mark.skipif(sys.platform == "win32", reason="terminals, pipes and signals of POSIX systems")
def test_control_c_leaves_no_worker_behind(tmp_path: Path) -> None:
    """Workers that go on for nobody would hold the cores until somebody finds them."""
    check_control_c("ray", tmp_path)


@pytest.mark.skipif(sys.platform != "linux", reason="reads the kernel's table of sockets")
def test_a_started_cluster_listens_on_this_machine_only(tmp_path: Path) -> None:
    """Whoever reaches Ray's ports can run code; by default they are open to the network."""
    said = run_script("listening", "ray", str(tmp_path))
    assert len(said) >= 4, "the cluster's ports were not found"
    assert set(said) == {"127.0.0.1"}


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "127.0.0.1:port", "127.0.0.1:99999"])
def test_a_cluster_that_does_not_answer_is_named(address: str) -> None:
    """Ray itself would try for minutes, and print."""
    code = f"""
from dpcrowd.errors import BadInput
from dpcrowd.sim.backends import Backend, run_tasks
try:
    next(run_tasks(abs, [(1,)], Backend("ray", cluster={address!r})))
except BadInput as error:
    print(type(error).__name__, error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith(f"BadInput no Ray cluster answers at '{address}' within 30 s"), done.stderr
    assert done.stderr == ""


def test_something_else_at_the_address_has_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """A socket that accepts and says nothing must not hold the caller."""
    import socket

    from dpcrowd.sim.backends import ray_workers

    monkeypatch.setattr(ray_workers, "CONNECT_SECONDS", 2.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        where = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(BadInput, match="something is there, but does not speak to us"):
            ray_workers._connect(None, where)
