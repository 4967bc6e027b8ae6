"""Who has which record: records travel one hop per round, and a server passes each of them on once, when it is new.

A record is known by its origin and its slot. In every round a server sends its neighbours what it has learned in the
round before (in the first round of a slot also its own record of that slot), but not back to the neighbour that has
just sent it. Since every server passes on at once, a record that is learned in the r-th round after it was made has
travelled exactly r hops; so "up to R hops" means "in the first R rounds", and no hops have to be counted.

Sets are bits: of each slot one row of words per server, a bit per origin of its run. Rounds are plain Python that Numba
compiles; the NumPy twin does the same, and is the oracle in the tests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpcrowd.network.gather import unsigned
from dpcrowd.network.graph import Graph

__all__ = ["Holdings", "Spread", "Traffic"]

Words = NDArray[np.uint64]
Ints = NDArray[np.int64]

_WORD = 64


@dataclass(frozen=True)
class Holdings:
    """Which records of one slot each server has: row i of a sparse matrix lists origins in ascending order.

    Origins are numbered over all runs. An origin in the list need not have a record of this slot.
    """

    indptr: NDArray[np.integer]
    indices: NDArray[np.integer]


    @classmethod
    def none(cls, receivers: int) -> Holdings:
        return cls(np.zeros(receivers + 1, dtype=np.int64), np.zeros(0, dtype=np.int64))


@dataclass
class Traffic:
    """What was sent in a slot, by run.

    packets       transmissions over links: all records that a server sends to a neighbour in one round are one packet
    records       records in them
    rounds        rounds in which anything was sent, (runs,)
    """

    packets: Ints
    records: Ints
    rounds: Ints

    @classmethod
    def none(cls, runs: int) -> Traffic:
        return cls(*(np.zeros(runs, dtype=np.int64) for _ in range(3)))

    @classmethod
    def one_hop(cls, degree: NDArray[np.integer], speaks: NDArray[np.bool_], runs: int) -> Traffic:
        """Whoever speaks sends one record over each of its links."""
        packets: Ints = np.where(speaks, degree, 0).reshape(runs, -1).sum(axis=1, dtype=np.int64)
        return cls(packets, packets.copy(), (packets > 0).astype(np.int64))


@dataclass
class Spread:
    """Of the last `lag` slots; slot t is at place t mod lag.

    MOST_SERVERS  per run: beyond, bits for every pair of servers are too many

    have    (lag, N, words) what each server has
    fresh   the same, of what it has learned in the last round and passes on in the next one
    before  the same, of what it passed on in the last round
    """

    MOST_SERVERS: ClassVar[int] = 8192

    runs: int
    servers: int
    lag: int
    have: Words
    fresh: Words
    before: Words

    @classmethod
    def start(cls, runs: int, servers: int, lag: int) -> Spread:
        """Nobody has anything; `servers` per run."""
        shape = (lag, runs * servers, -(-servers // _WORD))
        return cls(runs, servers, lag, *(np.zeros(shape, dtype=np.uint64) for _ in range(3)))

    def open(self, slot: int, speaks: NDArray[np.bool_]) -> None:
        """A new slot takes the place of the one that is too old now; whoever speaks has its own record."""
        place = slot % self.lag
        for words in (self.have, self.fresh, self.before):
            words[place] = 0
        rows = np.flatnonzero(speaks)
        word, bit = np.divmod(rows % self.servers, _WORD)
        bits = np.left_shift(np.uint64(1), bit.astype(np.uint64))
        self.have[place, rows, word] = bits
        self.fresh[place, rows, word] = bits

    def exchange(
        self, slot: int, graph: Graph, rounds: int | None, reach: int | None, *, same_links: bool, engine: str = "scipy"
    ) -> tuple[list[int], Traffic]:
        """The rounds of a slot; `rounds` and `reach` None: as many as there is something to say.

        same_links  whether the links are those of the slot before, so that nothing is sent back over them
        Gives the slots of which anybody has learned anything, this one among them, ascending; and what was sent.
        """
        step = _kernel() if engine == "numba" else None
        step = step or pass_on
        traffic, changed, done = Traffic.none(self.runs), {slot}, 0
        if not same_links:
            self.before[:] = 0
        while rounds is None or done < rounds:
            ages = np.arange(min(self.lag, slot + 1))
            if reach is not None:
                # A record of age a has done a K rounds before this slot; with K = None it is everywhere already.
                travelled = ages * rounds + done if rounds is not None else np.where(ages == 0, done, reach)
                ages = ages[travelled < reach]
            places = (slot - ages) % self.lag
            if reach is not None:
                idle = np.setdiff1d(np.arange(self.lag), places)
                self.fresh[idle] = 0
            if not self.fresh[places].any():
                break
            packets, records = np.zeros(self.runs, dtype=np.int64), np.zeros(self.runs, dtype=np.int64)
            learned = np.zeros(len(places), dtype=np.bool_)
            step(
                unsigned(graph.indptr), unsigned(graph.indices), places, self.have, self.fresh, self.before,
                self.servers, packets, records, learned,
            )  # fmt: skip
            traffic.packets += packets
            traffic.records += records
            traffic.rounds += packets > 0
            changed.update((slot - ages[learned]).tolist())
            done += 1
        return sorted(changed), traffic

    def holdings(self, slot: int, engine: str = "scipy") -> Holdings:
        """Who has which records of a slot."""
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
    learned: NDArray[np.bool_],
) -> None:
    """One round, in array operations: everybody sends what is fresh, and has learned what it did not have."""
    count = len(indptr) - 1
    degree = np.diff(indptr.astype(np.int64))
    senders = np.repeat(np.arange(count), degree)
    run = senders // servers
    sent = np.zeros(len(senders), dtype=np.int64)
    new = np.zeros((len(places), *fresh.shape[1:]), dtype=np.uint64)
    linked = np.flatnonzero(degree)
    for place_number, place in enumerate(places):
        sent += np.bitwise_count(fresh[place][senders] & ~before[place][indices]).sum(axis=1, dtype=np.int64)
        if len(linked):
            gathered = np.bitwise_or.reduceat(fresh[place][indices], indptr[:-1][linked].astype(np.int64), axis=0)
            new[place_number, linked] = gathered & ~have[place][linked]
        learned[place_number] = bool(new[place_number].any())
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
        anything = False
        for i in range(count):
            for w in range(words):
                x = np.uint64(0)
                for e in range(indptr[i], indptr[i + 1]):
                    x |= fresh[place, indices[e], w]
                x &= ~have[place, i, w]
                new[i, w] = x
                anything = anything or x != 0
        learned[p] = anything
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
