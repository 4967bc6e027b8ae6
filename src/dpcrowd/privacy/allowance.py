"""What a slot may cost: the answer of an account, with its reason and the time at which budget comes back.

`Allowance` is the answer for one slot: how much it may cost, and which network's guarantee allows no more. `Spending`
says what is used up of one guarantee, in the window that ends with the slot or in its horizon. Two things use up
budget, and they mean different things to users: a payment says that users were exposed, a block that they
may have been.

    spent    payments for samples that lie in the present window or horizon
    blocked  losses that an operator has confirmed, and payments that lie in the window only if a clock that was set
             ahead, in an earlier life of the node or while only another network was watching, has stayed ahead (see
             `clock_jumps`)

No window can hold more payments than the guarantee allows. Where jumps of the clock put more into it, the excess is
blocked. The API, the command line, the log and the doctor all ask these two objects, so they cannot contradict each
other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING

from dpcrowd.errors import counted
from dpcrowd.privacy.network_guarantee import NetworkGuarantee, UserBounds
from dpcrowd.privacy.payments import Kind, Payment
from dpcrowd.privacy.units import NANO, format_epsilon, utc_text

if TYPE_CHECKING:
    from dpcrowd.privacy.account import Account

__all__ = ["Allowance", "Spending", "new_horizon_by_revision"]


@dataclass(frozen=True)
class Allowance:
    """What the slot that opens at `opens_ns` may cost.

    nano       the largest payment that is allowed, in nano-epsilon
    guarantee  the guarantee that allows no more
    counted    what is used up of that guarantee: what all payments that close after `after_ns` cost its users
    account    the account that gave this answer
    """

    nano: int
    guarantee: NetworkGuarantee
    counted: int
    after_ns: int
    opens_ns: int
    account: Account = field(repr=False)

    @cached_property
    def binding(self) -> Spending:
        """What is used up of the guarantee that binds, and when it comes back."""
        return Spending(self.guarantee, self.opens_ns, self.account)

    @cached_property
    def own(self) -> Spending:
        """What is used up of the guarantee of the account's own network."""
        own = self.account.own
        return self.binding if own is self.guarantee else Spending(own, self.opens_ns, self.account)

    @property
    def is_weighted(self) -> bool:
        """Whether some payments cost the users of the guarantee more than was paid; `network_guarantee` says why."""
        payments, after_ns = self.account.payments, self.after_ns
        amount = payments.cost(UserBounds(), after_ns, "sample") + payments.cost(UserBounds(), after_ns, "lost")
        return self.counted > amount or self.guarantee.bounds.cost(NANO, self.account.own.payer) != NANO

    @property
    def is_over(self) -> bool:
        """Whether the horizon of the account's own network has ended before the slot."""
        return self.account.is_over(self.opens_ns)

    @property
    def is_short(self) -> bool:
        """Whether the slot cannot be sampled: no scheme asks for less than an even share, epsilon / w or epsilon / T.

        If the number of slots is unknown, any amount above 0 is enough.
        """
        total, count = self.account.own.nano, self.account.slots.count
        return self.is_over or self.nano < max(total // (count or total), 1)

    @property
    def shortage(self) -> str:
        """Why the budget allows no sample in the slot; empty if it allows one."""
        if not self.is_short:
            return ""
        own, slots, first = self.account.own, self.account.slots, self.account.first_slot
        slot = slots.slot_of(self.opens_ns)
        if self.is_over and slots.count is not None:
            command = new_horizon_by_revision(own.network) if own.roaming else "dpcrowd node new-horizon"
            return (
                f"the horizon of {counted(slots.count, 'slot')} ended with slot {first + slots.count - 1}; a new one "
                f"is a new promise: {command}."
            )
        if own.span_ns is None and slot < first:
            return f"slot {slot} belongs to a horizon that has ended; the present one begins with slot {first}."
        return self._used_up()

    def _used_up(self) -> str:
        """Say how much of the binding guarantee is spent and how much is blocked."""
        guarantee, spent = self.guarantee, format_epsilon(self.binding.spent)
        total, exceeded = format_epsilon(guarantee.nano), self.binding.spent > guarantee.nano
        if 0 <= guarantee.nano - self.binding.spent <= guarantee.nano // _LEFT_OVER:
            spent = total
        whose = f" for users {guarantee.bounds}" if self.is_weighted else ""
        if guarantee.network != self.account.network:
            state = f"but ε={spent} is spent already" if exceeded else f"of which {spent} is spent"
            text = f"network '{guarantee.network}' shares this ledger and promises ε={total}{whose}, {state}"
        elif exceeded:
            counts, now = ("counts as", "") if self.is_weighted else ("is", " now")
            text = f"ε={spent} {counts} spent{whose}, more than the {total} that is promised{now}"
        else:
            text = f"ε={spent} of {total} is spent{whose}"
        return f"{text}, and blocked is {self.binding.text}" if self.binding.blocked else f"{text}."


_LEFT_OVER = 1_000_000
"""A millionth of a budget is what equal parts of it leave over; in words, all of it is spent then."""


def new_horizon_by_revision(network: str) -> str:
    """Say how a new horizon begins at all servers of a network in the same slot."""
    return (
        f"write the next revision of the network.toml of '{network}' with [network] valid_from_slot and [guarantee] "
        "horizon_from_slot at the same slot, and take it at all servers with 'dpcrowd node reload'"
    )


@dataclass(frozen=True)
class Spending:
    """What is used up of a guarantee, in the window that ends with the slot opening at `opens_ns`, or in its horizon.

    Amounts are nano-epsilon as they cost the users of the guarantee; slots are those of the account's own network.
    """

    guarantee: NetworkGuarantee
    opens_ns: int
    account: Account = field(repr=False)

    @cached_property
    def spent(self) -> int:
        """What was paid for samples."""
        by_date = self._cost(self.guarantee.reach(self.opens_ns), "sample")
        return max(by_date, min(self._paid_nano, self.guarantee.nano))

    @property
    def blocked(self) -> int:
        """What counts in addition to `spent`: confirmed losses, and payments that a wrong clock put into the window."""
        return self._lost_nano + self._paid_nano - self.spent

    @property
    def text(self) -> str:
        """What is blocked, why, and until when; empty if nothing is blocked."""
        reasons = []
        if self._lost_nano:
            until = _until(self._losses_end)
            reasons.append(f"ε={format_epsilon(self._lost_nano)} for confirmed losses, {until}")
        if self._paid_nano > self.spent:
            excess = format_epsilon(self._paid_nano - self.spent)
            reasons.append(
                f"ε={excess} of older payments, because the clock was set ahead and no node saw it set "
                f"back, {_until(self._samples_fit_at)}"
            )
        return f"{', and '.join(reasons)}." if reasons else ""

    @property
    def blocked_until(self) -> int | None:
        """When nothing is blocked any more; None: nothing is blocked now, or only a new horizon ends it."""
        losses_end = self._losses_end if self._lost_nano else None
        samples_end = self._samples_fit_at if self._paid_nano > self.spent else None
        return max((end for end in (losses_end, samples_end) if end is not None), default=None)

    @cached_property
    def returns(self) -> tuple[int | None, int]:
        """The next slot in which the guarantee allows more than now, and how much more; (None, 0): never.

        If more counts than was promised, the first payment that leaves the window may bring nothing back.
        """
        total = self._lost_nano + self._paid_nano
        remaining = max(self.guarantee.nano - total, 0)
        for slot, amount in self._leaving():
            total -= amount
            if self.guarantee.nano - total > remaining:
                return slot, self.guarantee.nano - total - remaining
        return None, 0

    @property
    def comes_back(self) -> str:
        """How much budget comes back next, and when; empty if none does."""
        slot, amount = self.returns
        if slot is None:
            return ""
        return f"ε={format_epsilon(amount)} at slot {slot}, {utc_text(self.account.slots.opens(slot), exact=True)}"

    # ------------------------------------------------------------------------------------------------------- parts

    @cached_property
    def _after_ns(self) -> int:
        return self.guarantee.reach(self.opens_ns, self.account.jumps)

    @cached_property
    def _lost_nano(self) -> int:
        return self._cost(self._after_ns, "lost")

    @cached_property
    def _paid_nano(self) -> int:
        return self._cost(self._after_ns, "sample")

    def _cost(self, after_ns: int, kind: Kind) -> int:
        return self.account.payments.cost(self.guarantee.bounds, after_ns, kind)

    @cached_property
    def _counted_payments(self) -> list[Payment]:
        """The payments that count, in the order in which they leave the window."""
        payments = self.account.counted_payments(self.guarantee, self.opens_ns)
        # Payments before a jump of the clock are younger than their dates say, and no longer in order.
        reordered = any(jump.remaining_ns for jump in self.account.jumps)
        return sorted(payments, key=lambda payment: payment.closes_ns) if reordered else payments

    def _leaving(self) -> Iterator[tuple[int, int]]:
        """Yield, in order, the slots whose windows no longer hold some payments, and what those payments cost."""
        if self.guarantee.span_ns is None:
            return
        for slot, payments in groupby(self._counted_payments, key=self._free_slot):
            assert slot is not None
            yield slot, sum(self.guarantee.bounds.cost(one.nano, one.bounds) for one in payments)

    def _free_slot(self, payment: Payment) -> int | None:
        """Return the first slot whose windows no longer hold a payment; None: it stays in the horizon."""
        end_ns = self.guarantee.free_from(payment.closes_ns)
        return None if end_ns is None else self.account.slots.slot_of(end_ns - 1) + 1

    @cached_property
    def _losses_end(self) -> int | None:
        return self._end_of([payment for payment in self._counted_payments if payment.kind == "lost"])

    @cached_property
    def _samples_fit_at(self) -> int | None:
        """When the payments for samples fit into the guarantee again."""
        samples, total = [payment for payment in self._counted_payments if payment.kind == "sample"], self._paid_nano
        for place, payment in enumerate(samples):
            total -= self.guarantee.bounds.cost(payment.nano, payment.bounds)
            if total <= self.guarantee.nano:
                return self._end_of(samples[: place + 1])
        return self._end_of(samples)

    def _end_of(self, payments: Sequence[Payment]) -> int | None:
        """Return when the first slot opens in which none of the payments counts; None: only in a new horizon."""
        last = self._free_slot(payments[-1]) if payments else None
        return None if last is None else self.account.slots.opens(last)


def _until(end_ns: int | None) -> str:
    return "as long as the horizon lasts" if end_ns is None else f"until {utc_text(end_ns, exact=True)}"
