"""One thread for the linear algebra of filters: their matrices are many and small.

NumPy's linear algebra divides a product or a decomposition among as many threads as there are cores. The matrices of
filters have some fifty rows, for which threads wait for each other longer than they compute: learned shares
(`docs/shares.md`) take several times as long with two threads as with one, and the results are the same bits.
Work is divided among processes instead (`dpcrowd.sim.backends`).

    with one_thread():  # in a program of somebody else, which gets its threads back at the end
        ...

Whoever has set one of `VARIABLES` in the environment has chosen a number of threads, and keeps it.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager

__all__ = ["VARIABLES", "begin_with_one_thread", "one_thread", "threads_are_chosen"]

VARIABLES = (
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OMP_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "GOTO_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)
"""What libraries of linear algebra read when they are loaded."""
_OURS = VARIABLES[:3]


def threads_are_chosen(environment: MutableMapping[str, str] = os.environ) -> bool:
    """Whether the user has said how many threads linear algebra may have."""
    return any(environment.get(name) for name in VARIABLES)


def begin_with_one_thread(environment: MutableMapping[str, str] = os.environ) -> None:
    """Let linear algebra have one thread in this process, and in all that it starts, unless the user has chosen.

    It is for programs that are dpcrowd's own. If NumPy is loaded already, it has its threads, and nothing changes.
    """
    if "numpy" not in sys.modules and not threads_are_chosen(environment):
        environment.update(dict.fromkeys(_OURS, "1"))


@contextmanager
def one_thread(*, chosen: bool | None = None) -> Iterator[None]:
    """Let linear algebra have one thread while the context lasts, unless the user has chosen.

    chosen  whether the user has; None: look at the environment. A worker has to be told: whoever starts workers may set
            variables for them, which is no choice of the user.
    """
    if threads_are_chosen() if chosen is None else chosen:
        yield
        return
    from threadpoolctl import threadpool_limits

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of libraries that others have loaded
        limits = threadpool_limits(1, user_api="blas")
    with limits:
        yield
