"""Check-ins of a slot, as they are counted in memory and as the journal keeps them.

Distinct users of the open slots are counted, one region each; the last check-in wins.

Users are known by keyed hashes only, with a key that is new in each slot; nothing here survives the slot's seal. A
slot holds a bounded number of users in memory. Beyond that nobody is turned away, since an answer that says "full"
would tell how many others there are, and one more user would displace another: the slot is counted from the journal
instead (`count_distinct`), with the same result.

Counts that were made distinct elsewhere may be given for a slot instead of check-ins. Which of the two a node takes is
a setting (`ingest.accepts`): one person's check-in cannot refuse the counts of all others.

The journal holds the same as records: check-ins as hashes and numbers of regions, counts by name, and names by number.
A region's number is that of one process: it depends on the order in which revisions were learnt, and a restart may find
another order. So a slot's check-ins follow the list of names that their numbers mean, as often as it has grown, and
what is read back (`replay`) is numbered anew by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
from numpy.typing import NDArray

__all__ = [
    "HASH_BYTES",
    "Collector",
    "HashedRows",
    "IntakeRefused",
    "checkins_record",
    "count_distinct",
    "counts_record",
    "names_record",
    "replay",
]

HASH_BYTES = 16
_ROW = np.dtype([("user", f"V{HASH_BYTES}"), ("region", "<u4")])
_NAMES, _CHECKINS, _COUNTS = b"r", b"u", b"n"  # the first byte of a record

HashedRows = tuple[NDArray[np.void], NDArray[np.int64]]
"""Keyed hashes of users, and the number of the region of each."""


class IntakeRefused(Exception):
    """A request that cannot be accepted at present; `reason` is a word that may be shown.

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
    """The slots that are open for check-ins. A slot is fed once a request for it was accepted, even an empty one.

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
        """Count check-ins (keyed hashes and regions) of a slot that is not sealed."""
        open_slot = self._slot(slot)
        if open_slot.on_disk:
            return
        open_slot.users.update(zip(users, regions, strict=True))
        if len(open_slot.users) > self.capacity:
            open_slot.users, open_slot.on_disk = {}, True

    def set_counts(self, slot: int, counts: Mapping[int, int]) -> None:
        """Take counts by region; a region that is not named has 0. Giving a slot's counts again replaces them."""
        self._slot(slot).counts = dict(counts)

    def fed(self, slot: int) -> bool:
        """Whether anything was accepted for a slot, which is open or the last one that was sealed."""
        return self._last_fed if slot == self.sealed else slot in self._open

    def seal(self, slot: int) -> NDArray[np.int64] | None:
        """Close a slot and all before it, and return its counts, which are then forgotten; None: count the journal."""
        if slot >= self.sealed:
            self.sealed, self._last_fed = slot, self.fed(slot)
        contents = self._open.pop(slot, _Open())
        for old in [open_slot for open_slot in self._open if open_slot <= slot]:
            del self._open[old]
        if contents.on_disk:
            return None
        if contents.counts is None:
            regions = np.fromiter(contents.users.values(), dtype=np.int64, count=len(contents.users))
            return np.bincount(regions, minlength=self.regions).astype(np.int64)
        vector = np.zeros(self.regions, dtype=np.int64)
        for region, count in contents.counts.items():
            vector[region] = count
        return vector

    def _slot(self, slot: int) -> _Open:
        if slot <= self.sealed:
            raise ValueError(f"slot {slot} is sealed; the caller has to know.")
        return self._open.setdefault(slot, _Open())


def count_distinct(read: Callable[[], Iterable[HashedRows]], regions: int, capacity: int) -> NDArray[np.int64]:
    """Count users by the last region of each, of rows that `read` gives in their order, as often as it is called.

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
    """Return the rows whose users belong to a part, with a hash as two numbers."""
    hashes = [np.empty((0, 2), dtype=np.uint64)]
    places = [np.empty(0, dtype=np.int64)]
    for users, regions in batches:
        halves = np.ascontiguousarray(users).view("<u8").reshape(-1, 2)
        mine = halves[:, 0] % np.uint64(parts) == part
        hashes.append(halves[mine])
        places.append(regions[mine])
    return np.concatenate(hashes), np.concatenate(places)


# ------------------------------------------------------------------------------------------------ journal records


def names_record(names: Sequence[str]) -> bytes:
    """Return the record that says what the region numbers of the check-ins after it mean."""
    return _NAMES + msgspec.msgpack.encode(list(names))


def checkins_record(hashes: Sequence[bytes], regions: Sequence[int]) -> bytes:
    """Return the record of one request, 20 bytes per check-in; an empty one says that the feed was there."""
    rows = np.empty(len(hashes), dtype=_ROW)
    rows["user"] = np.frombuffer(b"".join(hashes), dtype=f"V{HASH_BYTES}")
    rows["region"] = regions
    return _CHECKINS + rows.tobytes()


def counts_record(counts: Mapping[str, int]) -> bytes:
    """Return the record of counts by the names of regions."""
    return _COUNTS + msgspec.msgpack.encode(dict(counts))


def replay(records: Iterable[bytes], regions: Mapping[str, int]) -> Iterator[HashedRows | dict[int, int]]:
    """Give check-ins and counts of a slot in their order, by the region numbers of now; unknown regions are dropped."""
    numbers = np.empty(0, dtype=np.int64)
    for record in records:
        kind, content = record[:1], record[1:]
        if kind == _NAMES:
            names = msgspec.msgpack.decode(content, type=list[str])
            numbers = np.array([regions.get(name, -1) for name in names], dtype=np.int64)
        elif kind == _COUNTS:
            counts = msgspec.msgpack.decode(content, type=dict[str, int])
            yield {regions[name]: count for name, count in counts.items() if name in regions}
        elif kind == _CHECKINS:
            rows = np.frombuffer(content, dtype=_ROW)
            users, places = np.ascontiguousarray(rows["user"]), rows["region"].astype(np.int64)
            named = places < len(numbers)
            named[named] = numbers[places[named]] >= 0
            yield users[named], numbers[places[named]]
