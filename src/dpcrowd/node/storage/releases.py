"""Releases on disk: what was published for each slot, as vectors over the regions that were configured then."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from dpcrowd.errors import BadInput
from dpcrowd.node.release import SlotRelease
from dpcrowd.node.storage.database import Database
from dpcrowd.node.storage.failures import SlotTaken
from dpcrowd.privacy.units import utc_text

__all__ = ["Releases", "put_release"]

_PAGE = 500
_NEVER = (1 << 63) - 1
_COLUMNS = "slot, opens_ns, closes_ns - opens_ns, names, estimate, variance, sampled, nano, heard, factor"


class Releases:
    """The releases of one network, by the time at which their slots open."""

    def __init__(self, reader: Database, network: str) -> None:
        self._reader = reader
        self._network = network

    def latest(self, before_ns: int = _NEVER) -> SlotRelease | None:
        """Return the latest release of the slots that open before a time."""
        row = self._reader.row(
            f"SELECT {_COLUMNS} FROM release JOIN regions ON regions.id = release.regions "
            "WHERE network = ? AND opens_ns < ? ORDER BY opens_ns DESC LIMIT 1",
            (self._network, before_ns),
        )
        return None if row is None else _release(row)

    def between(
        self, from_ns: int, until_ns: int, *, regions: Sequence[str] | None = None, limit: int | None = None
    ) -> Iterator[SlotRelease]:
        """Yield the releases of slots that open in [from_ns, until_ns), oldest first.

        They are read in pages, so that a slow reader keeps no lock.
        """
        while limit is None or limit > 0:
            page = self._page(from_ns, until_ns, _PAGE if limit is None else min(limit, _PAGE))
            for release in page:
                yield release if regions is None else release.only(regions)
            if len(page) < _PAGE:
                return
            from_ns = page[-1].opens_ns + 1
            limit = None if limit is None else limit - len(page)

    def _page(self, from_ns: int, until_ns: int, size: int) -> list[SlotRelease]:
        rows = self._reader.rows(
            f"SELECT {_COLUMNS} FROM release JOIN regions ON regions.id = release.regions "
            "WHERE network = ? AND opens_ns >= ? AND opens_ns < ? ORDER BY opens_ns LIMIT ?",
            (self._network, from_ns, until_ns, size),
        )
        return [_release(row) for row in rows]


def put_release(connection: sqlite3.Connection, network: str, release: SlotRelease) -> None:
    """Store a release, inside a transaction; a slot is released only once."""
    d = len(release.regions)
    if release.estimate.shape != (d,) or release.variance.shape != (d,):
        raise BadInput(f"a release of {d} regions needs vectors of {d} numbers; given {release.estimate.shape}.")
    if connection.execute(
        "SELECT 1 FROM release WHERE network = ? AND opens_ns = ?", (network, release.opens_ns)
    ).fetchone():
        raise SlotTaken(f"slot {release.slot}, open from {utc_text(release.opens_ns)}, was released before.")
    connection.execute(
        "INSERT INTO release VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            network,
            release.opens_ns,
            release.opens_ns + release.length_ns,
            release.slot,
            _regions_id(connection, release.regions),
            release.sampled,
            release.nano,
            release.heard,
            release.factor,
            np.asarray(release.estimate, dtype="<f8").tobytes(),
            np.asarray(release.variance, dtype="<f8").tobytes(),
        ),
    )


def _regions_id(connection: sqlite3.Connection, regions: tuple[str, ...]) -> int:
    # A list of names is stored once, however many slots it is valid for.
    names = json.dumps(regions, ensure_ascii=False)
    connection.execute("INSERT INTO regions (names) VALUES (?) ON CONFLICT DO NOTHING", (names,))
    (number,) = connection.execute("SELECT id FROM regions WHERE names = ?", (names,)).fetchone()
    return int(number)


@lru_cache(maxsize=8)
def _names_of(text: str) -> tuple[str, ...]:
    """Return the names of regions; they are kept, since thousands of releases have the same."""
    return tuple(json.loads(text))


def _release(row: tuple[Any, ...]) -> SlotRelease:
    slot, opens_ns, length_ns, names, estimate, variance, sampled, nano, heard, factor = row
    return SlotRelease(
        slot=slot,
        opens_ns=opens_ns,
        length_ns=length_ns,
        regions=_names_of(names),
        estimate=np.frombuffer(estimate, dtype="<f8").astype(np.float64),
        variance=np.frombuffer(variance, dtype="<f8").astype(np.float64),
        sampled=bool(sampled),
        nano=nano,
        heard=heard,
        factor=factor,
    )
