"""What a window or horizon has cost: paid for samples, or blocked because nobody can be sure; and when it comes back.

Both count against the budget, and what is left is the same. But a payment tells that users were exposed, and a block
that they perhaps were:

    spent    payments for samples that lie in the present window or horizon
    blocked  losses that an operator has confirmed, and payments that lie in the window only if a clock that was set
             ahead in an earlier life, or before another network's eyes, has stayed ahead (see `clock_jumps`)

No window can hold more payments than was promised. So where jumps of the clock put more into it, the rest is blocked.

The API, the tools, the log and the doctor all say it by this object, so that they cannot contradict each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING

from dpcrowd.privacy.network_guarantee import NetworkGuarantee
from dpcrowd.privacy.payments import Kind, Payment
from dpcrowd.privacy.units import format_epsilon, utc_text

if TYPE_CHECKING:
    from dpcrowd.privacy.account import Account

__all__ = ["Spending"]


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
