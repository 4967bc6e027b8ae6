"""Which server has which record: records travel one hop per round, and a server passes each of them on once.

A record is identified by its origin and its slot. In every round a server sends its neighbours the records that it has
learned in the round before (in the first round of a slot also its own record of that slot), but not back to a neighbour
that has just sent them. Since every server passes records on at once, a record that is learned in the r-th round after
it was made has travelled exactly r hops; so "up to R hops" means "in the first R rounds", and no hops are counted.

There are two representations of the sets, with the same results: bits for every pair of servers (`bit_spread`), and
lists, for networks in which a record reaches few of many servers (`sparse_spread`). This module has the rounds of a
slot, for both.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcrowd.arrays import Bools, Ints
from dpcrowd.kernels.engine import Engine, compiled
from dpcrowd.kernels.spreading import list_speakers, measure_records
from dpcrowd.network.costs import varint_bytes
from dpcrowd.network.gather import unsigned
from dpcrowd.network.graph import Graph
from dpcrowd.network.hearing import Hearing

__all__ = ["Held", "Holdings", "OneHop", "Spread", "Traffic", "holdings_arrays", "one_hop_holdings", "record_totals"]


@dataclass(frozen=True)
class Holdings:
    """The records of one slot that each server has: row i of a sparse matrix lists origins in ascending order.

    Origins are numbered over all runs. An origin in the list need not have a record of this slot.
    """

    indptr: NDArray[np.integer]
    indices: NDArray[np.integer]

    @classmethod
    def none(cls, receivers: int) -> Holdings:
        """Return the holdings of receivers that have no records."""
        return cls(np.zeros(receivers + 1, dtype=np.int64), np.zeros(0, dtype=np.int64))


@dataclass
class Traffic:
    """What was sent in a slot, by run.

    packets      transmissions over links: all records that a server sends to a neighbour in one round are one packet
    records      records in them
    value_bytes  bytes of the noisy integers in these records
    senders      (rounds, N) which servers had anything to send, in runs in which anything was sent in that round: a
                 record does not go back to whoever has just sent it, so the last round may be an empty one
    """

    packets: Ints
    records: Ints
    value_bytes: NDArray[np.float64]
    senders: Bools

    @classmethod
    def none(cls, runs: int, servers: int) -> Traffic:
        """Return the traffic of a slot in which nothing was sent, in runs with this many servers each."""
        senders = np.zeros((0, runs * servers), dtype=np.bool_)
        return cls(np.zeros(runs, dtype=np.int64), np.zeros(runs, dtype=np.int64), np.zeros(runs), senders)

    @classmethod
    def one_hop(cls, totals: Ints, speaks: Bools) -> Traffic:
        """Return the traffic of a slot in which every server that speaks sends one record over each of its links.

        totals  of the records, as `record_totals` returns them
        """
        return cls(totals[3].copy(), totals[3].copy(), totals[2].astype(np.float64), speaks[None])


def record_totals(
    noisy: NDArray[np.float64], speaks: Bools, degree: NDArray[np.integer], runs: int, engine: Engine = "numpy"
) -> Ints:
    """Return totals of the records that some servers make in a slot, by run, (4, runs).

    They are: bytes of their integers, records, and both once more with a record counted once per link of its server.
    """
    totals = np.zeros((4, runs), dtype=np.int64)
    if (loop := compiled(measure_records, engine)) is not None:
        loop(noisy, speaks, degree, len(speaks) // runs, totals)
        return totals
    sizes = np.zeros(len(speaks), dtype=np.int64)
    sizes[speaks] = varint_bytes(noisy[speaks]).sum(axis=1)
    links = np.where(speaks, degree, 0)
    for row, values in zip(totals, (sizes, speaks, links * sizes, links), strict=True):
        row[:] = values.reshape(runs, -1).sum(axis=1)
    return totals


class Held(ABC):
    """Which server has which records of the last `lag` slots, in a simulation; slot t is at place t mod lag."""

    @abstractmethod
    def holdings(self, slot: int, engine: Engine = "numpy", rows: Bools | None = None) -> Holdings:
        """Return which server has which records of a slot; of servers that are not in `rows` it need not say."""

    @abstractmethod
    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return all of the content, for inspection: a simulation is never restored."""


