"""What only a demo knows: the truth of each slot, and what simpler ways of publishing the same counts would show.

    truth  the exact counts of all people, per region
    alone  the first server without neighbours: the network's scheme and budget, only its own counts
    naive  the first server with the scheme `uniform`: ε/w in every slot, no filter, no neighbours

All three are computed in the demo's own process and are never sent to a node. The people are made up, or public; with
real people each of the two further releases would have to be paid for from the same budget.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from dpcrowd.arrays import Floats, Ints
from dpcrowd.demo.crowd import Present
from dpcrowd.node.config import load_network
from dpcrowd.privacy import SecureNoise
from dpcrowd.schemes.base import Scheme, half_width
from dpcrowd.schemes.registry import make_scheme
from dpcrowd.schemes.server import Server

__all__ = ["ComparisonColumns", "DemoComparison"]

_MOST_SLOTS = 10_000

Column = list[float | None]


class ComparisonColumns(msgspec.Struct, frozen=True, kw_only=True):
    """The slots after one that a reader has, as columns; null where a number is not known.

    note     where the people come from, as a phrase
    server   whose counts `alone` and `naive` use
    regions  names of the regions, in the order of the lists of columns
    """

    note: str
    server: str
    regions: list[str]
    slots: list[int]
    truth: Column
    alone: Column
    alone_half_width: Column
    naive: Column
    naive_half_width: Column
    truth_regions: list[Column]
    alone_regions: list[Column]
    naive_regions: list[Column]


@dataclass(frozen=True)
class _Slot:
    """One slot: the truth, NaN if it is not known, and (estimate, half width) of both other ways, per region."""

    slot: int
    truth: Floats
    alone: tuple[Floats, Floats]
    naive: tuple[Floats, Floats]


class DemoComparison:
    """Computes and keeps the last slots; the demo's feeder adds them, the demo's page reads them."""

    def __init__(self, network: Path, note: str, regions: tuple[str, ...], server_of: Ints) -> None:
        config = load_network(network)
        first = config.servers[0]
        setting = config.setting(first.name)

        def lone_server(scheme: Scheme) -> Server:
            return Server(scheme, setting, SecureNoise(), number=0, share=first.share)

        def make_servers() -> tuple[Server, Server]:
            return lone_server(config.scheme()), lone_server(make_scheme("uniform"))

        self._make_servers = make_servers
        self._alone, self._naive = make_servers()
        self._note, self._regions, self._own = note, regions, server_of == 0
        self._server = first.name
        self._slots: deque[_Slot] = deque(maxlen=_MOST_SLOTS)
        self._lock = threading.Lock()

    def warm_up(self) -> None:
        """Load what the first slot needs, which takes longer than all later ones, before anybody waits for it."""
        for server in self._make_servers():
            _release(server, 0, np.zeros(len(self._regions), dtype=np.int64))

    def add(self, slot: int, present: Present, in_time: bool) -> None:
        """Add a slot that was fed; if some check-ins came too late, nobody knows what was counted in it."""
        counts = np.bincount(present.regions, minlength=len(self._regions))
        own = np.bincount(present.regions[self._own[present.people]], minlength=len(self._regions))
        row = _Slot(
            slot,
            counts.astype(np.float64) if in_time else np.full(len(self._regions), np.nan),
            _release(self._alone, slot, own),
            _release(self._naive, slot, own),
        )
        with self._lock:
            self._slots.append(row)

    def after(self, slot: int) -> ComparisonColumns:
        """Return all later slots that are kept."""
        with self._lock:
            slots = [row for row in self._slots if row.slot > slot]
        truth = _table([row.truth for row in slots], len(self._regions))
        alone, alone_half = (_table([row.alone[part] for row in slots], len(self._regions)) for part in range(2))
        naive, naive_half = (_table([row.naive[part] for row in slots], len(self._regions)) for part in range(2))
        return ComparisonColumns(
            note=self._note,
            server=self._server,
            regions=list(self._regions),
            slots=[row.slot for row in slots],
            truth=_column(truth.sum(axis=0)),
            alone=_column(alone.sum(axis=0)),
            alone_half_width=_column(np.sqrt(np.square(alone_half).sum(axis=0))),
            naive=_column(naive.sum(axis=0)),
            naive_half_width=_column(np.sqrt(np.square(naive_half).sum(axis=0))),
            truth_regions=[_column(row) for row in truth],
            alone_regions=[_column(row) for row in alone],
            naive_regions=[_column(row) for row in naive],
        )


def _release(server: Server, slot: int, counts: Ints) -> tuple[Floats, Floats]:
    """Return what a server without neighbours releases: estimate and half of its 95% interval."""
    server.observe(slot, counts)
    release = server.hear()
    return release.estimate, half_width(release.variance)


def _table(rows: list[Floats], regions: int) -> Floats:
    """Return regions by slots."""
    return np.array(rows, dtype=np.float64).reshape(len(rows), regions).T


def _column(numbers: Floats) -> Column:
    return [round(number, 3) if np.isfinite(number) else None for number in numbers.tolist()]
