"""An account as a live scheme sees it: by the numbers of its network's slots, through the interface of `Ledger`.

There is one server, with sound accounting: a slot costs the largest amount with which any region is read, and several
reads of one slot add up to one payment. On a grid of slots with one network the integers are identical to those of the
ledger of a simulated server.

A payment here becomes final only in the durable ledger. The driver of the scheme stores each payment before anything
derived from it leaves the server, and gives the scheme a fresh account before every slot; if a payment could not be
stored, it gives the account before that payment.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpcrowd.arrays import Nanos
from dpcrowd.privacy.account import Account
from dpcrowd.privacy.ledger import Ledger, check_charge, check_order

__all__ = ["AccountLedger"]


class AccountLedger(Ledger):
    """A ledger that spends from an account, in the slots of the account's own network."""

    def __init__(self, account: Account, regions: int = 1) -> None:
        self.regions = regions
        self.slot = -1
        self.use(account)

    def use(self, account: Account) -> None:
        """Spend from this account from now on."""
        self._before = self._account = account
        self._slot_cost = 0  # of the reads of the present slot, which `_before` does not hold
        self._is_unavailable = False  # whether the present slot was drawn before, or declared lost

    @property
    def account(self) -> Account:
        """The account with everything that was spent here since `use`."""
        return self._account

    @property
    def first(self) -> int | None:
        """The first slot of the present horizon; None for a window guarantee."""
        return None if self._account.own.span_ns is not None else self._account.first_slot

    def remaining(self, slot: int) -> Nanos:
        self._advance(slot)
        nano = 0 if self._is_unavailable else self._account.allowance(self._account.slots.opens(slot)).nano
        return np.array([[nano]], dtype=np.int64)

    def left_in(self, slot: int) -> Nanos:
        check_order(slot, self.slot)
        if slot == self.slot:
            return self.remaining(slot)
        slots = self._account.slots
        conflict = self._account.draw_conflict(slots.opens(slot), slots.opens(slot + 1))
        return np.array([[0 if conflict else self._account.allowance(slots.opens(slot)).nano]], dtype=np.int64)

    def spend(self, slot: int, charge: Nanos) -> Nanos:
        self._advance(slot)
        check_charge(charge, 1, self.regions)
        cost: Nanos = charge.max(axis=1, keepdims=True)
        if cost.any():
            slots, slot_cost = self._before.slots, self._slot_cost + int(cost[0, 0])
            self._account = self._before.pay(slot, slots.opens(slot), slots.slot_ns, slot_cost)
            self._slot_cost = slot_cost
        return cost

    def go_to(self, slot: int) -> None:
        """Continue after a slot, whatever slots were used before: their numbers begin again."""
        self.slot = slot
        self.use(self._account)

    def go_back(self, slot: int) -> None:
        """Continue after a slot whose state was restored; what was spent in a later slot since then is not paid."""
        self.slot = slot
        self.use(self._before)

    def _advance(self, slot: int) -> None:
        check_order(slot, self.slot)
        if slot > self.slot:
            self.slot, self._before, self._slot_cost = slot, self._account, 0
            slots = self._account.slots
            self._is_unavailable = bool(self._account.draw_conflict(slots.opens(slot), slots.opens(slot + 1)))

    def arrays(self) -> dict[str, NDArray[np.int64]]:
        return {}

    def restore(self, arrays: dict[str, NDArray[np.int64]]) -> None:
        """Ignore a saved ledger, which only old states hold: the durable account has everything."""
