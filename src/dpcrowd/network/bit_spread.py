"""Who has which record, as bits: of each slot one row of words per server, a bit per origin of its run.

Rounds are plain Python that Numba compiles; the NumPy twin does the same, and is the oracle in the tests.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcrowd.arrays import Bools, Ints
from dpcrowd.kernels.engine import Engine
from dpcrowd.network.gather import unsigned
from dpcrowd.network.graph import Graph
from dpcrowd.network.spread import Holdings, Spread

__all__ = ["BitSpread"]

Words = NDArray[np.uint64]

_WORD = 64


class BitSpread(Spread):
    """Sets as bits.

    have    (lag, N, words) what each server has
    fresh   the same, of what it has learned in the last round and passes on in the next one
    before  the same, of what it passed on in the last round
    """

    def __init__(self, runs: int, servers: int, lag: int) -> None:
        super().__init__(runs, servers, lag)
        shape = (lag, runs * servers, -(-servers // _WORD))
        self.have, self.fresh, self.before = (np.zeros(shape, dtype=np.uint64) for _ in range(3))

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {"have": self.have, "fresh": self.fresh, "before": self.before}

    def open(self, slot: int, speaks: Bools) -> None:
        place = slot % self.lag
        for words in (self.have, self.fresh, self.before):
            words[place] = 0
        rows = np.flatnonzero(speaks)
        word, bit = np.divmod(rows % self.servers, _WORD)
        bits = np.left_shift(np.uint64(1), bit.astype(np.uint64))
        self.have[place, rows, word] = bits
        self.fresh[place, rows, word] = bits

    def forget_senders(self) -> None:
        self.before[:] = 0

    def keep_to_themselves(self, places: Ints) -> None:
        self.fresh[places] = 0

    def senders(self, places: Ints) -> Bools:
        return np.asarray(self.fresh[places].any(axis=(0, 2)))

    def pass_on(self, graph: Graph, places: Ints, engine: Engine) -> tuple[Ints, Ints, Bools]:
        packets, records = np.zeros(self.runs, dtype=np.int64), np.zeros(self.runs, dtype=np.int64)
        learned = np.zeros((len(places), self.fresh.shape[1]), dtype=np.bool_)
        step = (_kernel() if engine == "numba" else None) or pass_on
        step(
            unsigned(graph.indptr), unsigned(graph.indices), places, self.have, self.fresh, self.before,
            self.servers, packets, records, learned,
        )  # fmt: skip
        return packets, records, learned

    def holdings(self, slot: int, engine: Engine = "numpy") -> Holdings:
        have = self.have[slot % self.lag]
        if engine == "numba" and (compiled := _listing()) is not None:
            return Holdings(*compiled(have, self.servers))
        return Holdings(*list_bits(have, self.servers))


def list_bits(have: Words, servers: int) -> tuple[Ints, Ints]:
    """Rows of bits as sparse rows of origins, numbered over all runs."""
    rows = len(have)
    bits = np.unpackbits(have.view(np.uint8).reshape(rows, -1), axis=1, bitorder="little")[:, :servers]
    who, origin = np.nonzero(bits)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(who, minlength=rows))]).astype(np.int64)
    return indptr, (origin + who // servers * servers).astype(np.int64)


def pass_on(
    indptr: NDArray[Any],
    indices: NDArray[Any],
    places: Ints,
    have: Words,
    fresh: Words,
    before: Words,
    servers: int,
    packets: Ints,
    records: Ints,
    learned: Bools,
) -> None:
    """One round, in array operations: everybody sends what is fresh, and has learned what it did not have."""
    starts = indptr.astype(np.int64)
    degree = starts[1:] - starts[:-1]
    senders = np.repeat(np.arange(len(degree)), degree)
    run = senders // servers
    sent = np.zeros(len(senders), dtype=np.int64)
    new = np.zeros((len(places), *fresh.shape[1:]), dtype=np.uint64)
    linked = np.flatnonzero(degree)
    for place_number, place in enumerate(places):
        sent += np.bitwise_count(fresh[place][senders] & ~before[place][indices]).sum(axis=1, dtype=np.int64)
        if len(linked):
            gathered = np.bitwise_or.reduceat(fresh[place][indices], starts[:-1][linked], axis=0)
            new[place_number, linked] = gathered & ~have[place][linked]
        learned[place_number] = new[place_number].any(axis=1)
    packets += np.bincount(run, weights=sent > 0, minlength=len(packets)).astype(np.int64)
    records += np.bincount(run, weights=sent, minlength=len(records)).astype(np.int64)
    before[places] = fresh[places]
    have[places] |= new
    fresh[places] = new


def _loop_pass_on(
    indptr: Any, indices: Any, places: Any, have: Any, fresh: Any, before: Any, servers: int, packets: Any,
    records: Any, learned: Any,
) -> None:  # fmt: skip
    count, words = fresh.shape[1], fresh.shape[2]
    for i in range(count):
        run = i // servers
        for e in range(indptr[i], indptr[i + 1]):
            j = indices[e]
            sent = 0
            for p in range(places.shape[0]):
                place = places[p]
                for w in range(words):
                    x = fresh[place, i, w] & ~before[place, j, w]
                    while x:  # count the bits that are set
                        x &= x - np.uint64(1)
                        sent += 1
            if sent:
                packets[run] += 1
                records[run] += sent
    new = np.zeros((count, words), dtype=np.uint64)
    for p in range(places.shape[0]):
        place = places[p]
        for i in range(count):
            anything = False
            for w in range(words):
                x = np.uint64(0)
                for e in range(indptr[i], indptr[i + 1]):
                    x |= fresh[place, indices[e], w]
                x &= ~have[place, i, w]
                new[i, w] = x
                anything = anything or x != 0
            learned[p, i] = anything
        for i in range(count):
            for w in range(words):
                before[place, i, w] = fresh[place, i, w]
                fresh[place, i, w] = new[i, w]
                have[place, i, w] |= new[i, w]


def _loop_list_bits(have: Any, servers: int) -> Any:
    count, words = have.shape
    indptr = np.zeros(count + 1, dtype=np.int64)
    for i in range(count):
        total = 0
        for w in range(words):
            x = have[i, w]
            while x:
                x &= x - np.uint64(1)
                total += 1
        indptr[i + 1] = indptr[i] + total
    indices = np.empty(indptr[count], dtype=np.int64)
    for i in range(count):
        at, first = indptr[i], i // servers * servers
        for w in range(words):
            x = have[i, w]
            bit = 0
            while x:
                if x & np.uint64(1):
                    indices[at] = first + w * 64 + bit
                    at += 1
                x >>= np.uint64(1)
                bit += 1
    return indptr, indices


@cache
def _kernel() -> Callable[..., Any] | None:
    if find_spec("numba") is None:
        return None
    import numba

    compiled: Callable[..., Any] = numba.njit(cache=True)(_loop_pass_on)
    return compiled


@cache
def _listing() -> Callable[..., Any] | None:
    if find_spec("numba") is None:
        return None
    import numba

    compiled: Callable[..., Any] = numba.njit(cache=True)(_loop_list_bits)
    return compiled
