"""Collecting check-ins: distinct users of the open slots, one region each, the last one wins.

Users are known by keyed hashes only, with a key that is new in each slot; nothing here survives the slot's seal. A
slot holds a bounded number of users in memory. Beyond that nobody is turned away, since an answer that says "full"
would tell how many others there are, and one more user would displace another: the slot is counted from the journal
instead (`count_distinct`), with the same result.

Counts that were made distinct elsewhere may be given for a slot instead of check-ins. Which of the two a node takes is
a setting (`ingest.accepts`): one person's check-in cannot refuse the counts of all others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

__all__ = ["Collector", "HashedRows", "NotTaken", "Rows", "count_distinct", "pack_batch", "unpack_batch"]

HASH_BYTES = 16
_ROW = np.dtype([("user", f"V{HASH_BYTES}"), ("region", "<u4")])

Rows = tuple[Sequence[bytes], Sequence[int]]
"""Keyed hashes of users, and the number of the region of each."""
HashedRows = tuple[NDArray[np.void], NDArray[np.int64]]
"""The same as arrays."""


class NotTaken(Exception):
    """A request that cannot be taken at present; `reason` is a word that may be shown.

    Neither the reason nor the text depends on what others have sent.
    """

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


@dataclass
class _Open:
    users: dict[bytes, int] = field(default_factory=dict)
    counts: dict[int, int] | None = None
    on_disk: bool = False


class Collector:
    """The slots that are open for check-ins. A slot is fed once a request for it was taken, were it an empty one.

    regions   d; may grow while slots are open
    capacity  distinct users of a slot that are held in memory
    sealed    the last slot that is closed, with all before it
    """

    def __init__(self, regions: int, capacity: int) -> None:
        self.regions = regions
        self.capacity = capacity
        self.sealed = -1
        self._open: dict[int, _Open] = {}
        self._last_fed = False

    def add(self, slot: int, users: Sequence[bytes], regions: Sequence[int]) -> None:
        """Take check-ins (keyed hashes and regions) of a slot that is not sealed."""
        held = self._slot(slot)
        if held.on_disk:
            return
        held.users.update(zip(users, regions, strict=True))
        if len(held.users) > self.capacity:
            held.users, held.on_disk = {}, True

    def set_counts(self, slot: int, counts: Mapping[int, int]) -> None:
        """Take counts by region; a region that is not named has 0. Giving a slot's counts again replaces them."""
        self._slot(slot).counts = dict(counts)

    def fed(self, slot: int) -> bool:
        """Whether anything was taken for a slot, which is open or the last one that was sealed."""
        return self._last_fed if slot == self.sealed else slot in self._open

    def seal(self, slot: int) -> NDArray[np.int64] | None:
        """The counts of a slot, which is closed with all slots before it and forgotten; None: count the journal."""
        if slot >= self.sealed:
            self.sealed, self._last_fed = slot, self.fed(slot)
        held = self._open.pop(slot, _Open())
        for old in [open_slot for open_slot in self._open if open_slot <= slot]:
            del self._open[old]
        if held.on_disk:
            return None
        if held.counts is None:
            regions = np.fromiter(held.users.values(), dtype=np.int64, count=len(held.users))
            return np.bincount(regions, minlength=self.regions).astype(np.int64)
        vector = np.zeros(self.regions, dtype=np.int64)
        for region, count in held.counts.items():
            vector[region] = count
        return vector

    def _slot(self, slot: int) -> _Open:
        if slot <= self.sealed:
            raise ValueError(f"slot {slot} is sealed; the caller has to know.")
        return self._open.setdefault(slot, _Open())


def count_distinct(read: Callable[[], Iterable[HashedRows]], regions: int, capacity: int) -> NDArray[np.int64]:
    """Users by region, the last region of each, of rows that `read` gives in their order, as often as it is called.

    The rows are gone through once for each part of the users, chosen by their hashes, so that about `capacity` rows
    are in memory at a time.
    """
    rows = sum(len(users) for users, _ in read())
    parts = max(1, -(-rows // capacity))
    counts = np.zeros(regions, dtype=np.int64)
    for part in range(parts):
        users, places = _of_part(read(), part, parts)
        # Stable, so that among the rows of a user the last one stays last.
        order = np.lexsort((users[:, 1], users[:, 0]))
        users, places = users[order], places[order]
        last = np.ones(len(users), dtype=np.bool_)
        last[:-1] = (users[1:] != users[:-1]).any(axis=1)
        counts += np.bincount(places[last], minlength=regions)
    return counts


def _of_part(batches: Iterable[HashedRows], part: int, parts: int) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """The rows whose users belong to a part, with a hash as two numbers."""
    found = [np.empty((0, 2), dtype=np.uint64)]
    places = [np.empty(0, dtype=np.int64)]
    for users, regions in batches:
        halves = np.ascontiguousarray(users).view("<u8").reshape(-1, 2)
        mine = halves[:, 0] % np.uint64(parts) == part
        found.append(halves[mine])
        places.append(regions[mine])
    return np.concatenate(found), np.concatenate(places)


def pack_batch(users: Sequence[bytes], regions: Sequence[int]) -> bytes:
    """A batch for the journal: 20 bytes per check-in."""
    rows = np.empty(len(users), dtype=_ROW)
    rows["user"] = np.frombuffer(b"".join(users), dtype=f"V{HASH_BYTES}")
    rows["region"] = regions
    return rows.tobytes()


def unpack_batch(blob: bytes) -> HashedRows:
    """Users and regions again from what `pack_batch` made."""
    rows = np.frombuffer(blob, dtype=_ROW)
    return np.ascontiguousarray(rows["user"]), rows["region"].astype(np.int64)
