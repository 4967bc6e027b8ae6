"""An account as a live scheme sees it: by the numbers of its network's slots, through the interface of `Ledger`.

One server, sound accounting: a slot costs the largest amount that any region is read with, and several reads of one
slot add up to one payment. On a grid of slots with one network this gives, integer by integer, what the ledger of a
simulated server gives.

What is spent here is paid only when the account of the durable ledger has it: whoever drives the scheme stores each
payment before anything of it leaves, and gives the scheme a fresh account before every slot; after a payment that could
not be stored, the one before it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpcrowd.arrays import Nanos
from dpcrowd.privacy.account import Account
from dpcrowd.privacy.ledger import Ledger, check_charge, check_order

__all__ = ["AccountLedger"]


class AccountLedger(Ledger):
    """Spends from an account, in the slots of its own network."""

    def __init__(self, account: Account, regions: int = 1) -> None:
        self.regions = regions
        self.slot = -1
        self.use(account)

    def use(self, account: Account) -> None:
        """Spend from this account from now on."""
        self._before = self._account = account
        self._paid = 0  # for the present slot, by reads that `_before` does not have
        self._is_taken = False

    @property
    def account(self) -> Account:
        """With everything that was spent here since it was given."""
        return self._account

    @property
    def first(self) -> int | None:
        """The first slot of the present horizon; None for windows."""
        return None if self._account.own.span_ns is not None else self._account.first_slot

    def remaining(self, slot: int) -> Nanos:
        self._advance(slot)
        left = 0 if self._is_taken else self._account.allowance(self._account.slots.opens(slot)).nano
        return np.array([[left]], dtype=np.int64)

    def left_in(self, slot: int) -> Nanos:
        check_order(slot, self.slot)
        if slot == self.slot:
            return self.remaining(slot)
        slots = self._account.slots
        draw_conflict = self._account.draw_conflict(slots.opens(slot), slots.opens(slot + 1))
        return np.array([[0 if draw_conflict else self._account.allowance(slots.opens(slot)).nano]], dtype=np.int64)

    def spend(self, slot: int, charge: Nanos) -> Nanos:
        self._advance(slot)
        check_charge(charge, 1, self.regions)
        cost: Nanos = charge.max(axis=1, keepdims=True)
        if cost.any():
            slots, paid = self._before.slots, self._paid + int(cost[0, 0])
            self._account = self._before.pay(slot, slots.opens(slot), slots.slot_ns, paid)
            self._paid = paid
        return cost

    def go_to(self, slot: int) -> None:
        """Go on after a slot, whatever was asked for before: slots begin again."""
        self.slot = slot
        self.use(self._account)

    def go_back(self, slot: int) -> None:
        """Go on after a slot whose state was restored: what was spent since then in a later one is not paid."""
        self.slot = slot
        self.use(self._before)

    def _advance(self, slot: int) -> None:
        check_order(slot, self.slot)
        if slot > self.slot:
            self.slot, self._before, self._paid = slot, self._account, 0
            slots = self._account.slots
            self._is_taken = bool(self._account.draw_conflict(slots.opens(slot), slots.opens(slot + 1)))

    def arrays(self) -> dict[str, NDArray[np.int64]]:
        return {}

    def restore(self, arrays: dict[str, NDArray[np.int64]]) -> None:
        """The durable account knows all of it: what a state holds of a ledger, if it is an old one, is not used."""
