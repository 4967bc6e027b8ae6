"""Releases on disk: what was published for each slot, as vectors over the regions that were configured then.

Beside them are smoothed slots (`Server.smoothed`): the same slots, estimated again with the records that came later. A
smoothed slot is replaced after each release until it is older than the lag; a release never changes. With a smoothed
slot are stored its measurements, what its records say by themselves: the records are deleted when the slot is final.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from dpcrowd.arrays import Floats
from dpcrowd.errors import BadInput
from dpcrowd.node.release import SlotRelease, SmoothedSlots
from dpcrowd.node.storage.database import Database
from dpcrowd.node.storage.failures import SlotTaken
from dpcrowd.privacy.units import utc_text

__all__ = ["Releases", "put_release", "put_smoothed"]

_PAGE = 500
_NEVER = (1 << 63) - 1
_RELEASES = """SELECT slot, opens_ns, closes_ns - opens_ns, names, estimate, variance, sampled, nano, heard, factor,
    NULL, NULL
    FROM release JOIN regions ON regions.id = release.regions"""
# A slot that the server has missed was not released: it was not sampled, either.
_SMOOTHED = """SELECT smoothed.slot, opens_ns, smoothed.closes_ns - opens_ns, names,
    smoothed.estimate, smoothed.variance, coalesce(sampled, 0), coalesce(nano, 0), coalesce(heard, 0), smoothed.factor,
    measurement, measurement_var
    FROM smoothed JOIN regions ON regions.id = smoothed.regions LEFT JOIN release USING (network, opens_ns)"""


class Releases:
    """The releases of one network, by the time at which their slots open."""

    def __init__(self, reader: Database, network: str) -> None:
        self._reader = reader
        self._network = network

    def latest(self, before_ns: int = _NEVER) -> SlotRelease | None:
        """Return the latest release of the slots that open before a time."""
        row = self._reader.row(
            f"{_RELEASES} WHERE network = ? AND opens_ns < ? ORDER BY opens_ns DESC LIMIT 1",
            (self._network, before_ns),
        )
        return None if row is None else _release(row)

    def between(
        self, from_ns: int, until_ns: int, *, regions: Sequence[str] | None = None, limit: int | None = None
    ) -> Iterator[SlotRelease]:
        """Yield the releases of slots that open in [from_ns, until_ns), oldest first.

        They are read in pages, so that a slow reader keeps no lock.
        """
        return self._read(_RELEASES, from_ns, until_ns, regions, limit)

    def smoothed(
        self, from_ns: int, until_ns: int, *, regions: Sequence[str] | None = None, limit: int | None = None
    ) -> Iterator[SlotRelease]:
        """Yield the smoothed slots in the same way; slots that have never been smoothed are left out."""
        return self._read(_SMOOTHED, from_ns, until_ns, regions, limit)

    def has_smoothed(self) -> bool:
        """Whether any slot of this network was smoothed."""
        return self._reader.row("SELECT 1 FROM smoothed WHERE network = ? LIMIT 1", (self._network,)) is not None

    def _read(
        self, query: str, from_ns: int, until_ns: int, regions: Sequence[str] | None, limit: int | None
    ) -> Iterator[SlotRelease]:
        while limit is None or limit > 0:
            page = self._page(query, from_ns, until_ns, _PAGE if limit is None else min(limit, _PAGE))
            for release in page:
                yield release if regions is None else release.only(regions)
            if len(page) < _PAGE:
                return
            from_ns = page[-1].opens_ns + 1
            limit = None if limit is None else limit - len(page)

    def _page(self, query: str, from_ns: int, until_ns: int, size: int) -> list[SlotRelease]:
        rows = self._reader.rows(
            f"{query} WHERE network = ? AND opens_ns >= ? AND opens_ns < ? ORDER BY opens_ns LIMIT ?",
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


def put_smoothed(connection: sqlite3.Connection, network: str, release: SlotRelease, smoothed: SmoothedSlots) -> None:
    """Store past slots as they are estimated after a release, inside a transaction, instead of what was stored."""
    d = len(release.regions)
    shape = len(smoothed.slots), d
    arrays = smoothed.estimate, smoothed.variance, smoothed.measurement, smoothed.measurement_var
    if any(array.shape != shape for array in arrays):
        size = smoothed.estimate.shape
        raise BadInput(f"{shape[0]} smoothed slots of {d} regions need as many numbers; given {size}.")
    regions = _regions_id(connection, release.regions)
    rows = []
    for slot, *numbers in zip(smoothed.slots.tolist(), *arrays, strict=True):
        opens_ns = release.opens_ns + (slot - release.slot) * release.length_ns
        vectors = (np.asarray(vector, dtype="<f8").tobytes() for vector in numbers)
        rows.append((network, opens_ns, opens_ns + release.length_ns, slot, regions, release.factor, *vectors))
    connection.executemany(
        "INSERT INTO smoothed VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (network, opens_ns) DO UPDATE SET "
        "closes_ns = excluded.closes_ns, slot = excluded.slot, regions = excluded.regions, factor = excluded.factor, "
        "estimate = excluded.estimate, variance = excluded.variance, measurement = excluded.measurement, "
        "measurement_var = excluded.measurement_var",
        rows,
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
    slot, opens_ns, length_ns, names, estimate, variance, sampled, nano, heard, factor, *measured = row
    measurement, measurement_var = (None if part is None else _vector(part) for part in measured)
    return SlotRelease(
        slot=slot,
        opens_ns=opens_ns,
        length_ns=length_ns,
        regions=_names_of(names),
        estimate=_vector(estimate),
        variance=_vector(variance),
        sampled=bool(sampled),
        nano=nano,
        heard=heard,
        factor=factor,
        measurement=measurement,
        measurement_var=measurement_var,
    )


def _vector(content: bytes) -> Floats:
    return np.frombuffer(content, dtype="<f8").astype(np.float64)
