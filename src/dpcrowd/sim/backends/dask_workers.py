"""Workers of a Dask cluster, through joblib's own Dask backend."""

from __future__ import annotations

import asyncio
import logging
import os
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

from dpcrowd.errors import BadInput, MissingExtra
from dpcrowd.sim.backends.backend import CONNECT_SECONDS, Backend, Workers, unreachable

__all__ = ["dask_workers"]


@contextmanager
def dask_workers(backend: Backend) -> Iterator[Workers]:
    """Connect to a scheduler, or start one with worker processes that listen on this machine only."""
    try:
        import distributed
    except ImportError:
        raise MissingExtra("Dask's distributed", "dask", "the backend dask") from None
    from joblib._dask import DaskDistributedBackend

    class Streaming(DaskDistributedBackend):  # type: ignore[misc]
        """joblib's backend, whose caller learns of lost tasks too instead of waiting for them for ever."""

        def submit(self, func: Callable[..., Any], callback: Callable[[Any], None] | None = None) -> Future[Any]:
            future: Future[Any] = super().submit(func, callback)
            if callback is not None:
                future.add_done_callback(lambda outcome: callback(outcome) if outcome.exception() is not None else None)
            return future

        def retrieve_result_callback(self, out: Any) -> Any:
            if isinstance(out, Future):
                return out.result()
            if isinstance(out, BaseException):  # cancelled: the scheduler has gone
                raise out
            return super().retrieve_result_callback(out)

        def effective_n_jobs(self, n_jobs: int) -> int:
            # For a lone worker joblib would run everything in the caller's process.
            return max(2, int(super().effective_n_jobs(n_jobs)))

    with ExitStack() as stack:
        client = _connect(distributed, backend) if backend.cluster else _start(distributed, backend, stack)
        stack.callback(client.close, timeout=CONNECT_SECONDS)
        engine = Streaming(client=client, wait_for_workers_timeout=CONNECT_SECONDS)
        lost = (distributed.scheduler.KilledWorker, CancelledError, distributed.client.FutureCancelledError)
        # Dask itself gives the tasks of a lost worker to others, and gives up when a task has taken four with it.
        yield Workers({"n_jobs": -1, "backend": engine}, lost, attempts=0)


def _connect(distributed: Any, backend: Backend) -> Any:
    assert backend.cluster is not None
    _try_address(distributed, backend.cluster)
    try:
        client = distributed.Client(backend.cluster, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:  # TimeoutError is an OSError
        raise unreachable("Dask", backend.cluster, error) from None
    try:
        client.wait_for_workers(1, timeout=CONNECT_SECONDS)
    except (OSError, TimeoutError):
        client.close()
        raise unreachable("Dask", backend.cluster, "the scheduler is there, but no workers") from None
    return client


def _try_address(distributed: Any, address: str) -> None:
    """Contact the scheduler before creating a client: one that never connected hangs for a minute when it is closed."""

    async def greet() -> None:
        security = distributed.security.Security().get_connection_args("client")
        comm = await distributed.core.connect(address, timeout=CONNECT_SECONDS, **security)
        await comm.close()

    try:
        # In a thread of its own: a notebook has a loop already.
        with ThreadPoolExecutor(1) as pool:
            pool.submit(lambda: asyncio.run(greet())).result()
    except ValueError as error:
        raise BadInput(
            f"'{address}' is not the address of a Dask scheduler ({error}); give one like tcp://127.0.0.1:8786."
        ) from None
    except (OSError, TypeError, RuntimeError) as error:  # TimeoutError is an OSError; the others: TLS without keys
        raise unreachable("Dask", address, error) from None


def _start(distributed: Any, backend: Backend, stack: ExitStack) -> Any:
    import dask

    # Silence in the workers too: the setting reaches them when they start.
    quiet = {"distributed.logging": {"distributed": "critical", "tornado": "critical", "asyncio": "critical"}}
    stack.enter_context(dask.config.set(quiet))
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="dpcrowd-", ignore_cleanup_errors=True))
    cluster = distributed.LocalCluster(
        n_workers=backend.jobs or os.cpu_count(),
        threads_per_worker=1,
        processes=True,
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",  # None listens everywhere, at a port that another cluster may have
        memory_limit=0,  # as for local processes: no worker is paused or killed for its share of the memory
        local_directory=folder,
        silence_logs=logging.CRITICAL,
    )
    stack.callback(cluster.close, timeout=CONNECT_SECONDS)
    return distributed.Client(cluster, timeout=CONNECT_SECONDS, set_as_default=False)
