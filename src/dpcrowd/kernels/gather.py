"""Sum the rows of a table over each server's neighbours.

The oracle is the sparse product in `dpcrowd.network.gather`.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from dpcrowd.arrays import Floats

__all__ = ["add_rows", "unsigned"]


def unsigned(indices: NDArray[Any]) -> NDArray[Any]:
    """Return a view of the indices as unsigned numbers.

    It spares compiled loops the test for negative indices, which is half of the time of `add_rows`.
    """
    return indices.view(f"u{indices.itemsize}")


def add_rows(indptr: NDArray[Any], indices: NDArray[Any], table: Floats, out: Floats) -> None:
    """Set out[i] to the sum of table[j] over j in indices[indptr[i]:indptr[i + 1]], added in this order.

    Four columns at a time stay in registers; each column's additions keep their order, so no bit changes.
    """
    servers = indptr.shape[0] - 1
    columns = table.shape[1]
    in_fours = columns - columns % 4
    for i in range(servers):
        for k in range(0, in_fours, 4):
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
        for k in range(in_fours, columns):
            a = 0.0
            for e in range(indptr[i], indptr[i + 1]):
                a += table[indices[e], k]
            out[i, k] = a
