"""The promise: what is refused, what it says in words, and what budget and sensitivity follow from it."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pytest

from dpcrowd.errors import BadInput
from dpcrowd.privacy import FiniteLedger, Guarantee, WindowLedger, open_ledger
from dpcrowd.privacy.units import NANO


@pytest.mark.parametrize("length", [0, -3, 2.5, float("nan"), float("inf"), True, "10", None])
@pytest.mark.parametrize(("make", "name"), [(Guarantee.window, "window"), (Guarantee.finite, "horizon")])
def test_length_is_a_whole_number_of_slots(make: Any, name: str, length: Any) -> None:
    """A window of no slots promises nothing; infinity and None used to end in a traceback."""
    with pytest.raises(BadInput, match=f"^{name} must be a whole number of slots >= 1; given") as refused:
        make(length, 1.0)
    assert str(length) in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("value", [0, -1, 1.5, float("nan"), float("inf"), True, "2", None])
@pytest.mark.parametrize("label", ["regions_per_slot", "servers_per_slot"])
def test_a_user_counts_a_whole_number_of_times(label: str, value: Any) -> None:
    """A sensitivity of 0 or 1.5 would make too little noise."""
    with pytest.raises(BadInput, match=f"^{label} must be a whole number >= 1; given") as refused:
        Guarantee.window(5, 1.0, **{label: value})
    assert str(value) in str(refused.value)


@pytest.mark.parametrize("value", [0.99, 0, -2, float("nan"), float("inf"), "2", None, True])
def test_correlation_never_raises_the_budget(value: Any) -> None:
    """A factor below 1 would multiply the budget."""
    with pytest.raises(BadInput, match=r"^correlation must be a finite factor >= 1; given"):
        Guarantee.window(5, 1.0, correlation=value)


@pytest.mark.parametrize("epsilon", [0, -1, float("nan"), float("inf"), 1e-10, 2_000_000, "x", None])
def test_epsilon_is_checked_when_the_promise_is_made(epsilon: Any) -> None:
    """A bad epsilon must not wait for the first sample."""
    with pytest.raises(BadInput, match=r"^epsilon must be"):
        Guarantee.finite(10, epsilon)


def test_nothing_left_by_correlation_is_refused_at_once() -> None:
    """An epsilon of 1e-9 divided by 10 is no budget: a promise without one must not exist."""
    with pytest.raises(BadInput, match="epsilon 1e-09 divided by correlation 10 is below 1e-9"):
        Guarantee.window(2, 1e-9, correlation=10)


def test_unknown_kind_and_users_name_the_nearest() -> None:
    """A misspelt kind must not fall through to the other one."""
    with pytest.raises(BadInput, match=r"unknown guarantee 'windw'. Did you mean 'window'"):
        Guarantee("windw", 5, 1.0)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match=r"unknown kind of users 'roming'. Did you mean 'roaming'"):
        Guarantee.window(5, 1.0, users="roming")  # type: ignore[arg-type]


def test_the_promise_is_frozen_and_its_numbers_are_plain() -> None:
    """A promise that changes after it was printed is none; 2.0 slots must print (and index) as 2."""
    guarantee = Guarantee.window(2.0, 1.0, regions_per_slot=np.int64(3))  # type: ignore[arg-type]
    with pytest.raises(FrozenInstanceError):
        guarantee.epsilon = 2.0  # type: ignore[misc]
    assert type(guarantee.length) is int
    assert type(guarantee.sensitivity) is int
    assert "2.0" not in str(guarantee)
    assert guarantee == Guarantee.window(2, 1.0, regions_per_slot=3)


def test_total_is_divided_by_correlation_and_rounded_down() -> None:
    """Rounding up would spend more than epsilon/k; a binary 1.1 would be off by one unit."""
    assert Guarantee.window(5, 1.0).total == NANO
    assert Guarantee.window(5, 1.0, correlation=3).total == 333_333_333
    assert Guarantee.window(5, 1.1, correlation=1.1).total == NANO
    assert Guarantee.finite(5, 0.3, correlation=7).total == 42_857_142


def test_sensitivity_is_regions_times_servers() -> None:
    """With c = 2 regions x 3 servers one user moves the counts by 6 in L1; noise for less breaks the promise."""
    for plain in (Guarantee.window(5, 1.0), Guarantee.finite(5, 1.0), Guarantee("window", 5, 1.0)):
        assert plain.sensitivity == plain.regions_per_slot == plain.servers_per_slot == 1
    assert Guarantee.finite(5, 1.0, regions_per_slot=2, servers_per_slot=3).sensitivity == 6
    assert Guarantee.window(5, 1.0, regions_per_slot=2, servers_per_slot=3).sensitivity == 6


def test_ledgers_follow_the_promise() -> None:
    """The ledger must hold epsilon/k over the right span, not epsilon over another."""
    finite = open_ledger(Guarantee.finite(7, 1.0, correlation=2), 3, 4)
    assert isinstance(finite, FiniteLedger)
    assert (finite.total, finite.length, finite.spent.shape) == (NANO // 2, 7, (3, 1))
    window = open_ledger(Guarantee.window(7, 1.0), 3, 4, "per-region")
    assert isinstance(window, WindowLedger)
    assert (window.total, window.length, window.spent.shape) == (NANO, 7, (3, 4))
    with pytest.raises(BadInput, match=r"unknown accounting 'per-regions'. Did you mean 'per-region'"):
        open_ledger(Guarantee.window(7, 1.0), 3, 4, "per-regions")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="unknown accounting 'None'"):
        open_ledger(Guarantee.window(7, 1.0), 3, 4, None)  # type: ignore[arg-type]
