"""What records say together: sums of information over the records that each server has (Relay, "fuse").

A record of origin o is z = H r + noise per region, with the public share H and the variance V of its noise. Its receiver
derives everything else itself:

    R = alpha V + Var(counts given r)                   as in `observation`, at the receiver's reference level
    y = sum over the records of H z / R                 Y = sum over the records of H^2 / R

in ascending order of the origins, so that whoever has the same records has the same bits.

Guard. With a reference (mean, variance) for the slot a record of region k has the innovation n = z - H mean, whose
variance is R + H^2 variance. Where n^2 is more than `limit` times that, R is multiplied by n^2 / (limit variance): the
farther off, the less it counts, and its pull is bounded. `penalty` multiplies R by what the origin has earned before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcrowd.filters.observation import ROUNDING, Observation

__all__ = ["RecordTable", "Reference", "record_sums"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class RecordTable:
    """The records of one slot, by origin.

    noisy   (O, d)
    var     (O,) alpha times the variance of the noise; 0: there is no record
    shares  (O,)
    """

    noisy: Floats
    var: Floats
    shares: Floats


@dataclass(frozen=True)
class Reference:
    """What a receiver compares the records of a slot with; arrays of N receivers.

    level     (N, d) the counts that it expects
    var       (N, d) their variance; infinite: nothing is known
    penalty   (N, servers per run) factors >= 1 by origin, or None
    limit     of the squared normalised innovation; infinite: no guard
    """

    level: Floats
    var: Floats
    penalty: Floats | None = None
    limit: float = np.inf


def record_sums(
    indptr: NDArray[np.integer],
    indices: NDArray[np.integer],
    table: RecordTable,
    reference: Reference,
    observation: Observation,
    process_var: Floats,
    servers: int,
    engine: str = "scipy",
) -> tuple[Floats, Floats]:
    """y and Y of each receiver, (N, d); row i of (indptr, indices) lists the origins whose records it may have."""
    penalty = np.ones((1, 1)) if reference.penalty is None else reference.penalty
    paper = observation == "paper"
    if engine == "numba" and (compiled := _kernel()) is not None:
        y, info = np.zeros_like(reference.level), np.zeros_like(reference.level)
        compiled(
            indptr, indices, table.noisy, table.var, table.shares, reference.level, reference.var, penalty,
            reference.limit, paper, process_var, servers, y, info,
        )  # fmt: skip
        return y, info
    rows = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    there = table.var[indices] > 0.0
    rows, origins = rows[there], indices[there].astype(np.int64)
    variance = pair_var(rows, origins, table, reference, observation, process_var, servers)
    share = table.shares[origins][:, None]
    weight = share / variance
    return _add_up(rows, weight * table.noisy[origins], len(indptr) - 1), _add_up(rows, weight * share, len(indptr) - 1)


def pair_var(
    rows: NDArray[np.integer],
    origins: NDArray[np.integer],
    table: RecordTable,
    reference: Reference,
    observation: Observation,
    process_var: Floats,
    servers: int,
) -> Floats:
    """R of each record (origin) for each of its receivers (row), guard and penalty included, (pairs, d)."""
    share = table.shares[origins][:, None]
    level, level_var = reference.level[rows], reference.var[rows]
    if observation == "paper":
        spread = share * share * process_var
    else:  # where nothing is known the record itself says how many there may be
        expected = np.where(np.isfinite(level_var), level, table.noisy[origins] / share)
        spread = share * (1.0 - share) * np.maximum(expected, 1.0)
    variance = table.var[origins][:, None] + np.maximum(spread, ROUNDING)
    if np.isfinite(reference.limit):
        off = table.noisy[origins] - share * level
        around = variance + share * share * level_var
        ratio = off * off / (reference.limit * around)
        variance = np.where(ratio > 1.0, variance * ratio, variance)
    if reference.penalty is not None:
        variance = variance * reference.penalty[rows, origins % servers][:, None]
    return np.asarray(variance)


def _add_up(rows: NDArray[np.integer], values: Floats, count: int) -> Floats:
    """Sums of the rows of `values` by `rows`, which ascend; one addition after the other."""
    from scipy.sparse import csr_array

    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=count))])
    ones = csr_array((np.ones(len(rows)), np.arange(len(rows)), indptr), shape=(count, len(rows)))
    sums: Floats = ones @ values
    return sums


def _loop_sums(
    indptr: Any, indices: Any, noisy: Any, var: Any, shares: Any, level: Any, level_var: Any, penalty: Any,
    limit: float, paper: bool, process_var: Any, servers: int, y: Any, info: Any,
) -> None:  # fmt: skip
    regions = noisy.shape[1]
    for i in range(indptr.shape[0] - 1):
        for e in range(indptr[i], indptr[i + 1]):
            o = indices[e]
            noise = var[o]
            if noise <= 0.0:
                continue
            share = shares[o]
            factor = 1.0
            if penalty.shape[0] > 1 or penalty.shape[1] > 1:
                factor = penalty[i, o % servers]
            for k in range(regions):
                expected = level[i, k]
                if paper:
                    spread = share * share * process_var[k]
                else:
                    own = expected if level_var[i, k] < np.inf else noisy[o, k] / share
                    spread = share * (1.0 - share) * max(own, 1.0)
                variance = noise + max(spread, 1.0 / 12.0)
                if limit < np.inf:
                    off = noisy[o, k] - share * expected
                    around = variance + share * share * level_var[i, k]
                    ratio = off * off / (limit * around)
                    if ratio > 1.0:
                        variance = variance * ratio
                variance = variance * factor
                weight = share / variance
                y[i, k] += weight * noisy[o, k]
                info[i, k] += weight * share


@cache
def _kernel() -> Callable[..., Any] | None:
    if find_spec("numba") is None:
        return None
    import numba

    compiled: Callable[..., Any] = numba.njit(cache=True)(_loop_sums)
    return compiled
