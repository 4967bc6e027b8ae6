"""Workers of a Ray cluster, as a joblib backend made of Ray's tasks.

Ray has a joblib backend of its own (`ray.util.joblib`), made of a pool of actors that need `max_restarts` and
`max_task_retries` to outlive a lost worker. It does not serve here: it returns results when all tasks are done, not as
they finish; it deals tasks to the actors in turn, so that a long one makes others wait behind it while workers are
idle; it says nothing when an actor is lost for good; and it replaces a base class inside joblib, for the whole process.
Ray's plain tasks are placed where there is room, and `max_retries` is for them what those two settings are for actors.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from typing import Any
from unittest import mock

from dpcrowd.errors import MissingExtra
from dpcrowd.sim.backends.backend import CONNECT_SECONDS, Backend, Workers, unreachable

__all__ = ["ray_workers"]

_RETRIES = 3
_STORE_BYTES = 256 * 2**20


@contextmanager
def ray_workers(backend: Backend) -> Iterator[Workers]:
    """Connect to a cluster, use the one that this process is connected to, or start one on this machine."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError:
        raise MissingExtra("Ray", "ray", "the backend ray") from None
    from joblib.parallel import ParallelBackendBase

    shared = ray.is_initialized()

    class RayTasks(ParallelBackendBase):  # type: ignore[misc]
        """Each call of joblib is a task of Ray."""

        supports_retrieve_callback = True
        default_n_jobs = -1

        def configure(self, n_jobs: int = 1, parallel: Any = None, **options: Any) -> int:
            self.parallel = parallel
            self._running: dict[Future[Any], Any] = {}
            # joblib's callbacks submit the next task; in Ray's own thread, which calls them, that could block it.
            self._deliver = ThreadPoolExecutor(1, thread_name_prefix="dpcrowd-ray")
            self._task = ray.remote(num_cpus=1, max_retries=_RETRIES)(_call)
            return self.effective_n_jobs(n_jobs)

        def effective_n_jobs(self, n_jobs: int) -> int:
            # At least 2: for a lone worker joblib would run everything in the caller's process.
            resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call, unused-ignore]
            return max(2, int(resources.get("CPU", 0)))

        def submit(self, func: Callable[[], Any], callback: Callable[[Any], None]) -> Future[Any]:
            reference = self._task.remote(func)
            future: Future[Any] = reference.future()
            self._running[future] = reference

            def deliver(done: Future[Any]) -> None:
                self._running.pop(done, None)
                with suppress(RuntimeError):  # what ends after the last result was fetched interests nobody
                    self._deliver.submit(callback, done)

            future.add_done_callback(deliver)
            return future

        def retrieve_result_callback(self, out: Future[Any]) -> Any:
            return out.result()

        def abort_everything(self, ensure_ready: bool = True) -> None:
            # Our own connection is about to close, which ends its tasks. To kill them one by one could crash this
            # process: Ray aborts it when a task is done in the same moment (2.60: "not pending").
            for reference in list(self._running.values()) if shared else []:
                ray.cancel(reference)

        def terminate(self) -> None:
            self._deliver.shutdown(wait=False, cancel_futures=True)

    with ExitStack() as stack:
        # Whatever is asked of its logs, Ray prints lost workers to standard output, where a table or JSON is to be.
        stack.enter_context(mock.patch("ray._private.worker.print_to_stdstream", _say_nothing, create=True))
        if not shared:
            if backend.cluster is not None:
                _connect(ray, backend.cluster)
            else:
                _start(ray, backend, stack)
            stack.callback(ray.shutdown)
        yield Workers({"n_jobs": -1, "backend": RayTasks()}, (ray.exceptions.RayError,), attempts=0)


def _call(function: Callable[[], Any]) -> Any:
    return function()


def _say_nothing(*arguments: Any, **options: Any) -> None:
    pass


def _connect(ray: Any, address: str) -> None:
    host, separator, port = address.removeprefix("ray://").rpartition(":")
    probe = "import logging, ray, sys; ray.init(sys.argv[1], log_to_driver=False, logging_level=logging.CRITICAL)"
    try:
        if separator:
            socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS).close()
        # Ray's attempts last for minutes and cannot be stopped, except in a process of their own.
        command = [sys.executable, "-c", probe, address]
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=CONNECT_SECONDS)
    except subprocess.CalledProcessError as error:
        raise unreachable("Ray", address, error.stderr.strip().rpartition("\n")[2][:300]) from None
    except subprocess.TimeoutExpired:
        raise unreachable("Ray", address, "something is there, but does not speak to us") from None
    except (OSError, ValueError, OverflowError) as error:
        raise unreachable("Ray", address, error) from None
    ray.init(address=address, log_to_driver=False, logging_level=logging.CRITICAL)


def _start(ray: Any, backend: Backend, stack: ExitStack) -> None:
    # Sockets lie in this folder, and their paths may not be longer than about 100 characters.
    short = "/tmp" if os.path.isdir("/tmp") else None
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="dpc", dir=short, ignore_cleanup_errors=True))
    stack.enter_context(mock.patch.dict(os.environ, _token()))
    # Ray turns loopback into the machine's own address and then listens on every interface; there is no setting.
    with mock.patch("ray._private.services.resolve_ip_for_localhost", lambda host: host, create=True):
        ray.init(
            address="local",
            num_cpus=backend.jobs or os.cpu_count(),
            num_gpus=0,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.CRITICAL,
            object_store_memory=_STORE_BYTES,
            _temp_dir=folder,
            _node_ip_address="127.0.0.1",
        )


@cache
def _token() -> dict[str, str]:
    """A secret for the cluster that is started, unless the user has one: other users of the machine stay outside."""
    if any(name in os.environ for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")):
        return {}
    return {"RAY_AUTH_TOKEN": secrets.token_hex(32)}
