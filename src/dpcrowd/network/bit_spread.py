"""Who has which record, as bits: of each slot one row of words per server, a bit per origin of its run.

Rounds are array operations here, and compiled loops in `kernels.spreading` that do the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcrowd.arrays import Bools, Ints
from dpcrowd.kernels import spreading
from dpcrowd.kernels.engine import Engine, compiled
from dpcrowd.kernels.spreading import pass_on_bits
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
        step = compiled(pass_on_bits, engine) or pass_on
        step(
            unsigned(graph.indptr), unsigned(graph.indices), places, self.have, self.fresh, self.before,
            self.servers, packets, records, learned,
        )  # fmt: skip
        return packets, records, learned

    def holdings(self, slot: int, engine: Engine = "numpy") -> Holdings:
        have = self.have[slot % self.lag]
        return Holdings(*(compiled(spreading.list_bits, engine) or list_bits)(have, self.servers))


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