class OneHop(Held):
    """Records with a reach of one hop: a server's neighbours have its record at once, and nothing is passed on."""

    def __init__(self, receivers: int, lag: int) -> None:
        self._by_place = [Holdings.none(receivers)] * lag

    def put(self, slot: int, holdings: Holdings) -> None:
        """Let a new slot take the place of the one that is too old now."""
        self._by_place[slot % len(self._by_place)] = holdings

    def holdings(self, slot: int, engine: Engine = "numpy", rows: Bools | None = None) -> Holdings:
        return self._by_place[slot % len(self._by_place)]

    def arrays(self) -> dict[str, NDArray[Any]]:
        return holdings_arrays("have", self._by_place)


def one_hop_holdings(hearing: Hearing, speaks: Bools) -> Holdings:
    """Return who hears the records that some servers make in a slot; the compiled engine leaves the others out."""
    indptr, indices = unsigned(hearing.matrix.indptr), unsigned(hearing.matrix.indices)
    if hearing.mutual and (loop := compiled(list_speakers, hearing.engine)) is not None:
        return Holdings(*loop(indptr, indices, speaks))
    return Holdings(indptr, indices)


def holdings_arrays(name: str, by_place: Sequence[Holdings]) -> dict[str, NDArray[Any]]:
    """Return the arrays of holdings, by dotted names."""
    each = [(f"{name}.{place}", held) for place, held in enumerate(by_place)]
    return {f"{path}.{part}": array for path, held in each for part, array in vars(held).items()}


class Spread(Held):
    """Records of the last `lag` slots that travel several hops; `servers` are those of one run."""

    def __init__(self, runs: int, servers: int, lag: int) -> None:
        self.runs, self.servers, self.lag = runs, servers, lag

    @abstractmethod
    def open(self, slot: int, speaks: Bools) -> None:
        """Let a new slot take the place of the one that is too old now; servers that speak have their own record."""

    @abstractmethod
    def forget_senders(self) -> None:
        """Forget what was sent in the last round: the links are new, and the neighbours are others."""

    @abstractmethod
    def keep_to_themselves(self, places: Ints) -> None:
        """Stop passing on the records of these slots."""

    @abstractmethod
    def senders(self, places: Ints) -> Bools:
        """Return which servers have records of these slots to pass on, (N,)."""

    @abstractmethod
    def pass_on(self, graph: Graph, places: Ints, engine: Engine) -> tuple[Ints, Ints, Bools]:
        """Play one round. Return packets and records by run, and (places, N) who has learned anything of which slot."""

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
        """Play the rounds of a slot; with `rounds` and `reach` None, until no server has anything to send.

        same_links  whether the links are those of the slot before, so that nothing is sent back over them

        Returns the oldest slot of which each server has learned anything, else this slot, (N,); and what was sent.
        """
        traffic, rows = Traffic.none(self.runs, self.servers), list[Bools]()
        oldest = np.full(self.runs * self.servers, slot, dtype=np.int64)
        if not same_links:
            self.forget_senders()
        while rounds is None or len(rows) < rounds:
            ages = np.arange(min(self.lag, slot + 1))
            if reach is not None:
                # A record of age a has travelled a K hops before this slot; with K = None it is everywhere already.
                travelled = ages * rounds + len(rows) if rounds is not None else np.where(ages == 0, len(rows), reach)
                ages = ages[travelled < reach]
            places = (slot - ages) % self.lag
            if reach is not None:
                self.keep_to_themselves(np.setdiff1d(np.arange(self.lag), places))
            senders = self.senders(places)
            if not senders.any():
                break
            packets, records, learned = self.pass_on(graph, places, engine)
            traffic.packets += packets
            traffic.records += records
            rows.append(senders & np.repeat(packets > 0, self.servers))
            for age, who in zip(ages, learned, strict=True):
                oldest[who] = np.minimum(oldest[who], slot - age)
        if rows:
            traffic.senders = np.stack(rows)
        return oldest, traffic
