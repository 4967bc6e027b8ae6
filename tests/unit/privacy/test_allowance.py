"""What was paid and what is blocked: two numbers, so that nobody takes a precaution for an exposure."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dpcrowd.privacy.account import Account
from dpcrowd.privacy.allowance import Spending
from dpcrowd.privacy.clock_jumps import ClockSteps
from dpcrowd.privacy.network_guarantee import Slots
from dpcrowd.privacy.units import NANO, utc_text

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
    found = account.allowance(opens(slot)).own
    return found.spent, found.blocked, found.text


def test_payments_of_the_window_are_spent_and_nothing_else() -> None:
    """The number that users were promised a bound for."""
    account = paid(declared(), range(6), QUARTER)
    assert of(account, 5) == (NANO, 0, "")
    assert of(account, 7) == (NANO // 2, 0, "")
    assert of(account, 9) == (0, 0, "")
    assert [account.allowance(opens(slot)).own.returns for slot in (5, 7, 9)] == [(6, QUARTER), (8, QUARTER), (None, 0)]


@pytest.mark.parametrize("slots", [4, None], ids=["window", "finite"])
def test_a_confirmed_loss_is_blocked_and_was_not_paid(slots: int | None) -> None:
    """It is booked to be on the safe side; nobody has released anything for it that this server knows of.

    An operator who has confirmed it asks when the block ends, and when the server samples again.
    """
    account = paid(declared(slots), range(1), QUARTER).book_loss(opens(1), opens(2), NANO)
    found = account.allowance(opens(2)).own
    assert (found.spent, found.blocked) == (QUARTER, NANO)
    if slots is not None:
        assert found.text == f"ε=1 for confirmed losses, until {utc_text(opens(5))}."
        assert found.blocked_until == opens(5)
        assert found.returns == (5, NANO), "the payment that leaves before makes no room"
        assert [account.allowance(opens(slot)).nano for slot in (4, 5)] == [0, NANO]
    else:
        assert found.text == "ε=1 for confirmed losses, as long as the horizon lasts."
        assert (found.blocked_until, found.returns) == (None, (None, 0))
    assert (account.total, account.lost) == (QUARTER + NANO, NANO)


def test_what_comes_back_is_said_by_the_promise_that_binds() -> None:
    """Of the own window alone it would be promised again and again, and never come."""
    account = replace(declared(), network="theirs").declare(NANO, 10 * LENGTH, slot_ns=LENGTH)
    account = replace(account.pay(1, opens(1), LENGTH, QUARTER), network="crowd").pay(0, opens(0), LENGTH, NANO // 2)
    theirs = account.guarantee_of("theirs")
    assert theirs is not None
    assert account.allowance(opens(2)).own.returns == (4, NANO // 2)
    assert Spending(theirs, opens(2), account).returns == (10, NANO // 2)
    assert account.allowance(opens(5)).binding.returns == (10, NANO // 2), "nothing is in the own window any more"
    assert account.allowance(opens(10)).binding.returns == (11, QUARTER)
    assert account.allowance(opens(30)).binding.returns == (None, 0)
    assert [account.allowance(opens(slot)).nano for slot in (9, 10, 11)] == [QUARTER, 3 * QUARTER, NANO]
    assert paid(declared(None), range(1), QUARTER).allowance(opens(2)).own.returns == (None, 0), "a horizon keeps it"


def test_a_clock_that_was_set_ahead_in_an_earlier_life_blocks_and_spends_nothing() -> None:
    """After an hour there and back with a restart between, "3.85 of 1 spent" says that a promise was broken."""
    account = paid(declared(), range(0, 400, 2), NANO // 2)
    account, _ = account.set_clock(ClockSteps(), opens(400), 360 * LENGTH)  # and back again, while nobody looked
    spent, blocked, text = of(account, 401)
    assert spent <= NANO
    assert blocked > 100 * NANO // 2
    assert "was set ahead" in text
    until = account.allowance(opens(401)).own.blocked_until
    assert until is not None
    end = until // LENGTH
    assert [of(account, slot)[1] > 0 for slot in (end - 1, end)] == [True, False], "it ends when it is said to"
    assert account.allowance(opens(401)).nano == 0, "it is blocked"


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


def test_what_equal_parts_leave_over_is_spent_in_words() -> None:
    """'ε=0.999999999 of 1 is spent' makes an operator look for the rest; of a quarter, the last digit is the reason."""
    account = Account("crowd", configured=Slots(0, LENGTH, 4)).declare(NANO, 4 * LENGTH, slot_ns=LENGTH)
    third = paid(account, range(3), NANO // 3).allowance(opens(3))
    assert third.shortage == "ε=1 of 1 is spent."
    assert third.own.spent == NANO - 1, "numbers stay exact"
    quarter = paid(account, range(1), 3 * QUARTER + 1).allowance(opens(1))
    assert quarter.shortage == "ε=0.750000001 of 1 is spent."
