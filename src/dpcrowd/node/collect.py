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

__all__ = ["Collector", "NotTaken", "pack_batch", "unpack_batch"]

HASH_BYTES = 16
_ROW = np.dtype([("user", f"V{HASH_BYTES}"), ("region", "<u4")])


class NotTaken(Exception):
    """Check-ins or counts that a slot does not take; `reason` is a word that may be shown, never a number of people."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


@dataclass
class _Open:
    users: dict[bytes, int] = field(default_factory=dict)
    counts: NDArray[np.int64] | None = None


class Collector:
    """The slots that are open for check-ins.

    regions   d
    capacity  distinct users that one slot can hold
    """

    def __init__(self, regions: int, capacity: int) -> None:
        self.regions = regions
        self.capacity = capacity
        self._open: dict[int, _Open] = {}
        self._sealed = -1

    def add(self, slot: int, users: Sequence[bytes], regions: Sequence[int]) -> None:
        """Take check-ins (keyed hashes and regions); all of them or, with `NotTaken`, none."""
        held = self._slot(slot)
        if held.counts is not None:
            raise NotTaken("mixed", f"slot {slot} was given counts: it takes no check-ins.")
        if len(held.users) + len(users) > self.capacity:
            # An upper bound first, the exact number only when it matters: most users are new in a slot.
            new = sum(1 for user in set(users) if user not in held.users)
            if len(held.users) + new > self.capacity:
                raise NotTaken("full", f"slot {slot} has no room for more users; try again in the next slot.")
        held.users.update(zip(users, regions, strict=True))

    def set_counts(self, slot: int, counts: Mapping[int, int]) -> None:
        """Take counts by region; a region that is not named has 0. Giving a slot's counts again replaces them."""
        held = self._slot(slot)
        if held.users:
            raise NotTaken("mixed", f"slot {slot} was given check-ins: it takes no counts.")
        vector = np.zeros(self.regions, dtype=np.int64)
        for region, count in counts.items():
            vector[region] = count
        held.counts = vector

    def seal(self, slot: int) -> NDArray[np.int64]:
        """The counts of a slot, which is closed with all slots before it and forgotten."""
        held = self._open.pop(slot, _Open())
        self._sealed = max(self._sealed, slot)
        for old in [open_slot for open_slot in self._open if open_slot <= slot]:
            del self._open[old]
        if held.counts is not None:
            return held.counts
        regions = np.fromiter(held.users.values(), dtype=np.int64, count=len(held.users))
        return np.bincount(regions, minlength=self.regions).astype(np.int64)

    def _slot(self, slot: int) -> _Open:
        if slot <= self._sealed:
            raise NotTaken("late", f"slot {slot} is sealed.")
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
