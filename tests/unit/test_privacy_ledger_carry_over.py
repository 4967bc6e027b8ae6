"""Debts of an older account: taken over whole, expired on time, and never more than once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from dpcrowd.errors import BadInput, BudgetExhausted
from dpcrowd.privacy import FiniteLedger, Ledger, WindowLedger

Maker = Callable[..., Ledger]
both = pytest.mark.parametrize("kind", [FiniteLedger, WindowLedger])


def left(ledger: Ledger, slot: int) -> int:
    return int(ledger.remaining(slot)[0, 0])


@both
@pytest.mark.parametrize("accounting", ["sound", "per-region"])
def test_debts_count_for_every_account(kind: Maker, accounting: str) -> None:
    """Nobody knows any more which region an old payment was for: it counts for all."""
    ledger = kind(100, 5, 1, 3, accounting)
    ledger.carry_over({1: 30, 2: 20}, 2)
    assert (ledger.remaining(3) == 50).all()
    with pytest.raises(BudgetExhausted):
        ledger.spend(3, np.array([[51]]))
    ledger.spend(3, np.array([[50]]))


def test_a_window_gives_each_debt_back_in_its_slot() -> None:
    """Rows are kept modulo w, and slots before the epoch are negative."""
    ledger = WindowLedger(100, 5, 1, 1, "sound")
    ledger.carry_over({-7: 99, -6: 7, -4: 10, -3: 20, -2: 40}, -2)
    # Slot t's window is t - 4 to t: -6 leaves with slot -1, -4 with slot 1, -3 with slot 2, -2 with slot 3.
    assert [left(ledger, slot) for slot in range(-2, 5)] == [23, 30, 30, 40, 60, 100, 100]


def test_a_window_forgets_what_is_older_than_it() -> None:
    """Exactly: w - 1 slots ago still counts, w slots ago does not."""
    for age, expected in ((3, 60), (4, 60), (5, 100), (6, 100)):
        ledger = WindowLedger(100, 5, 1, 1, "sound")
        ledger.carry_over({10 - age: 40}, 10)
        assert left(ledger, 10) == expected, age
        assert left(ledger, 10 - age + 4 if age < 5 else 10) == expected
        assert left(ledger, 15) == 100


def test_a_window_says_when_a_debt_comes_back() -> None:
    """Operators are told, and a refusal says the same."""
    ledger = WindowLedger(100, 5, 1, 1, "sound")
    ledger.carry_over({-3: 40, -1: 60}, -1)
    assert ledger.returns_at(0) == (2, 40)
    with pytest.raises(BudgetExhausted) as refused:
        ledger.spend(1, np.array([[1]]))
    assert (refused.value.remaining, refused.value.returns_at) == (0, 2)
    assert ledger.returns_at(2) == (4, 60)


def test_a_horizon_forgets_nothing() -> None:
    """Also what was paid long before its first slot."""
    ledger = FiniteLedger(100, 5, 1, 1, "sound")
    ledger.carry_over({-1000: 30, -1: 20}, -1)
    assert [left(ledger, slot) for slot in (0, 4, 5)] == [50, 50, 0]


@both
def test_debts_beyond_the_budget_leave_nothing(kind: Maker) -> None:
    """A smaller epsilon than before, or slots that were lost and count as fully spent."""
    ledger = kind(100, 50, 1, 1, "sound")
    ledger.carry_over(dict.fromkeys(range(-40, 0), 100), -1)
    assert left(ledger, 0) == 0
    ledger.spend(0, np.array([[0]]))
    with pytest.raises(BudgetExhausted):
        ledger.spend(0, np.array([[1]]))


@both
@pytest.mark.parametrize(("charges", "now"), [({3: 5}, 2), ({1: -5}, 2), ({0: 5, 3: 0}, 2)])
def test_debts_of_the_future_or_below_nothing_are_refused(kind: Maker, charges: dict[int, int], now: int) -> None:
    """A negative debt is a gift; one of a later slot would be written over. Nothing has changed then."""
    ledger = kind(100, 5, 1, 1, "sound")
    with pytest.raises(BadInput, match=r"is >= 0 and of slots up to 2"):
        ledger.carry_over(charges, now)
    assert left(ledger, 0) == 100


@both
def test_only_a_new_ledger_of_one_server_takes_debts(kind: Maker) -> None:
    """Taken over twice they would be counted twice; a batch has as many pasts as servers."""
    used, batch, debted = kind(100, 5, 1, 1, "sound"), kind(100, 5, 2, 1, "sound"), kind(100, 5, 1, 1, "sound")
    used.spend(0, np.array([[1]]))
    debted.carry_over({-1: 5}, -1)
    for ledger in (used, batch, debted):
        before = ledger.spent.copy()
        with pytest.raises(BadInput, match="only a new ledger of one server"):
            ledger.carry_over({0: 1}, 0)
        assert (ledger.spent == before).all()


@both
def test_time_does_not_go_back_behind_the_debts(kind: Maker) -> None:
    """Slots up to `now` are over."""
    ledger = kind(100, 50, 1, 1, "sound")
    ledger.carry_over({4: 10}, 6)
    with pytest.raises(BadInput, match="slot 5 is before slot 6"):
        ledger.spend(5, np.array([[1]]))
    ledger.spend(6, np.array([[1]]))


@both
def test_debts_are_saved_and_restored(kind: Maker) -> None:
    """Negative slots have to come back in the rows that they expire from."""
    ledger, fresh = kind(100, 5, 1, 1, "sound"), kind(100, 5, 1, 1, "sound")
    ledger.carry_over({-4: 10, -3: 20, -1: 30}, -1)
    fresh.restore(ledger.arrays())
    for slot in range(-1, 6):
        assert left(fresh, slot) == left(ledger, slot)


def test_a_horizon_that_begins_later_ends_later_also_after_a_restore() -> None:
    """A new horizon of a running network is counted from its own first slot, or it would be over at once."""
    ledger = FiniteLedger(100, 5, 1, 1, "sound")
    ledger.carry_over({}, 11, first=12)
    assert [left(ledger, slot) for slot in (12, 16, 17)] == [100, 100, 0]
    ledger = FiniteLedger(100, 5, 1, 1, "sound")
    ledger.carry_over({}, 11, first=12)
    again = FiniteLedger(100, 5, 1, 1, "sound")
    again.restore(ledger.arrays())
    again.spend(16, np.array([[100]]))
    with pytest.raises(BudgetExhausted, match="after the end"):
        again.spend(17, np.array([[1]]))


@both
def test_a_ceiling_from_outside_binds_until_it_is_lifted(kind: Maker) -> None:
    """A durable account that knows of more debts says what is left; several reads of a slot share it."""
    ledger = kind(100, 5, 1, 1, "sound")
    ledger.ceiling = 30
    assert left(ledger, 0) == 30
    ledger.spend(0, np.array([[20]]))
    assert left(ledger, 0) == 10
    with pytest.raises(BudgetExhausted) as refused:
        ledger.spend(0, np.array([[11]]))
    assert refused.value.remaining == 10
    ledger.spend(0, np.array([[0]]))
    ledger.ceiling = 1000
    assert left(ledger, 1) == 80, "a ceiling never gives more than the ledger has"
    ledger.ceiling = None
    assert left(ledger, 1) == 80
