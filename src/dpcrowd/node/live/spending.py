"""What a window or horizon has cost: paid for samples, or blocked because nobody can be sure.

Both count against the budget, and what is left is the same. But a payment tells that users were exposed, and a block
that they perhaps were:

    spent    payments for samples that lie in the present window or horizon
    blocked  losses that an operator has confirmed, and payments that lie in the window only if a clock that was set
             ahead in an earlier life, or before another network's eyes, has stayed ahead (see `steps`)

No window can hold more payments than was promised. So where jumps of the clock put more into it, the rest is blocked.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dpcrowd.node.live.purse import own_promise
from dpcrowd.node.slots import SlotClock
from dpcrowd.node.storage import Entry, Storage, UserBounds
from dpcrowd.privacy import Guarantee
from dpcrowd.privacy.units import format_epsilon

__all__ = ["Spending", "spending"]


@dataclass(frozen=True)
class Spending:
    """Nano-epsilon; `text` says why something is blocked."""

    spent: int
    blocked: int
    text: str


def spending(storage: Storage, guarantee: Guarantee, clock: SlotClock, slot: int, network: str) -> Spending:
    """In the window that ends with a slot, or in the present horizon; at the prices of this network's users."""
    bounds = UserBounds(guarantee.regions_per_slot, guarantee.servers_per_slot)

    def cost(entries: Iterable[Entry], kind: str) -> int:
        return sum(bounds.cost(entry.nano, entry.bounds) for entry in entries if entry.kind == kind)

    own = own_promise(storage, network)
    if guarantee.kind == "window":
        start_ns = clock.opens(slot - guarantee.length + 1)
        counted = storage.ledger.spent_since(start_ns)
    else:
        start_ns = own.since_ns if own else 0
        counted = storage.ledger.dated_after(start_ns)
    lost, paid = cost(counted, "lost"), cost(counted, "sample")
    by_date = cost(storage.ledger.dated_after(start_ns), "sample")
    spent = max(by_date, min(paid, guarantee.total))
    reasons = []
    if lost:
        reasons.append(f"ε={format_epsilon(lost)} for losses that were confirmed")
    if paid > spent:
        reasons.append(
            f"ε={format_epsilon(paid - spent)} of older payments, because the clock was set ahead and nobody has seen "
            "whether it came back"
        )
    return Spending(spent, lost + paid - spent, f"{', and '.join(reasons)}." if reasons else "")
