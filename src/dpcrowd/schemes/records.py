"""Records of one server: what it passes on, what it accepts, and what it refuses.

In a simulation the records of all servers lie in one table, and `network.spread` says which server has which. A server
on its own has a mailbox: the records of the last L slots that it has received, each once. It accepts a record

- that is not older than the lag; older ones are counted as too late,
- that it does not have yet: two records of one origin and slot are the same record,
- whose epsilon is not above the public price of a sample: an origin that names a large epsilon gains no weight by it,
- that joins no regions into groups, unless the network's scheme does.

Which of the accepted records count is decided by the public account of their origin. With n samples per w slots, evenly
spread, any w slots hold at most n. The account is the moment until which an origin's records have paid (the virtual
scheduling algorithm, GCRA), in units of 1/n slot. The slots of an origin are gone through in their order, whatever the
order in which its records have arrived: one of slot s counts if n s >= paid_until - (n - 1), since slots are integers,
and then paid_until = max(paid_until, n s) + w. An origin that samples too often gains no weight by it, and servers with
the same records agree on which of them count: it is a function of the set of records. That is why a record above the
account is kept and passed on as well. A record of an earlier slot that arrives later may change which of them count;
the filter then runs again from the first slot that has changed.

Every record of an origin that respects its account counts, whatever its phase and however often that has moved: its
k-th sample is due when n t reaches k w + offset, later by less than n, and every delay moves all later samples.

An origin that signs two different records for one slot has no record in that slot: it is void (`RecordMessages`), at
whichever of the two a server had before. A void slot pays as a record does, where the account allows it.

`Mailbox.obstacle` says whether a record would be accepted, and changes nothing: a live node asks when a record arrives,
so that it keeps and passes on only what it will use.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, fields
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dpcrowd.arrays import Bools, Ints
from dpcrowd.errors import BadInput
from dpcrowd.network.spread import Holdings
from dpcrowd.schemes.messages import Messages

__all__ = ["NOTHING_PAID", "Mailbox", "Obstacle", "RecordMessages", "ungrouped"]

Obstacle = Literal["unknown-origin", "wrong-slot", "late", "void", "hops", "price"]
"""Why a record is not accepted."""

_LARGEST = 2.0**53
NOTHING_PAID = np.iinfo(np.int64).min // 4
"""The account of an origin without any record."""


@dataclass(frozen=True)
class RecordMessages(Messages):
    """Records that a server passes on, one row each; `speaks` is true in every row.

    origin  number of the server that has paid for the record
    slot    slot of its counts
    nano    nano-epsilon that it has cost; 0: the origin has signed different records for this slot, and none counts
    hops    how many links it has travelled, including the one to the receiver
    noisy   (M, d) noisy counts: of a group, the noisy sum, at the place of its lowest region; 0 at its other regions
    groups  (M, d) the lowest region of the group in which each region is; a region by itself has its own number
    """

    origin: Ints
    slot: Ints
    nano: Ints
    hops: Ints
    noisy: NDArray[np.float64]
    groups: Ints

    @classmethod
    def of(
        cls,
        origin: Ints,
        slot: Ints,
        nano: Ints,
        hops: Ints,
        noisy: NDArray[np.float64],
        groups: Ints | None = None,
    ) -> RecordMessages:
        """Return a message with these records; without `groups`, every region is by itself."""
        groups = np.tile(ungrouped(noisy.shape[1]), (len(origin), 1)) if groups is None else groups
        return cls(np.ones(len(origin), dtype=np.bool_), origin, slot, nano, hops, noisy, groups)

    def check_values(self, sender: str) -> None:
        if not len(self.origin):  # nothing to check: most often a server has no record of its own
            return
        if not (np.abs(self.noisy) <= _LARGEST).all() or (self.noisy != np.floor(self.noisy)).any():
            raise BadInput(f"{sender} sent a record with values that are not integers of at most 2^53.")
        for name in ("origin", "slot", "nano", "hops"):
            if (getattr(self, name) < 0).any():
                raise BadInput(f"{sender} sent a record whose {name} is below 0.")
        self._check_groups(sender)

    def _check_groups(self, sender: str) -> None:
        """Refuse regions in a group that is not named by its lowest region, and values at other places than that."""
        own = ungrouped(self.groups.shape[1])
        in_range = (self.groups >= 0) & (self.groups <= own)
        names = np.where(in_range, self.groups, own)
        wrong = ~in_range | (np.take_along_axis(names, names, axis=1) != names)
        if wrong.any():
            row, region = np.argwhere(wrong)[0]
            raise BadInput(
                f"{sender} sent a record whose region {region} is in a group named {self.groups[row, region]}; "
                "allowed: the lowest region of the group, which is itself in that group."
            )
        if (misplaced := (names != own) & (self.noisy != 0)).any():
            row, region = np.argwhere(misplaced)[0]
            raise BadInput(
                f"{sender} sent a record with a value for region {region} alone, which is in the group of region "
                f"{names[row, region]}; allowed: one value per group, for its lowest region, and 0 for the others."
            )

    def check_shapes(self, own: Messages, sender: int) -> None:
        for f in fields(self):
            mine, theirs = getattr(own, f.name), getattr(self, f.name)
            if theirs.dtype != mine.dtype or theirs.shape != (len(self.origin), *mine.shape[1:]):
                raise BadInput(
                    f"server {sender} sent {f.name} of {theirs.dtype}{theirs.shape}; allowed: {mine.dtype} with "
                    f"{mine.shape[1:]} numbers per record."
                )


def ungrouped(regions: int) -> Ints:
    """Return the groups of a record in which every region is by itself, (d,)."""
    return np.arange(regions, dtype=np.int64)


@dataclass
class Mailbox:
    """The records of one server in a network of m, of the last `lag` slots; slot t is at place t mod lag.

    number       number of the server
    samples, length  n samples are allowed per w slots
    held, fresh  (lag, m) whether it has a record, and whether it has not passed it on yet
    void         (lag, m) whether the origin has signed different records for the slot
    hops         (lag, m) links that the records have travelled
    nano         (lag, m) nano-epsilon that they have cost
    paid_until   (m,) the account of each origin, after its records that are final
    late, unknown, refused  how many records came too late, named an origin that does not exist, or (m,) were above the
                            price or the account of their origin, of a slot that has not begun, or grouped
    since        the first slot of the accounts: records of earlier slots are too late
    """

    number: int
    samples: int = field(metadata={"saved": False})
    length: int = field(metadata={"saved": False})
    held: NDArray[np.bool_]
    fresh: NDArray[np.bool_]
    void: NDArray[np.bool_]
    hops: Ints
    nano: Ints
    paid_until: Ints
    late: Ints
    unknown: Ints
    refused: Ints
    since: Ints

    def __post_init__(self) -> None:
        self._known: tuple[object, Bools] | None = None

    @classmethod
    def start(cls, number: int, servers: int, lag: int, samples: int, length: int) -> Mailbox:
        """Return an empty mailbox."""
        flags, numbers = np.zeros((3, lag, servers), dtype=np.bool_), np.zeros((2, lag, servers), dtype=np.int64)
        account = np.full(servers, NOTHING_PAID)
        return cls(
            number, samples, length, flags[0].copy(), flags[1].copy(), flags[2].copy(), numbers[0].copy(),
            numbers[1].copy(), account,
            np.zeros((), dtype=np.int64), np.zeros((), dtype=np.int64), np.zeros(servers, dtype=np.int64),
            np.zeros((), dtype=np.int64),
        )  # fmt: skip

    @property
    def lag(self) -> int:
        """L."""
        return len(self.held)

    def open(self, slot: int) -> None:
        """Let a new slot take the place of the one that is final now, whose records are booked for good."""
        place, final = slot % self.lag, slot - self.lag
        if final >= self.since:
            used = self.held[place] | self.void[place]
            allowed = used & (final * self.samples >= self.paid_until - (self.samples - 1))
            spent = np.maximum(self.paid_until, final * self.samples) + self.length
            self.paid_until = np.where(allowed, spent, self.paid_until)
        self.held[place] = self.void[place] = False
        self.hops[place] = self.nano[place] = 0
        self.fresh = np.zeros_like(self.fresh)  # all records were passed on

    def open_accounts(self, first: int, last: int) -> None:
        """Let the accounts of all origins begin anew with slot `first`, when the network's budget does.

        What was above an account until now does not count later either; `last` is as in `counting`.
        """
        self.held = self.counting(last)
        self.since = np.array(first)
        self.paid_until = np.full_like(self.paid_until, NOTHING_PAID)

    def put_own(self, slot: int, nano: int) -> None:
        """Add the server's own record of a slot."""
        place = slot % self.lag
        self.held[place, self.number] = True  # passed on with the message of this slot
        self.nano[place, self.number] = nano

    def outgoing(self, reach: int | None) -> tuple[Ints, Ints]:
        """Return (place, origin) of the records to pass on."""
        place, origin = np.nonzero(self.fresh if reach is None else self.fresh & (self.hops < reach))
        return place.astype(np.int64), origin.astype(np.int64)

    def accept(self, message: RecordMessages, now: int, price: int, *, groups: bool = False) -> NDArray[np.bool_]:
        """Return which of the records are new and acceptable; these are in the mailbox from now on.

        Whether they count is another question (`counting`). Those that their origin's account does not allow are
        counted as refused.

        groups  whether records may join regions into groups
        """
        above = self._above_account(now)
        accepted = np.zeros(len(message.origin), dtype=np.bool_)
        grouped = (message.groups != ungrouped(message.groups.shape[1])).any(axis=1)
        for row, (origin, slot, nano, hops) in enumerate(
            zip(
                message.origin.tolist(),
                message.slot.tolist(),
                message.nano.tolist(),
                message.hops.tolist(),
                strict=True,
            )
        ):
            obstacle = self.obstacle(origin, slot, nano, hops, now, now, price)
            if obstacle == "unknown-origin":
                self.unknown += 1
            elif obstacle == "late":
                self.late += 1
            elif obstacle is None:
                place = slot % self.lag
                if origin == self.number or self.held[place, origin]:
                    continue
                if grouped[row] and not groups:
                    self.refused[origin] += 1
                    continue
                self.held[place, origin] = self.fresh[place, origin] = accepted[row] = True
                self.hops[place, origin], self.nano[place, origin] = hops, nano
            elif obstacle != "void":
                self.refused[origin] += 1
        if accepted.any():
            self.refused += (self._above_account(now) & ~above).sum(axis=0)
        return accepted

    def cancel(self, origin: int, slot: int, now: int) -> bool:
        """Let no record of this origin and slot count; return whether one has counted until now."""
        if not 0 <= origin < self.held.shape[1] or not max(now - self.lag + 1, int(self.since)) <= slot <= now:
            return False
        place = slot % self.lag
        counted = bool(self.held[place, origin])
        self.held[place, origin] = self.fresh[place, origin] = False
        self.void[place, origin] = True
        return counted

    def obstacle(
        self, origin: int, slot: int, nano: int, hops: int, now: int, last: int, price: int
    ) -> Obstacle | None:
        """Return why a record is not acceptable in slot `now`; None: it is, or it is in the mailbox already.

        last  the slot for which the mailbox was opened last
        """
        if not 0 <= origin < self.held.shape[1]:
            return "unknown-origin"
        if slot > now:
            return "wrong-slot"
        if slot <= now - self.lag or slot < self.since:
            return "late"
        if slot <= last:
            place = slot % self.lag
            if self.void[place, origin]:
                return "void"
            if self.held[place, origin]:
                return None
        if origin == self.number:
            return None
        if not 0 < hops < self.held.shape[1]:  # every server passes a record on once: no path is longer
            return "hops"
        return None if 0 < nano <= price else "price"

    # ------------------------------------------------------------------------------------------------- the accounts

    def counting(self, last: int) -> Bools:
        """Return which records count, (lag, m); `last` is the slot for which the mailbox was opened last.

        Most often nobody is above its account, which one pass over arrays shows: with the k-th of an origin's records
        in slot s, and v = n s - k w, all of them count if no v is below the largest one before it, or below
        paid_until - w, by n or more.
        """
        return self._counting(last).copy()

    def _counting(self, last: int) -> Bools:
        """Return `counting`, which is not to be changed; it is asked several times per slot, mostly for the same.

        What it follows from is compared, since all of that is changed in place, and from outside, too.
        """
        content = (
            last, int(self.since), self.held.tobytes(), self.void.tobytes(), self.paid_until.tobytes(),
        )  # fmt: skip
        if self._known is None or self._known[0] != content:
            self._known = content, self._find_counting(last)
        return self._known[1]

    def _find_counting(self, last: int) -> Bools:
        slots = np.arange(max(int(self.since), last - self.lag + 1, 0), last + 1)
        places = slots % self.lag
        used = (self.held | self.void)[places]
        v = np.where(used, slots[:, None] * self.samples - np.cumsum(used, axis=0) * self.length, NOTHING_PAID)
        largest = np.maximum.accumulate(np.concatenate([self.paid_until[None] - self.length, v[:-1]]), axis=0)
        if not len(slots) or not (used & (v + (self.samples - 1) < largest)).any():
            return self.held.copy()
        counting = self.held.copy()
        for origin in np.flatnonzero((used & (v + (self.samples - 1) < largest)).any(axis=0)):
            above = self.above_account(int(origin), last)
            counting[[slot % self.lag for slot in above], origin] = False
        return counting

    def above_account(self, origin: int, last: int, waiting: Collection[int] = ()) -> list[int]:
        """Return the slots of an origin's records, void ones included, that its account does not allow, in order.

        waiting  slots of records, void ones included, that are to be put into the mailbox
        """
        first = max(int(self.since), last - self.lag + 1, 0)
        used = {slot for slot in range(first, last + 1) if self._used(slot, origin)}
        until, above = int(self.paid_until[origin]), list[int]()
        for slot in sorted(used.union(waiting)):
            if slot * self.samples < until - (self.samples - 1):
                above.append(slot)
            else:
                until = max(until, slot * self.samples) + self.length
        return above

    def _above_account(self, last: int) -> Bools:
        return self.held & ~self._counting(last)

    def holds(self, origin: int, slot: int, last: int) -> bool:
        """Whether it has a record; `last` is the slot for which it was opened last."""
        return last - self.lag < slot <= last and bool(self.held[slot % self.lag, origin])

    def _used(self, slot: int, origin: int) -> bool:
        place = slot % self.lag
        return bool(self.held[place, origin] or self.void[place, origin])

    def holdings(self, slot: int, last: int) -> Holdings:
        """Return the records of a slot that count as `Spread.holdings` does, for one receiver."""
        origins = np.flatnonzero(self._counting(last)[slot % self.lag]).astype(np.int64)
        return Holdings(np.array([0, len(origins)]), origins)
