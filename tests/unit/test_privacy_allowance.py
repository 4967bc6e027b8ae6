"""What was paid and what is blocked: two numbers, so that nobody takes a precaution for an exposure."""

from __future__ import annotations

import pytest

from dpcrowd.privacy.account import Account
from dpcrowd.privacy.clock_jumps import ClockSteps
from dpcrowd.privacy.units import NANO

SECOND = 1_000_000_000
LENGTH = 10 * SECOND
QUARTER = NANO // 4


def opens(slot: int) -> int:
    return slot * LENGTH


def declared(slots: int | None = 4) -> Account:
    return Account("crowd").declare(NANO, None if slots is None else slots * LENGTH, slot_ns=LENGTH)


def paid(account: Account, slots: range, nano: int) -> Account:
    for slot in slots:
        account = account.pay(slot, opens(slot), LENGTH, nano)
    return account


def of(account: Account, slot: int) -> tuple[int, int, str]:
    found = account.may(opens(slot))
    return found.spent, found.blocked, found.blocked_text


def test_payments_of_the_window_are_spent_and_nothing_else() -> None:
    """The number that users were promised a bound for."""
    account = paid(declared(), range(6), QUARTER)
    assert of(account, 5) == (NANO, 0, "")
    assert of(account, 7) == (NANO // 2, 0, "")
    assert of(account, 9) == (0, 0, "")


@pytest.mark.parametrize("slots", [4, None], ids=["window", "finite"])
def test_a_confirmed_loss_is_blocked_and_was_not_paid(slots: int | None) -> None:
    """It is booked to be on the safe side; nobody has released anything for it that this server knows of."""
    account = paid(declared(slots), range(1), QUARTER).lose(opens(1), opens(2), NANO)
    assert of(account, 2) == (QUARTER, NANO, "ε=1 for losses that were confirmed.")


def test_a_clock_that_was_set_ahead_in_an_earlier_life_blocks_and_spends_nothing() -> None:
    """After an hour there and back with a restart between, "3.85 of 1 spent" says that a promise was broken."""
    account = paid(declared(), range(0, 400, 2), NANO // 2)
    account, _ = account.set_clock(ClockSteps(), opens(400), 360 * LENGTH)  # and back again, while nobody looked
    spent, blocked, text = of(account, 401)
    assert spent <= NANO
    assert blocked > 100 * NANO // 2
    assert "was set ahead" in text
    assert account.may(opens(401)).nano == 0, "it is blocked"


def test_a_clock_that_stays_ahead_leaves_spent_what_is_spent() -> None:
    """By their dates the payments of the last slots are old; they are not."""
    account, _ = paid(declared(), range(4), QUARTER).set_clock(ClockSteps(), opens(4), 360 * LENGTH)
    assert of(account, 363) == (NANO, 0, "")
    assert of(account, 366) == (QUARTER, 0, "")


def test_a_clock_that_came_back_blocks_nothing() -> None:
    """What this life has seen itself needs no precaution; what was paid meanwhile is spent, dated as it is."""
    account, steps = paid(declared(), range(0, 400, 2), NANO // 2), ClockSteps()
    account, steps = account.set_clock(steps, opens(400), 360 * LENGTH)
    account, steps = paid(account, range(762, 763), QUARTER).set_clock(steps, opens(763), -360 * LENGTH)
    assert of(account, 403) == (QUARTER, 0, "")


def test_less_than_was_promised_before_is_told_as_it_is() -> None:
    """A promise that was made stronger finds more spent than it allows: that is spent, not blocked."""
    account = paid(declared(), range(1), NANO).declare(NANO // 2, 4 * LENGTH, slot_ns=LENGTH)
    assert of(account, 1) == (NANO, 0, "")
