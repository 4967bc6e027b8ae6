"""Which server has which record, as lists: for networks in which a record reaches few of many servers.

Every set of a slot is a sparse matrix: row i lists the origins in ascending order. A round goes through the links of
each receiver j once: a record that its neighbour i passes on counts as sent unless j has just passed it on itself, and
is new to j unless j has it. As with bits, the compiled loop is in `kernels.spreading`.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcrowd.arrays import Bools, Ints
from dpcrowd.kernels.engine import Engine, compiled
from dpcrowd.kernels.spreading import pass_on_lists
from dpcrowd.network.gather import unsigned
from dpcrowd.network.graph import Graph
from dpcrowd.network.spread import Holdings, Spread, holdings_arrays

__all__ = ["SparseSpread"]


_CHUNK = 1 << 22  # entries that the twin expands at a time


class SparseSpread(Spread):
    """Sets of records as lists; `BitSpread` says what they are. Origins are numbered over all runs."""

    def __init__(self, runs: int, servers: int, lag: int) -> None:
        super().__init__(runs, servers, lag)
        self._all = runs * servers
        self.have, self.fresh, self.before = ([Holdings.none(self._all)] * lag for _ in range(3))

    def arrays(self) -> dict[str, NDArray[Any]]:
        sets = {"have": self.have, "fresh": self.fresh, "before": self.before}
        return {path: array for name, one in sets.items() for path, array in holdings_arrays(name, one).items()}

    def open(self, slot: int, speaks: Bools) -> None:
        place = slot % self.lag
        indptr = np.concatenate([[0], np.cumsum(speaks)]).astype(np.int64)
        own = Holdings(indptr, np.flatnonzero(speaks).astype(np.int32))
        self.have[place] = self.fresh[place] = own
        self.before[place] = Holdings.none(self._all)

    def forget_senders(self) -> None:
        self.before = [Holdings.none(self._all)] * self.lag

    def keep_to_themselves(self, places: Ints) -> None:
        for place in places:
            if self.fresh[place].indices.size:
                self.fresh[place] = Holdings.none(self._all)

    def senders(self, places: Ints) -> Bools:
        there = np.zeros(self._all, dtype=np.bool_)
        for place in places:
            if self.fresh[place].indices.size:
                there |= np.diff(self.fresh[place].indptr) > 0
        return there

    def holdings(self, slot: int, engine: Engine = "numpy", rows: Bools | None = None) -> Holdings:
        return self.have[slot % self.lag]

    def pass_on(self, graph: Graph, places: Ints, engine: Engine) -> tuple[Ints, Ints, Bools]:
        sent = np.zeros(graph.indices.size, dtype=np.int64)
        learned = np.zeros((len(places), self._all), dtype=np.bool_)
        step = compiled(pass_on_lists, engine) or spread_once
        for number, place in enumerate(places):
            fresh, nothing = self.fresh[place], Holdings.none(self._all)
            if not fresh.indices.size:
                self.before[place] = nothing
                continue
            have, before = self.have[place], self.before[place]
            indptr, indices = step(
                unsigned(graph.indptr), unsigned(graph.indices), fresh.indptr, fresh.indices, before.indptr,
                before.indices, have.indptr, have.indices, sent,
            )  # fmt: skip
            new = Holdings(indptr, indices)
            learned[number] = np.diff(indptr) > 0
            self.before[place], self.fresh[place] = fresh, new
            self.have[place] = _joined(have, new) if indices.size else have
        run = np.repeat(np.arange(self._all), graph.degree) // self.servers  # links never join two runs
        packets = np.bincount(run, weights=sent > 0, minlength=self.runs).astype(np.int64)
        return packets, np.bincount(run, weights=sent, minlength=self.runs).astype(np.int64), learned


def _joined(have: Holdings, new: Holdings) -> Holdings:
    """Return both lists of each row as one; they have nothing in common."""
    from scipy.sparse import csr_array

    rows = len(have.indptr) - 1
    one, other = (
        csr_array((np.ones(part.indices.size, dtype=np.bool_), part.indices, part.indptr), shape=(rows, rows))
        for part in (have, new)
    )
    both = one + other
    both.sort_indices()
    return Holdings(both.indptr.astype(np.int64), both.indices.astype(np.int32, copy=False))


def spread_once(
    indptr: NDArray[Any],
    indices: NDArray[Any],
    fresh_indptr: NDArray[Any],
    fresh: NDArray[Any],
    before_indptr: NDArray[Any],
    before: NDArray[Any],
    have_indptr: NDArray[Any],
    have: NDArray[Any],
    sent: Ints,
) -> tuple[Ints, NDArray[np.int32]]:
    """Play one round with one slot's records, in array operations.

    Adds to `sent`, by entry (receiver, sender) of the graph. Returns which server has learned what, as sparse rows.
    """
    starts, senders = indptr.astype(np.int64), indices.astype(np.int64)
    count = len(starts) - 1
    size = np.diff(fresh_indptr)[senders]  # number of records that come over each entry
    receiver = np.repeat(np.arange(count), starts[1:] - starts[:-1])
    sent_before, had = (_keys(part, to, count) for part, to in ((before_indptr, before), (have_indptr, have)))
    ends = np.cumsum(size)
    cuts = np.searchsorted(ends, np.arange(_CHUNK, ends.max(initial=0), _CHUNK)).tolist()
    news = [np.zeros(0, dtype=np.int64)]
    for first, last in pairwise(sorted({0, *cuts, len(size)})):
        number = size[first:last]
        entry = np.repeat(np.arange(first, last), number)
        within = np.arange(len(entry)) - np.repeat(np.cumsum(number) - number, number)
        key = receiver[entry] * count + fresh[fresh_indptr[senders[entry]] + within]
        sent += np.bincount(entry[~_contains(sent_before, key)], minlength=len(sent))
        news.append(np.unique(key[~_contains(had, key)]))
    rows, origins = np.divmod(np.unique(np.concatenate(news)), count)
    return np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=count))]), origins.astype(np.int32)


def _keys(indptr: NDArray[Any], indices: NDArray[Any], count: int) -> Ints:
    return np.asarray(np.repeat(np.arange(count), np.diff(indptr)) * count + indices, dtype=np.int64)


def _contains(ascending: Ints, keys: Ints) -> Bools:
    if not ascending.size:
        return np.zeros(len(keys), dtype=np.bool_)
    at = np.minimum(np.searchsorted(ascending, keys), ascending.size - 1)
    return np.asarray(ascending[at] == keys)
