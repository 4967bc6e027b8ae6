"""Budgets as integers of 1e-9 epsilon: exact, rounded down, and refused outside their range."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dpcrowd.errors import BadInput
from dpcrowd.privacy.units import LARGEST_EPSILON, NANO, format_epsilon, from_nano, to_nano


@pytest.mark.parametrize(
    ("epsilon", "nano"),
    [
        (1, NANO),
        (0.1, 100_000_000),
        (0.3, 300_000_000),  # 0.3 * 1e9 as a float product is 300000000.0, but 0.29 * 1e9 is not
        (0.29, 290_000_000),
        (1.1, 1_100_000_000),
        ("0.7", 700_000_000),
        ("1/3", 333_333_333),
        (Fraction(2, 3), 666_666_666),
        (Decimal("0.123456789999"), 123_456_789),
        (np.float64(0.57), 570_000_000),
        (np.float32(0.1), 100_000_000),
        (np.int64(3), 3 * NANO),
        (1e-9, 1),
        (1.999999999e-9, 1),
        (LARGEST_EPSILON, LARGEST_EPSILON * NANO),
    ],
)
def test_epsilon_is_the_decimal_that_was_written(epsilon: Any, nano: int) -> None:
    """A budget read through binary floats would be off by one unit: 0.29 * 1e9 truncates to 289999999."""
    assert to_nano(epsilon) == nano


@pytest.mark.parametrize(
    "epsilon", [0, -1, -0.5, 0.0, 9.99e-10, 1e-300, float("nan"), float("inf"), "", "one", "1/0", None, True, [1]]
)
def test_what_is_no_budget_is_refused_in_one_line(epsilon: Any) -> None:
    """Epsilon zero, negative, not a number or below the unit must never become a ledger's total."""
    with pytest.raises(BadInput, match="epsilon must be") as refused:
        to_nano(epsilon)
    assert "\n" not in str(refused.value)
    assert str(epsilon) in str(refused.value)


def test_largest_epsilon() -> None:
    """Beyond the limit sums of nano-epsilon could leave 64 bits; the limit itself is allowed."""
    with pytest.raises(BadInput, match=r"at most 1000000; given 1000000.5"):
        to_nano(LARGEST_EPSILON + 0.5)
    assert 9_000 * to_nano(LARGEST_EPSILON) < 2**63


@pytest.mark.parametrize(
    ("nano", "text"),
    [
        (0, "0"),
        (1, "0.000000001"),
        (20_000_000, "0.02"),
        (NANO, "1"),
        (100 * NANO, "100"),
        (1_500_000_000, "1.5"),
        (10 * NANO + 1, "10.000000001"),
        (-500_000_000, "-0.5"),
        (-NANO, "-1"),
    ],
)
def test_format_is_exact_and_short(nano: int, text: str) -> None:
    """A message that printed 100 as 1, or -0.5 as -1.5, would misstate what is left."""
    assert format_epsilon(nano) == text
    assert format_epsilon(np.int64(nano)) == text  # type: ignore[arg-type]


def test_from_nano_is_the_nearest_float() -> None:
    """Plots and reports show the budget that was given."""
    assert from_nano(300_000_000) == 0.3
    assert isinstance(from_nano(np.int64(1)), float)  # type: ignore[arg-type]
