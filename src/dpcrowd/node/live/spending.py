"""What a window or horizon has cost: paid for samples, or blocked because nobody can be sure; and when it comes back.

Both count against the budget, and what is left is the same. But a payment tells that users were exposed, and a block
that they perhaps were:

    spent    payments for samples that lie in the present window or horizon
    blocked  losses that an operator has confirmed, and payments that lie in the window only if a clock that was set
             ahead in an earlier life, or before another network's eyes, has stayed ahead (see `steps`)

No window can hold more payments than was promised. So where jumps of the clock put more into it, the rest is blocked.

The API, the tools and the doctor all say it by this function, so that they cannot contradict each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dpcrowd.node.ingest.times import rfc3339
from dpcrowd.node.slots import SlotClock
from dpcrowd.node.storage import Entry, Promise, Storage
from dpcrowd.privacy.units import format_epsilon

__all__ = ["Spending", "spending"]


@dataclass(frozen=True)
class Spending:
    """Nano-epsilon at the prices of a promise's users.

    text           what is blocked, why and until when; empty if nothing is
    blocked_until  the time at which nothing of it is blocked any more; None: nothing is, or only a new horizon ends it
    returns        by how much more can be paid from `returns_slot` on, the next slot in which that grows
    returns_slot   None: nothing comes back
    """

    spent: int
    blocked: int
    text: str = ""
    blocked_until: int | None = None
    returns: int = 0
    returns_slot: int | None = None

    @property
    def comes_back(self) -> str:
        """What comes back, without the time; empty if nothing does."""
        return "" if self.returns_slot is None else f"ε={format_epsilon(self.returns)} at slot {self.returns_slot}"


def spending(storage: Storage, promise: Promise, clock: SlotClock, slot: int) -> Spending:
    """Against a promise, in the window that ends with a slot of the clock, or in the horizon of that slot."""
    counted = storage.ledger.counted(promise, clock.opens(slot))
    by_date = _cost(promise, storage.ledger.dated_after(promise.reach(clock.opens(slot))), "sample")
    lost, paid = _cost(promise, counted, "lost"), _cost(promise, counted, "sample")
    spent = max(by_date, min(paid, promise.nano))
    reasons, ends = [], []
    if lost:
        ends.append(_frees(promise, clock, [entry for entry in counted if entry.kind == "lost"]))
        reasons.append(f"ε={format_epsilon(lost)} for losses that were confirmed, {_until(ends[-1])}")
    if paid > spent:
        ends.append(_fits(promise, clock, [entry for entry in counted if entry.kind == "sample"], paid))
        reasons.append(
            f"ε={format_epsilon(paid - spent)} of older payments, because the clock was set ahead and nobody has seen "
            f"whether it came back, {_until(ends[-1])}"
        )
    known = [end for end in ends if end is not None]
    back, returns = _comes_back(promise, clock, counted, lost + paid)
    return Spending(
        spent,
        lost + paid - spent,
        f"{', and '.join(reasons)}." if reasons else "",
        max(known) if known else None,
        returns,
        back,
    )


def _cost(promise: Promise, entries: Iterable[Entry], kind: str) -> int:
    return sum(promise.bounds.cost(entry.nano, entry.bounds) for entry in entries if entry.kind == kind)


def _free_slot(promise: Promise, clock: SlotClock, entry: Entry) -> int | None:
    """The first slot whose windows no longer hold a payment; None: it stays in the horizon."""
    end_ns = promise.frees(entry.closes_ns)
    return None if end_ns is None else -((clock.epoch_ns - end_ns) // clock.length_ns)


def _frees(promise: Promise, clock: SlotClock, entries: Sequence[Entry]) -> int | None:
    """When the first slot opens in which none of the entries counts; None: only in a new horizon."""
    slots = [_free_slot(promise, clock, entry) for entry in entries]
    known = [slot for slot in slots if slot is not None]
    return clock.opens(max(known)) if known and len(known) == len(slots) else None


def _fits(promise: Promise, clock: SlotClock, samples: Sequence[Entry], paid: int) -> int | None:
    """From when on no more is paid for than was promised."""
    samples = sorted(samples, key=lambda entry: entry.closes_ns)
    for place, entry in enumerate(samples):
        paid -= promise.bounds.cost(entry.nano, entry.bounds)
        if paid <= promise.nano:
            return _frees(promise, clock, samples[: place + 1])
    return _frees(promise, clock, samples)


def _until(end_ns: int | None) -> str:
    return "as long as the horizon lasts" if end_ns is None else f"until {rfc3339(end_ns)}"


def _comes_back(promise: Promise, clock: SlotClock, counted: Sequence[Entry], total: int) -> tuple[int | None, int]:
    """The next slot in which the promise allows more than now, and how much more; (None, 0): never.

    Where more counts than was promised, the first that leaves may bring nothing back.
    """
    leaving: dict[int, int] = {}
    for entry in counted:
        at = _free_slot(promise, clock, entry)
        if at is not None:
            leaving[at] = leaving.get(at, 0) + promise.bounds.cost(entry.nano, entry.bounds)
    left = max(promise.nano - total, 0)
    for at in sorted(leaving):
        total -= leaving[at]
        if promise.nano - total > left:
            return at, promise.nano - total - left
    return None, 0
