"""Ledgers under bad input, and saved and restored: nothing of it may create budget."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dpcrowd.errors import BadInput, BudgetExhausted
from dpcrowd.privacy import FiniteLedger, Ledger, WindowLedger

Maker = Callable[..., Ledger]
both = pytest.mark.parametrize("kind", [FiniteLedger, WindowLedger])
LARGEST = 2**63 - 1


def charge(*values: int) -> Any:
    return np.array([values], dtype=np.int64)


@both
@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (np.array([[-1]]), "must be >= 0; given -1e-9"),
        (np.array([[5, -1, 5]]), "must be >= 0; given -1e-9"),
        (np.array([5]), "must have shape"),
        (np.array([[5], [5]]), "must have shape"),
        (np.array([[5, 5]]), r"must have shape \(1, 1\) or \(1, 3\); given \(1, 2\)"),
        (np.zeros((1, 0), dtype=np.int64), "must have shape"),
        (np.array([[np.nan]]), "given an array of float64"),
        (np.array([[1.5]]), "given an array of float64"),
        (np.array([[5]], dtype=np.uint64), "given an array of uint64"),
        (np.array([[True]]), "given an array of bool"),
    ],
)
def test_what_is_no_charge_is_refused(kind: Maker, bad: Any, why: str) -> None:
    """A negative charge refunds; a NaN passes every comparison and once turned the whole account into NaN."""
    ledger = kind(100, 5, 1, 3, "sound")
    ledger.spend(0, charge(60))
    with pytest.raises(BadInput, match=why):
        ledger.spend(1, bad)
    assert ledger.remaining(1).tolist() == [[40]]
    assert ledger.spent.dtype == np.int64


@both
@pytest.mark.parametrize("huge", [LARGEST, LARGEST - 4, 2**62])
def test_a_huge_charge_does_not_wrap_round(kind: Maker, huge: int) -> None:
    """5 + (2^63 - 1) is negative in 64 bits: added up before it is compared, it would be accepted as a refund."""
    ledger = kind(100, 5, 1, 1, "sound")
    ledger.spend(0, charge(5))
    with pytest.raises(BudgetExhausted):
        ledger.spend(0, charge(huge))
    assert ledger.remaining(0).tolist() == [[95]]


def busy(kind: Maker) -> Ledger:
    """Spans 8 slots and has spent in four of them, differently in each account."""
    ledger = kind(100, 8, 2, 3, "per-region")
    for slot in (0, 2, 5, 6):
        ledger.spend(slot, np.arange(6, dtype=np.int64).reshape(2, 3) * (slot % 4 + 1))
    return ledger


@both
def test_a_restored_ledger_goes_on_exactly(kind: Maker) -> None:
    """Losing the window's rows would give back too early, losing the slot would allow to go back."""
    ledger, other = busy(kind), kind(100, 8, 2, 3, "per-region")
    other.restore(ledger.arrays())
    with pytest.raises(BadInput, match="which the ledger has already reached"):
        other.remaining(ledger.slot - 1)
    for slot in range(6, 16):
        assert np.array_equal(other.remaining(slot), ledger.remaining(slot))


@both
def test_a_saved_state_is_a_copy(kind: Maker) -> None:
    """A snapshot that follows the living ledger, or writes into it, restores something that never was."""
    ledger = busy(kind)
    saved = ledger.arrays()
    kept = {name: array.copy() for name, array in saved.items()}
    ledger.spend(7, np.full((2, 3), 9, dtype=np.int64))
    ledger.remaining(30)
    assert all(np.array_equal(saved[name], kept[name]) for name in kept)
    other = kind(100, 8, 2, 3, "per-region")
    other.restore(saved)
    other.spend(7, np.ones((2, 3), dtype=np.int64))
    assert all(np.array_equal(saved[name], kept[name]) for name in kept)


def test_a_finite_ledger_refuses_a_windows_state_and_back() -> None:
    """A window has forgotten what the stream spent: as a finite ledger it would refill the budget."""
    finite, window = FiniteLedger(100, 4, 1, 1, "sound"), WindowLedger(100, 4, 1, 1, "sound")
    with pytest.raises(BadInput, match=r"holds \['history', 'slot', 'spent'\]; a ledger of this kind holds"):
        finite.restore(window.arrays())
    with pytest.raises(BadInput, match="a ledger of this kind holds"):
        window.restore(finite.arrays())


@pytest.mark.parametrize("other", [(3, 1, 3), (5, 1, 3), (4, 2, 3), (4, 1, 2)])
def test_a_window_of_another_shape_is_refused_and_changes_nothing(other: tuple[int, int, int]) -> None:
    """Rows are kept modulo w: read with another w they expire at the wrong slots."""
    saved = WindowLedger(100, *other, "per-region")
    saved.spend(2, np.ones((other[1], other[2]), dtype=np.int64))
    ledger = WindowLedger(100, 4, 1, 3, "per-region")
    ledger.spend(1, charge(70, 0, 0))
    with pytest.raises(BadInput, match="has shape"):
        ledger.restore(saved.arrays())
    assert ledger.remaining(1).tolist() == [[30, 100, 100]]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("spent", [[5], [4]]),
        ("spent", [[-5], [7]]),
        ("spent", [[5], [np.nan]]),
        ("history", [[[-1], [0]], [[6], [7]], [[0], [0]]]),
        ("slot", 1.5),
    ],
)
def test_a_damaged_state_is_refused(name: str, value: Any) -> None:
    """Rows that do not add up to the sum mean that somebody's payment is lost."""
    ledger, fresh = WindowLedger(100, 3, 2, 1, "sound"), WindowLedger(100, 3, 2, 1, "sound")
    ledger.spend(1, np.array([[5], [7]]))
    saved = {**ledger.arrays(), name: np.array(value)}
    with pytest.raises(BadInput, match="it is damaged"):
        fresh.restore(saved)
    assert fresh.slot == -1
    assert fresh.remaining(0).tolist() == [[100], [100]]


@both
def test_a_smaller_budget_does_not_forget(kind: Maker) -> None:
    """Restored under a smaller epsilon, a ledger may be over its limit: nothing is left, and nothing may be spent."""
    old, new = kind(100, 5, 1, 1, "sound"), kind(60, 5, 1, 1, "sound")
    old.spend(0, charge(90))
    new.restore(old.arrays())
    assert new.remaining(1).tolist() == [[0]]
    assert new.spend(1, charge(0)).tolist() == [[0]]
    with pytest.raises(BudgetExhausted, match=r"spent 0.00000009 of 0.00000006 \(0 left\)") as refused:
        new.spend(1, charge(1))
    assert refused.value.remaining == 0
