"""An account through the interface of a scheme's ledger: by slots, reads added up, and only what all promises leave."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dpcrowd.errors import BadInput, BudgetExhausted, SlotTaken
from dpcrowd.privacy.account import Account
from dpcrowd.privacy.account_ledger import AccountLedger
from dpcrowd.privacy.network_guarantee import Slots

SLOT = 10_000_000_000


def account(nano: int = 100, window: int | None = 4, network: str = "crowd") -> Account:
    """Of a network alone, with four slots in its window or horizon."""
    given = Account(network, configured=Slots(0, SLOT, 4))
    return given.declare(nano, None if window is None else window * SLOT, slot_ns=SLOT)


def left(ledger: AccountLedger, slot: int) -> int:
    return int(ledger.remaining(slot)[0, 0])


def charge(*nano: int) -> np.ndarray:
    return np.array([nano])


def test_the_largest_read_of_a_slot_is_paid_and_reads_add_up() -> None:
    """A user is in one region, and which one nobody knows; a second read of the same counts tells as much again."""
    ledger = AccountLedger(account(), regions=2)
    assert ledger.spend(0, charge(20, 30)).tolist() == [[30]]
    assert ledger.spend(0, charge(5)).tolist() == [[5]]
    assert left(ledger, 0) == 65
    (payment,) = ledger.account.payments
    assert (payment.slot, payment.opens_ns, payment.closes_ns, payment.nano) == (0, 0, SLOT, 35)


def test_a_read_that_cannot_be_paid_changes_nothing() -> None:
    """Half a payment would be lost, and the slot could not be paid again."""
    ledger = AccountLedger(account())
    ledger.spend(0, charge(60))
    with pytest.raises(BudgetExhausted) as refused:
        ledger.spend(0, charge(41))
    assert (refused.value.requested, refused.value.remaining) == (101, 100)
    assert left(ledger, 0) == 40
    ledger.spend(1, charge(0))
    assert ledger.account.count == 1, "nothing is nothing"


@pytest.mark.parametrize(
    ("given", "what"), [(charge(-1), ">= 0"), (charge(1, 2, 3), "shape"), (charge(1) / 2, "whole")]
)
def test_what_is_no_charge_is_refused(given: np.ndarray, what: str) -> None:
    """A negative charge gives budget back, a fraction is lost in rounding."""
    with pytest.raises(BadInput, match=what):
        AccountLedger(account(), regions=2).spend(0, given)


def test_slots_do_not_go_back() -> None:
    """Whoever asks for an earlier slot has mixed up his slots."""
    ledger = AccountLedger(account())
    ledger.remaining(5)
    with pytest.raises(BadInput, match="slot 4 is before slot 5"):
        ledger.remaining(4)
    ledger.go_to(2)
    assert left(ledger, 3) == 100


def test_other_networks_and_losses_leave_less() -> None:
    """The scheme would plan with a budget that is spent, and the slot be drawn and then refused."""
    shared = replace(account(), network="theirs").declare(50, 10 * SLOT, slot_ns=SLOT)
    shared = replace(shared.pay(0, 0, SLOT, 20), network="crowd")
    assert left(AccountLedger(shared), 1) == 30
    assert left(AccountLedger(account().book_loss(0, SLOT, 70)), 1) == 30


def test_a_slot_that_was_drawn_before_has_no_budget() -> None:
    """By a clock that was ahead, or in a time that is lost: drawn again, the ledger would refuse it, too late."""
    ledger = AccountLedger(account().pay(2, 2 * SLOT, SLOT, 10))
    assert [left(ledger, slot) for slot in (1, 2, 2, 3)] == [90, 0, 0, 90]
    ledger = AccountLedger(account().pay(2, 2 * SLOT, SLOT, 10))
    with pytest.raises(SlotTaken, match=r"slot 2, .* was drawn before"):
        ledger.spend(2, charge(1))


def test_the_open_slot_of_a_restored_state_is_its_own() -> None:
    """A server that goes on after its draw adapts to what the window has left then: 0 would look like a spent one."""
    ledger = AccountLedger(account().pay(2, 2 * SLOT, SLOT, 10))
    ledger.go_to(2)
    assert left(ledger, 2) == 90


def test_a_fresh_account_takes_the_place_of_what_was_spent() -> None:
    """After a payment that could not be stored; otherwise the budget would shrink with every failure of the disk."""
    before = account()
    ledger = AccountLedger(before)
    ledger.spend(0, charge(60))
    ledger.use(before)
    ledger.go_to(-1)
    assert left(ledger, 0) == 100


def test_a_horizon_ends() -> None:
    """A finite promise is about its slots."""
    ledger = AccountLedger(account(window=None))
    assert ledger.first == 0
    assert [left(ledger, slot) for slot in (3, 4)] == [100, 0]
    with pytest.raises(BudgetExhausted, match=r"the horizon of 4 slots ended with slot 3; .*new-horizon"):
        ledger.spend(4, charge(1))
    assert AccountLedger(account()).first is None


def test_payments_that_are_not_known_may_not_be_spent_again() -> None:
    """An account that was loaded for the present slot says nothing of slots long before."""
    known = replace(account(), complete_after_ns=10 * SLOT)
    assert [left(AccountLedger(known), slot) for slot in (12, 13)] == [0, 100]
