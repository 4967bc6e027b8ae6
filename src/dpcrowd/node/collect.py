"""Collecting check-ins: distinct users of the open slots, one region each, the last one wins.

Users are known by keyed hashes only, with a key that is new in each slot; nothing here survives the slot's seal. Counts
that were made distinct elsewhere may be given for a slot instead, but a slot takes one or the other: their sum could
count a user twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

__all__ = ["Collector", "NotTaken", "Rows", "pack_batch", "unpack_batch"]

HASH_BYTES = 16
_ROW = np.dtype([("user", f"V{HASH_BYTES}"), ("region", "<u4")])

Rows = tuple[Sequence[bytes], Sequence[int]]
"""Keyed hashes of users, and the number of the region of each."""


class NotTaken(Exception):
    """Check-ins or counts that a slot does not take; `reason` is a word that may be shown, never a number of people.

    slot  which it is that says no; None: none of them, or not one alone
    """

    def __init__(self, reason: str, text: str, slot: int | None = None) -> None:
        super().__init__(text)
        self.reason = reason
        self.slot = slot


@dataclass
class _Open:
    users: dict[bytes, int] = field(default_factory=dict)
    counts: dict[int, int] | None = None


class Collector:
    """The slots that are open for check-ins. A slot is fed once a request for it was taken, were it an empty one.

    regions   d; may grow while slots are open
    capacity  distinct users that one slot can hold
    sealed    the last slot that is closed, with all before it
    """

    def __init__(self, regions: int, capacity: int) -> None:
        self.regions = regions
        self.capacity = capacity
        self.sealed = -1
        self._open: dict[int, _Open] = {}
        self._last_fed = False

    def add(self, slot: int, users: Sequence[bytes], regions: Sequence[int]) -> None:
        """Take check-ins (keyed hashes and regions); all of them or, with `NotTaken`, none."""
        self.add_all({slot: (users, regions)})

    def add_all(self, parts: Mapping[int, Rows]) -> None:
        """Take check-ins of several slots; all of them or, with `NotTaken`, none: no slot if one says no."""
        for slot, (users, _) in parts.items():
            self._check(slot, users)
        for slot, rows in parts.items():
            self.restore(slot, *rows)

    def restore(self, slot: int, users: Sequence[bytes], regions: Sequence[int]) -> None:
        """Take check-ins that were acknowledged before: a capacity that is smaller now does not lose them."""
        self._slot(slot).users.update(zip(users, regions, strict=True))

    def set_counts(self, slot: int, counts: Mapping[int, int]) -> None:
        """Take counts by region; a region that is not named has 0. Giving a slot's counts again replaces them."""
        self._refuse_sealed(slot)
        if slot in self._open and self._open[slot].users:
            raise NotTaken("mixed", f"slot {slot} was given check-ins: it takes no counts.")
        self._slot(slot).counts = dict(counts)

    def fed(self, slot: int) -> bool:
        """Whether anything was taken for a slot, which is open or the last one that was sealed."""
        return self._last_fed if slot == self.sealed else slot in self._open

    def seal(self, slot: int) -> NDArray[np.int64]:
        """The counts of a slot, which is closed with all slots before it and forgotten."""
        if slot >= self.sealed:
            self.sealed, self._last_fed = slot, self.fed(slot)
        held = self._open.pop(slot, _Open())
        for old in [open_slot for open_slot in self._open if open_slot <= slot]:
            del self._open[old]
        if held.counts is None:
            regions = np.fromiter(held.users.values(), dtype=np.int64, count=len(held.users))
            return np.bincount(regions, minlength=self.regions).astype(np.int64)
        vector = np.zeros(self.regions, dtype=np.int64)
        for region, count in held.counts.items():
            vector[region] = count
        return vector

    def _check(self, slot: int, users: Sequence[bytes]) -> None:
        self._refuse_sealed(slot)
        held = self._open.get(slot)
        if held is None:
            held = _Open()
        if users and held.counts is not None:
            raise NotTaken("mixed", f"slot {slot} was given counts: it takes no check-ins.", slot)
        if len(held.users) + len(users) > self.capacity:
            # An upper bound first, the exact number only when it matters: most users are new in a slot.
            distinct = set(users)
            if len(distinct) > self.capacity:
                text = f"more users than a slot can hold; allowed: {self.capacity} (capacity of node.toml). Send fewer."
                raise NotTaken("too-large", text)
            new = sum(1 for user in distinct if user not in held.users)
            if len(held.users) + new > self.capacity:
                raise NotTaken("full", f"slot {slot} has no room for more users; try again in the next slot.")

    def _refuse_sealed(self, slot: int) -> None:
        if slot <= self.sealed:
            raise NotTaken("late", f"slot {slot} is sealed.", slot)

    def _slot(self, slot: int) -> _Open:
        return self._open.setdefault(slot, _Open())


def pack_batch(users: Sequence[bytes], regions: Sequence[int]) -> bytes:
    """A batch for the journal: 20 bytes a check-in."""
    rows = np.empty(len(users), dtype=_ROW)
    rows["user"] = np.frombuffer(b"".join(users), dtype=f"V{HASH_BYTES}")
    rows["region"] = regions
    return rows.tobytes()


def unpack_batch(blob: bytes) -> tuple[list[bytes], list[int]]:
    """Users and regions again from what `pack_batch` made."""
    rows = np.frombuffer(blob, dtype=_ROW)
    users = [user.tobytes() for user in rows["user"]]
    return users, rows["region"].tolist()
