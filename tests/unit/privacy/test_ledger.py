"""Ledgers by example: what a slot costs, when budget comes back, what a refusal says and leaves behind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dpcrowd.errors import BadInput, BudgetExhausted
from dpcrowd.privacy import Accounting, FiniteLedger, Guarantee, Ledger, WindowLedger, open_ledger
from dpcrowd.privacy.units import NANO

Nanos = NDArray[np.int64]
Maker = Callable[..., Ledger]
both = pytest.mark.parametrize("kind", [FiniteLedger, WindowLedger])


def nanos(*rows: list[int]) -> Nanos:
    return np.array(rows, dtype=np.int64)


def test_a_slot_costs_the_largest_of_its_regions() -> None:
    """A user is in one region: the slot costs max, not the sum. But a moving user pays it whichever region it is."""
    ledger = WindowLedger(100, 5, 1, 3, "sound")
    assert ledger.spend(0, nanos([10, 40, 20])).tolist() == [[40]]
    assert ledger.spend(1, nanos([50, 0, 0])).tolist() == [[50]]
    assert ledger.remaining(1).tolist() == [[10]]
    with pytest.raises(BudgetExhausted):
        ledger.spend(2, nanos([0, 0, 11]))
    ledger.spend(2, nanos([0, 0, 10]))


def test_per_region_accounts_do_not_see_each_other() -> None:
    """The paper's ledger: each region has its own budget."""
    ledger = WindowLedger(100, 5, 1, 3, "per-region")
    assert ledger.spend(0, nanos([100, 40, 0])).tolist() == [[100, 40, 0]]
    assert ledger.remaining(0).tolist() == [[0, 60, 100]]
    assert ledger.spend(1, nanos([0, 60, 100])).tolist() == [[0, 60, 100]]
    with pytest.raises(BudgetExhausted, match=r"^server 0, region 1: slot 2 "):
        ledger.spend(2, nanos([0, 1, 0]))


@pytest.mark.parametrize(("accounting", "left"), [("sound", [[90]]), ("per-region", [[90, 90, 90]])])
def test_one_column_reads_all_regions_alike(accounting: Accounting, left: list[list[int]]) -> None:
    """A charge of shape (N, 1) must reach every region's account."""
    ledger = FiniteLedger(100, 5, 1, 3, accounting)
    ledger.spend(0, nanos([10]))
    assert ledger.remaining(0).tolist() == left


@both
def test_several_reads_of_a_slot_add_up(kind: Maker) -> None:
    """Two looks at the same counts are two payments; taking their maximum would give the second away."""
    ledger = kind(100, 5, 1, 2, "sound")
    ledger.spend(3, nanos([30, 0]))
    ledger.spend(3, nanos([0, 30]))
    assert ledger.remaining(3).tolist() == [[40]]
    with pytest.raises(BudgetExhausted):
        ledger.spend(3, nanos([41, 0]))


def test_budget_comes_back_after_exactly_w_slots() -> None:
    """One slot too early and a window of w slots would hold two full budgets."""
    ledger = WindowLedger(100, 4, 1, 1, "sound")
    ledger.spend(2, nanos([100]))
    for slot in (2, 3, 4, 5):
        assert ledger.remaining(slot).tolist() == [[0]]
        with pytest.raises(BudgetExhausted):
            ledger.spend(slot, nanos([1]))
    ledger.spend(6, nanos([100]))


def test_window_of_one_slot() -> None:
    """w = 1: every slot has the whole budget, and several reads of it still share it."""
    ledger = WindowLedger(100, 1, 1, 1, "sound")
    for slot in range(5):
        ledger.spend(slot, nanos([60]))
        ledger.spend(slot, nanos([40]))
        with pytest.raises(BudgetExhausted, match=rf"the last slot has spent .* comes back at slot {slot + 1}\."):
            ledger.spend(slot, nanos([1]))


@pytest.mark.parametrize("gap", [1, 2, 3, 4, 5, 100, 10**12])
def test_skipping_slots(gap: int) -> None:
    """After a pause exactly the slots that left the window are given back, however long it was."""
    ledger = WindowLedger(100, 4, 1, 1, "sound")
    for slot, amount in ((7, 10), (8, 20), (9, 30)):
        ledger.spend(slot, nanos([amount]))
    kept = sum(amount for slot, amount in ((7, 10), (8, 20), (9, 30)) if slot > 9 + gap - 4)
    assert ledger.remaining(9 + gap).tolist() == [[100 - kept]]


@both
def test_going_back_is_refused(kind: Maker) -> None:
    """Paying for an earlier slot would fall into a window that was already accounted for."""
    ledger = kind(100, 50, 1, 1, "sound")
    ledger.spend(9, nanos([10]))
    with pytest.raises(BadInput, match="slot 8 is before slot 9, which the ledger has already reached"):
        ledger.spend(8, nanos([1]))
    with pytest.raises(BadInput, match="slot 8 is before slot 9"):
        ledger.remaining(8)
    assert ledger.remaining(9).tolist() == [[90]]


