"""Which server has which record, as bits: one row of words per slot and server, one bit per origin of its run.

Rounds are array operations here, and compiled loops in `kernels.spreading` that do the same. While the links stay as
they were in the first slot, the distance between two servers says when a record arrives: the compiled engine computes
the sets of origins that are h hops away from each server (its shells) once, and needs no rounds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcrowd.arrays import Bools, Ints
from dpcrowd.kernels import spreading
from dpcrowd.kernels.engine import Engine, compiled
from dpcrowd.kernels.spreading import hop_shells, pass_on_bits, pass_on_shells
from dpcrowd.network.gather import unsigned
from dpcrowd.network.graph import Graph
from dpcrowd.network.spread import Holdings, Spread, Traffic

__all__ = ["BitSpread", "Words"]

Words = NDArray[np.uint64]

_WORD = 64


class BitSpread(Spread):
    """Sets of records as bits.

    have    (lag, N, words) the records of each server
    fresh   (lag, N, words) those that it has learned in the last round and passes on in the next one
    before  (lag, N, words) those that it passed on in the last round
    speaks  (lag, runs, words) which servers have made a record

    Over links that stay, `fresh` and `before` are not written: they follow from the shells.
    """

    def __init__(self, runs: int, servers: int, lag: int) -> None:
        super().__init__(runs, servers, lag)
        words = -(-servers // _WORD)
        shape = (lag, runs * servers, words)
        self.have, self.fresh, self.before = (np.zeros(shape, dtype=np.uint64) for _ in range(3))
        self.speaks = np.zeros((lag, runs, words), dtype=np.uint64)
        self._first: int | None = None
        self._links_stay = True
        self._shells: Words | None = None
        self._copies: Ints | None = None
        self._depth: Ints | None = None

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {"have": self.have, "fresh": self.fresh, "before": self.before, "speaks": self.speaks}

    def open(self, slot: int, speaks: Bools) -> None:
        place = slot % self.lag
        rows = np.flatnonzero(speaks)
        word, bit = np.divmod(rows % self.servers, _WORD)
        bits = np.left_shift(np.uint64(1), bit.astype(np.uint64))
        for words in (self.have, self.fresh):
            words[place] = 0
            words[place, rows, word] = bits
        self.before[place] = 0
        by_run = np.zeros((self.runs, self.speaks.shape[2] * _WORD), dtype=np.bool_)
        by_run[:, : self.servers] = speaks.reshape(self.runs, self.servers)
        self.speaks[place] = np.packbits(by_run, axis=1, bitorder="little").view("<u8")

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

    def exchange(
        self,
        slot: int,
        graph: Graph,
        rounds: int | None,
        reach: int | None,
        *,
        same_links: bool,
        engine: Engine = "numpy",
    ) -> tuple[Ints, Traffic]:
        first = self._first is None
        if first:
            self._first = slot
        elif not same_links and self._links_stay:
            self._leave_shells(slot, rounds)
        if not first and self._links_stay and compiled(pass_on_shells, engine) is not None:
            return self._exchange_by_shells(slot, graph, rounds, reach, engine)
        return super().exchange(slot, graph, rounds, reach, same_links=same_links, engine=engine)

    def _exchange_by_shells(
        self, slot: int, graph: Graph, rounds: int | None, reach: int | None, engine: Engine
    ) -> tuple[Ints, Traffic]:
        """Do what `exchange` does, over the links of the first slot."""
        indptr, indices = unsigned(graph.indptr), unsigned(graph.indices)
        if self._shells is None:
            most = min(reach or self.servers, self.servers if rounds is None else self.lag * rounds)
            measure = compiled(hop_shells, engine) or hop_shells
            self._shells, self._copies = measure(indptr, indices, self.servers, most)
            reached = self._shells.any(axis=2).reshape(len(self._shells), self.runs, -1).any(axis=2)
            self._depth = reached.sum(axis=0) - 1
        assert self._shells is not None
        shells, step = self._shells, compiled(pass_on_shells, engine) or pass_on_shells
        count = self.runs * self.servers
        traffic, rows = Traffic.none(self.runs, self.servers), list[Bools]()
        oldest = np.full(count, slot, dtype=np.int64)
        ages = np.arange(min(self.lag, slot - (self._first or 0) + 1))
        while rounds is None or len(rows) < rounds:
            travelled = ages * rounds + len(rows) if rounds is not None else np.where(ages == 0, len(rows), len(shells))
            some = travelled < (len(shells) if reach is None else min(reach, len(shells)))
            senders, slots, before = np.zeros(count, dtype=np.bool_), slot - ages[some], traffic.packets.copy()
            step(
                indptr, indices, shells, self._copies, self._depth, slots % self.lag, travelled[some], slots,
                self.speaks, self.have, self.servers, traffic.packets, traffic.records, oldest, senders,
            )  # fmt: skip
            if not senders.any():
                break
            rows.append(senders & np.repeat(traffic.packets > before, self.servers))
        if rows:
            traffic.senders = np.stack(rows)
        return oldest, traffic

    def _leave_shells(self, slot: int, rounds: int | None) -> None:
        """Write down which records are on their way: from this slot on the links are others."""
        self._links_stay = False
        if self._shells is None:
            return
        for age in range(1, min(self.lag, slot - (self._first or 0) + 1)):
            place, travelled = (slot - age) % self.lag, len(self._shells) if rounds is None else age * rounds
            speaks = np.repeat(self.speaks[place], self.servers, axis=0)
            self.fresh[place] = self._shells[travelled] & speaks if travelled < len(self._shells) else 0
        self._shells = None

    def holdings(self, slot: int, engine: Engine = "numpy", rows: Bools | None = None) -> Holdings:
        have = self.have[slot % self.lag]
        rows = np.ones(len(have), dtype=np.bool_) if rows is None else rows
        return Holdings(*(compiled(spreading.list_bits, engine) or list_bits)(have, self.servers, rows))


def list_bits(have: Words, servers: int, rows: Bools) -> tuple[Ints, Ints]:
    """Return rows of bits as sparse rows of origins, numbered over all runs; those that are not in `rows` are empty."""
    count = len(have)
    bits = np.unpackbits(have.view(np.uint8).reshape(count, -1), axis=1, bitorder="little")[:, :servers]
    who, origin = np.nonzero(bits & rows[:, None])
    indptr = np.concatenate([[0], np.cumsum(np.bincount(who, minlength=count))]).astype(np.int64)
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
    """Play one round in array operations: all servers send their fresh records, and learn those that they lack."""
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
    learned[:] = new.any(axis=2)
    packets += np.bincount(run, weights=sent > 0, minlength=len(packets)).astype(np.int64)
    records += np.bincount(run, weights=sent, minlength=len(records)).astype(np.int64)
    before[places] = fresh[places]
    have[places] |= new
    fresh[places] = new
