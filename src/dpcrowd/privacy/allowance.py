"""The answer of an account: what a slot may cost, which promise binds, why, and when there is more."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from dpcrowd.privacy.network_guarantee import NetworkGuarantee, UserBounds
from dpcrowd.privacy.spending import Spending
from dpcrowd.privacy.units import NANO, format_epsilon

if TYPE_CHECKING:
    from dpcrowd.privacy.account import Account

__all__ = ["Allowance", "new_horizon_by_revision"]


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