def test_nothing_is_spent_after_the_horizon() -> None:
    """The promise is over T slots: slot T is outside it, even with budget left."""
    ledger = FiniteLedger(100, 5, 2, 1, "sound")
    ledger.spend(4, nanos([10], [20]))
    assert ledger.remaining(5).tolist() == [[0], [0]]
    with pytest.raises(BudgetExhausted, match=r"slot 5 is after the end of the horizon of 5 slots") as refused:
        ledger.spend(5, nanos([0], [7]))
    assert (refused.value.requested, refused.value.remaining, refused.value.returns_at) == (7, 0, None)
    assert ledger.spend(6, nanos([0], [0])).tolist() == [[0], [0]]


def test_refusal_of_a_window_says_what_when_and_how_much() -> None:
    """An operator must see requested, left, and the next return, not the return of somebody else's budget."""
    ledger = open_ledger(Guarantee.window(100, 1.0), 2, 1)
    ledger.spend(4080, nanos([0], [NANO // 2]))
    ledger.spend(4090, nanos([40_000_000], [0]))
    ledger.spend(4100, nanos([950_000_000], [0]))
    with pytest.raises(BudgetExhausted) as refused:
        ledger.spend(4182, nanos([20_000_000], [0]))
    assert str(refused.value) == (
        "server 0: slot 4182 asks for ε=0.02, but the last 100 slots have spent 0.99 of 1 (0.01 left). "
        "0.04 comes back at slot 4190."
    )
    error = refused.value
    assert (error.requested, error.remaining, error.returns_at) == (20_000_000, 10_000_000, 4190)
    assert ledger.returns_at(4182, server=1) == (None, 0)


def test_refusal_of_a_horizon_promises_no_return() -> None:
    """A finite budget never comes back; a date would be a lie."""
    ledger = open_ledger(Guarantee.finite(100, 1.0), 1, 1)
    ledger.spend(3, nanos([990_000_000]))
    with pytest.raises(BudgetExhausted) as refused:
        ledger.spend(5, nanos([20_000_000]))
    assert str(refused.value) == (
        "server 0: slot 5 asks for ε=0.02, but the horizon of 100 slots has spent 0.99 of 1 (0.01 left). "
        "No budget comes back within this horizon."
    )
    assert refused.value.returns_at is None
    assert ledger.returns_at(5) == (None, 0)


def test_more_than_the_whole_budget() -> None:
    """An empty window that refuses must not speak of a horizon or of budget that comes back."""
    ledger = WindowLedger(100, 5, 1, 1, "sound")
    with pytest.raises(BudgetExhausted, match="no slot can pay more than the complete budget") as refused:
        ledger.spend(0, nanos([101]))
    assert (refused.value.remaining, refused.value.returns_at) == (100, None)
    assert "horizon" not in str(refused.value)


def test_this_slot_comes_back_too() -> None:
    """What only the current slot spent returns at slot + w, and only once."""
    ledger = WindowLedger(100, 5, 1, 1, "sound")
    ledger.spend(7, nanos([100]))
    assert ledger.returns_at(7) == (12, 100)
    assert ledger.returns_at(11) == (12, 100)
    assert ledger.returns_at(12) == (None, 0)  # it is back already


@both
def test_a_refusal_charges_nobody(kind: Maker) -> None:
    """If one of many servers cannot pay, none may be charged: no noise is drawn for any."""
    ledger = kind(100, 5, 3, 2, "per-region")
    ledger.spend(0, nanos([50, 0], [0, 0], [0, 90]))
    before: dict[str, Any] = {name: array.copy() for name, array in ledger.arrays().items()}
    with pytest.raises(BudgetExhausted, match=r"^server 2, region 1: ") as refused:
        ledger.spend(0, nanos([50, 10], [10, 10], [10, 11]))
    assert (refused.value.requested, refused.value.remaining) == (11, 10)
    for name, array in ledger.arrays().items():
        assert np.array_equal(array, before[name]), name
    ledger.spend(0, nanos([50, 10], [10, 10], [10, 10]))


@both
def test_the_last_unit_can_be_spent_and_no_more(kind: Maker) -> None:
    """Exactly epsilon is allowed; one nano-epsilon more is not."""
    ledger = kind(NANO, 10, 1, 1, "sound")
    for slot in range(10):
        ledger.spend(slot, nanos([NANO // 10]))
    with pytest.raises(BudgetExhausted):
        ledger.spend(9, nanos([1]))
    assert ledger.spend(9, nanos([0])).tolist() == [[0]]
