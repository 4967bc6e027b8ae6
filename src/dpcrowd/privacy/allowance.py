"""The answer of an account: what a slot may cost, which promise binds, why, and when there is more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING

from dpcrowd.privacy.network_guarantee import NetworkGuarantee, UserBounds
from dpcrowd.privacy.payments import Kind, Payment
from dpcrowd.privacy.units import NANO, format_epsilon, utc_text

if TYPE_CHECKING:
    from dpcrowd.privacy.account import Account

__all__ = ["Allowance", "Spending", "new_horizon_by_revision"]


@dataclass(frozen=True)
class Allowance:
    """Of the slot that opens at `opens_ns`.

    nano      what it may cost
    promise   the one that allows no more
    counted   what is used up of that one: the cost, to its users, of all payments that close after `after_ns`
    account   which was asked
    """

    nano: int
    guarantee: NetworkGuarantee
    counted: int
    after_ns: int
    opens_ns: int
    account: Account = field(repr=False)

    @cached_property
    def binding(self) -> Spending:
        """What is used up of the promise that binds, and when it comes back."""
        return Spending(self.guarantee, self.opens_ns, self.account)

    @cached_property
    def own(self) -> Spending:
        """What is used up of the own promise."""
        own = self.account.own
        return self.binding if own is self.guarantee else Spending(own, self.opens_ns, self.account)

    @property
    def is_weighted(self) -> bool:
        """Whether some payments count more for the users of the promise than they cost: see `promise`."""
        payments, after_ns = self.account.payments, self.after_ns
        paid = payments.cost(UserBounds(), after_ns, "sample") + payments.cost(UserBounds(), after_ns, "lost")
        return self.counted > paid or self.guarantee.bounds.cost(NANO, self.account.own.payer) != NANO

    @property
    def is_over(self) -> bool:
        """Whether the own horizon has ended before the slot."""
        return self.account.is_over(self.opens_ns)

    @property
    def is_short(self) -> bool:
        """Whether the slot can have no sample: no scheme asks for less than an even share, epsilon / w or epsilon / T.

        If it is not known how many slots there are, anything is enough.
        """
        total, count = self.account.own.nano, self.account.slots.count
        return self.is_over or self.nano < max(total // (count or total), 1)

    @property
    def shortage(self) -> str:
        """Why nothing can be sampled in the slot for want of budget; empty if something can."""
        if not self.is_short:
            return ""
        own, slots, first = self.account.own, self.account.slots, self.account.first_slot
        slot = slots.slot_of(self.opens_ns)
        if self.is_over and slots.count is not None:
            how = new_horizon_by_revision(own.network) if own.roaming else "dpcrowd node new-horizon"
            return (
                f"the horizon of {slots.count} slots ended with slot {first + slots.count - 1}; a new one is a new "
                f"promise: {how}."
            )
        if own.span_ns is None and slot < first:
            return f"slot {slot} is of a horizon that has ended; the present one begins with slot {first}."
        return self._used_up()

    def _used_up(self) -> str:
        guarantee, spent = self.guarantee, format_epsilon(self.binding.spent)
        total_promised, more = format_epsilon(guarantee.nano), self.binding.spent > guarantee.nano
        whose = f" for users {guarantee.bounds}" if self.is_weighted else ""
        if guarantee.network != self.account.network:
            how_much = f"but ε={spent} is spent already" if more else f"of which {spent} is spent"
            how_much = (
                f"network '{guarantee.network}' shares this ledger and promises ε={total_promised}{whose}, {how_much}"
            )
        elif more:
            counts, now = ("counts as", "") if self.is_weighted else ("is", " now")
            how_much = f"ε={spent} {counts} spent{whose}, more than the {total_promised} that is promised{now}"
        else:
            how_much = f"ε={spent} of {total_promised} is spent{whose}"
        return f"{how_much}, and blocked is {self.binding.text}" if self.binding.blocked else f"{how_much}."


def new_horizon_by_revision(network: str) -> str:
    """How a horizon begins for all servers of a network alike."""
    return (
        f"write the next revision of the network.toml of '{network}' with [network] valid_from_slot and [guarantee] "
        "horizon_from_slot at the same slot, and take it at all servers with 'dpcrowd node reload'"
    )


@dataclass(frozen=True)
class Spending:
    """Against a promise, in the window that ends with the slot which opens at `opens_ns`, or in the horizon of it.

    Nano-epsilon at the prices of the promise's users; slots are those of the account's own network.
    """

    guarantee: NetworkGuarantee
    opens_ns: int
    account: Account = field(repr=False)

    @cached_property
    def spent(self) -> int:
        """Paid for samples."""
        by_date = self._cost(self.guarantee.reach(self.opens_ns), "sample")
        return max(by_date, min(self._paid, self.guarantee.nano))

    @property
    def blocked(self) -> int:
        """What counts beside that."""
        return self._lost + self._paid - self.spent

    @property
    def text(self) -> str:
        """What is blocked, why and until when; empty if nothing is."""
        reasons = []
        if self._lost:
            until = _until(self._losses_leave)
            reasons.append(f"ε={format_epsilon(self._lost)} for losses that were confirmed, {until}")
        if self._paid > self.spent:
            reasons.append(
                f"ε={format_epsilon(self._paid - self.spent)} of older payments, because the clock was set ahead and "
                f"nobody has seen whether it came back, {_until(self._samples_fit)}"
            )
        return f"{', and '.join(reasons)}." if reasons else ""

    @property
    def blocked_until(self) -> int | None:
        """When nothing of it is blocked any more; None: nothing is, or only a new horizon ends it."""
        ends = [self._losses_leave if self._lost else None, self._samples_fit if self._paid > self.spent else None]
        return max((end for end in ends if end is not None), default=None)

    @cached_property
    def returns(self) -> tuple[int | None, int]:
        """The next slot in which the promise allows more than now, and how much more; (None, 0): never.

        Where more counts than was promised, the first that leaves may bring nothing back.
        """
        total = self._lost + self._paid
        left = max(self.guarantee.nano - total, 0)
        for slot, amount in self._leaving():
            total -= amount
            if self.guarantee.nano - total > left:
                return slot, self.guarantee.nano - total - left
        return None, 0

    @property
    def comes_back(self) -> str:
        """What comes back and when; empty if nothing does."""
        slot, amount = self.returns
        if slot is None:
            return ""
        return f"ε={format_epsilon(amount)} at slot {slot}, {utc_text(self.account.slots.opens(slot), exact=True)}"

    # ------------------------------------------------------------------------------------------------------- parts

    @cached_property
    def _after_ns(self) -> int:
        return self.guarantee.reach(self.opens_ns, self.account.jumps)

    @cached_property
    def _lost(self) -> int:
        return self._cost(self._after_ns, "lost")

    @cached_property
    def _paid(self) -> int:
        return self._cost(self._after_ns, "sample")

    def _cost(self, after_ns: int, kind: Kind) -> int:
        return self.account.payments.cost(self.guarantee.bounds, after_ns, kind)

    @cached_property
    def _counted(self) -> list[Payment]:
        """In the order in which they leave the window."""
        counted = self.account.counted_payments(self.guarantee, self.opens_ns)
        # Those before a jump of the clock are younger than their dates say, and no longer in order.
        moved = any(jump.left_ns for jump in self.account.jumps)
        return sorted(counted, key=lambda payment: payment.closes_ns) if moved else counted

    def _leaving(self) -> Iterator[tuple[int, int]]:
        """Slots whose windows no longer hold some payments, in order, and what those cost."""
        if self.guarantee.span_ns is None:
            return
        for slot, payments in groupby(self._counted, key=self._free_slot):
            assert slot is not None
            yield slot, sum(self.guarantee.bounds.cost(one.nano, one.bounds) for one in payments)

    def _free_slot(self, payment: Payment) -> int | None:
        """The first slot whose windows no longer hold a payment; None: it stays in the horizon."""
        end_ns = self.guarantee.frees(payment.closes_ns)
        return None if end_ns is None else self.account.slots.slot_of(end_ns - 1) + 1

    @cached_property
    def _losses_leave(self) -> int | None:
        return self._leave([payment for payment in self._counted if payment.kind == "lost"])

    @cached_property
    def _samples_fit(self) -> int | None:
        """From when on no more is paid for than was promised."""
        samples, paid = [payment for payment in self._counted if payment.kind == "sample"], self._paid
        for place, payment in enumerate(samples):
            paid -= self.guarantee.bounds.cost(payment.nano, payment.bounds)
            if paid <= self.guarantee.nano:
                return self._leave(samples[: place + 1])
        return self._leave(samples)

    def _leave(self, payments: Sequence[Payment]) -> int | None:
        """When the first slot opens in which none of the payments counts; None: only in a new horizon."""
        last = self._free_slot(payments[-1]) if payments else None
        return None if last is None else self.account.slots.opens(last)


def _until(end_ns: int | None) -> str:
    return "as long as the horizon lasts" if end_ns is None else f"until {utc_text(end_ns, exact=True)}"
