"""Sums over neighbours: sum over j in J_i of table[j], for all servers of all runs at once.

This is the inner loop of Algorithm 1 (sum of info_vec and of info_mat over J_i, and the consensus term). The sum of
row i starts at 0.0 and adds its columns in ascending order, so its last bit does not depend on the engine, on the
batch, or on whether a live node adds up its inbox instead.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpcrowd.arrays import Floats
from dpcrowd.errors import BadInput, unknown_name

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = ["ENGINES", "neighbour_sums", "unsigned"]

ENGINES = ("scipy", "numba")


def neighbour_sums(hearing: csr_array, table: Floats, engine: str = "scipy") -> Floats:
    """`hearing` (N x M, a sparse matrix of ones such as `Graph.hearing`) times `table` (M,) or (M, k).

    engine="numba" is almost twice as fast for a few columns once it is compiled (a second or two, once a process)
    and gives the same bits. It takes every stored entry as a one, and where Numba is not installed it is "scipy".
    """
    if engine not in ENGINES:
        raise unknown_name("engine", engine, ENGINES)
    values = np.ascontiguousarray(table, dtype=np.float64)
    if values.ndim not in (1, 2) or values.shape[0] != hearing.shape[1]:
        allowed = f"({hearing.shape[1]},) or ({hearing.shape[1]}, k)"
        raise BadInput(f"a table of shape {values.shape} was given to {hearing.shape[1]} servers; allowed: {allowed}.")
    kernel = _numba_kernel() if engine == "numba" else None
    if kernel is None:
        sums: Floats = hearing @ values
        return sums
    columns = values.reshape(values.shape[0], -1)
    out = np.empty((hearing.shape[0], columns.shape[1]))
    # Unsigned indices spare the kernel the test for negative ones, which is half of its time.
    kernel(unsigned(hearing.indptr), unsigned(hearing.indices), columns, out)
    return out.reshape(hearing.shape[0], *values.shape[1:])


def unsigned(indices: NDArray[Any]) -> NDArray[Any]:
    """The same indices as unsigned numbers, for compiled loops."""
    return indices.view(f"u{indices.itemsize}")


@cache
def _numba_kernel() -> Callable[..., Any] | None:
    """The compiled kernel, or None where Numba is missing."""
    if find_spec("numba") is None:
        return None
    import numba

    compiled: Callable[..., Any] = numba.njit(cache=True)(add_rows)
    return compiled


def add_rows(indptr: NDArray[Any], indices: NDArray[Any], table: Floats, out: Floats) -> None:
    """out[i] = sum of table[indices[indptr[i]:indptr[i + 1]]]; plain Python that Numba compiles.

    Four columns at a time stay in registers; each column's additions keep their order, so no bit changes.
    """
    servers = indptr.shape[0] - 1
    columns = table.shape[1]
    whole = columns - columns % 4
    for i in range(servers):
        for k in range(0, whole, 4):
            a, b, c, d = 0.0, 0.0, 0.0, 0.0
            for e in range(indptr[i], indptr[i + 1]):
                j = indices[e]
                a += table[j, k]
                b += table[j, k + 1]
                c += table[j, k + 2]
                d += table[j, k + 3]
            out[i, k] = a
            out[i, k + 1] = b
            out[i, k + 2] = c
            out[i, k + 3] = d
        for k in range(whole, columns):
            a = 0.0
            for e in range(indptr[i], indptr[i + 1]):
                a += table[indices[e], k]
            out[i, k] = a
