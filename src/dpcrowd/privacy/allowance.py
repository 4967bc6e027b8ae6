"""The answer of an account: what a slot may cost, which promise binds, what is spent or blocked, and what comes back.

**Spent and blocked.** Both count against the budget, and what is left is the same. But a payment tells that users were
exposed, and a block that they perhaps were:

    spent    payments for samples that lie in the present window or horizon
    blocked  losses that an operator has confirmed, and payments that lie in the window only if a clock that was set
             ahead in an earlier life, or before another network's eyes, has stayed ahead (see `clock_jumps`)

No window can hold more payments than was promised. So where jumps of the clock put more into it, the rest is blocked.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from dpcrowd.privacy.promise import Promise, UserBounds
from dpcrowd.privacy.units import NANO, format_epsilon

if TYPE_CHECKING:
    from dpcrowd.privacy.account import Account

__all__ = ["Allowance", "by_revision"]


@dataclass(frozen=True)
class Allowance:
    """Of the slot that opens at `opens_ns`.

    nano      what it may cost
    promise   the one that allows no more
    counted   what is used up of that one: the cost, to its users, of all payments that close after `after_ns`
    account   which was asked
    """

    nano: int
    promise: Promise
    counted: int
    after_ns: int
    opens_ns: int
    account: Account = field(repr=False)

    # ------------------------------------------------------------------------------------- of the promise that binds

    @property
    def weighted(self) -> bool:
        """Whether some payments count more for the users of the promise than they cost: see `promise`."""
        payments, after_ns = self.account.payments, self.after_ns
        paid = sum(payments.cost(UserBounds(), after_ns, kind) for kind in ("sample", "lost"))
        return self.counted > paid or self.promise.bounds.cost(NANO, self.account.own.payer) != NANO

    @property
    def lost(self) -> bool:
        """Whether losses that were confirmed are why more is used up than the promise allows."""
        losses = self.account.payments.cost(self.promise.bounds, self.after_ns, "lost")
        return self.counted > self.promise.nano and losses > 0

    @cached_property
    def returns(self) -> tuple[int | None, int]:
        """The next own slot in which the promise allows more again, and how much; (None, 0): never."""
        slots, promise = self.account.slots, self.promise
        if promise.span_ns is None:
            return None, 0
        in_order = not any(jump.left_ns for jump in self.account.jumps)
        back: dict[int, int] = {}
        for payment in self.account.counted(promise, self.opens_ns):
            # The first slot whose windows no longer hold it.
            slot = slots.slot_of((promise.frees(payment.closes_ns) or 0) - 1) + 1
            if in_order and back and slot not in back:
                break  # what closed later comes back later
            back[slot] = back.get(slot, 0) + promise.bounds.cost(payment.nano, payment.bounds)
        return min(back.items()) if back else (None, 0)

    @property
    def pays_again_ns(self) -> int | None:
        """When so much has left the window that anything more can be paid; None: never, or nothing was paid."""
        promise, left = self.promise, self.counted
        for payment in sorted(self.account.counted(promise, self.opens_ns), key=lambda one: one.closes_ns):
            left -= promise.bounds.cost(payment.nano, payment.bounds)
            if left < promise.nano:
                return promise.frees(payment.closes_ns)
        return None

    # --------------------------------------------------------------------------------- of the own window or horizon

    @cached_property
    def spent(self) -> int:
        """Nano-epsilon of samples in the own window or horizon, as much as they cost the own users."""
        own, payments = self.account.own, self.account.payments
        by_date = payments.cost(own.bounds, own.span_start(self.opens_ns), "sample")
        return max(by_date, min(self._samples, own.nano))

    @property
    def blocked(self) -> int:
        """Nano-epsilon that counts against the own budget beside that."""
        return self._losses + self._samples - self.spent

    @property
    def blocked_text(self) -> str:
        """Why something is blocked; empty if nothing is."""
        reasons = []
        if self._losses:
            reasons.append(f"ε={format_epsilon(self._losses)} for losses that were confirmed")
        if self._samples > self.spent:
            reasons.append(
                f"ε={format_epsilon(self._samples - self.spent)} of older payments, because the clock was set ahead "
                "and nobody has seen whether it came back"
            )
        return f"{', and '.join(reasons)}." if reasons else ""

    @cached_property
    def _samples(self) -> int:
        own, account = self.account.own, self.account
        return account.payments.cost(own.bounds, own.span_start(self.opens_ns, account.jumps), "sample")

    @cached_property
    def _losses(self) -> int:
        own, account = self.account.own, self.account
        return account.payments.cost(own.bounds, own.span_start(self.opens_ns, account.jumps), "lost")

    # ---------------------------------------------------------------------------------------------------------- why

    @property
    def is_over(self) -> bool:
        """Whether the own horizon has ended before the slot."""
        return self.account.is_over(self.opens_ns)

    @property
    def shortage(self) -> str:
        """Why nothing can be sampled in the slot for want of budget; empty if something can.

        No scheme asks for less than an even share, epsilon / w or epsilon / T.
        """
        own, slots, first = self.account.own, self.account.slots, self.account.first_slot
        slot, count = slots.slot_of(self.opens_ns), slots.count
        if self.is_over and count is not None:
            how = by_revision(own.network) if own.roaming else "dpcrowd node new-horizon"
            return (
                f"the horizon of {count} slots ended with slot {first + count - 1}; a new one is a new promise: {how}."
            )
        if self.nano >= max(own.nano // (count or own.nano), 1):
            return ""
        if own.span_ns is None and slot < first:
            return f"slot {slot} is of a horizon that has ended; the present one begins with slot {first}."
        return self._used_up()

    def _used_up(self) -> str:
        promise, more = self.promise, self.counted > self.promise.nano
        counted, promised = format_epsilon(self.counted), format_epsilon(promise.nano)
        whose = f" for users {promise.bounds}" if self.weighted else ""
        if promise.network != self.account.network:
            how_much = f"but ε={counted} is spent already." if more else f"of which {counted} is spent."
            return f"network '{promise.network}' shares this ledger and promises ε={promised}{whose}, {how_much}"
        if more and self.weighted:
            return f"ε={counted} counts as spent{whose}, more than the {promised} that is promised."
        if self.lost:
            return (
                f"with losses that were confirmed ε={counted} counts as spent, more than the {promised} that is "
                "promised."
            )
        if more:
            return f"ε={counted} is spent, more than the {promised} that is promised now."
        return f"ε={counted} of {promised} is spent{whose}."


def by_revision(network: str) -> str:
    """How a horizon begins for all servers of a network alike."""
    return (
        f"write the next revision of the network.toml of '{network}' with [network] valid_from_slot and [guarantee] "
        "horizon_from_slot at the same slot, and take it at all servers with 'dpcrowd node reload'"
    )
