"""Privacy budgets as exact integers of 1e-9 epsilon, and times as whole nanoseconds UTC.

Floating-point sums drift: a ledger that adds 0.1 ten times holds 0.9999999999999999, and one that adds the
rounded-up parts of a window overspends. All ledgers therefore count in whole nano-epsilon, allocation rounds down,
and a float appears only where a person reads it or a sampler needs a scale.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from dpcrowd.errors import BadInput

__all__ = ["LARGEST_EPSILON", "NANO", "check_nano", "format_epsilon", "from_nano", "to_nano", "utc_text"]

NANO = 10**9
LARGEST_EPSILON = 1_000_000


def to_nano(epsilon: float | int | Fraction | str) -> int:
    """Return epsilon as integer nano-epsilon, rounded down; a float means the decimal number that it prints as.

    >>> to_nano(0.3)
    300000000
    """
    try:
        exact = epsilon if isinstance(epsilon, Fraction) else Fraction(str(epsilon))
    except (ValueError, ZeroDivisionError):
        raise BadInput(f"epsilon must be a number > 0; given {epsilon!r}.") from None
    if exact <= 0:
        raise BadInput(f"epsilon must be > 0; given {epsilon}.")
    if exact > LARGEST_EPSILON:
        raise BadInput(f"epsilon must be at most {LARGEST_EPSILON}; given {epsilon}.")
    nano = math.floor(exact * NANO)
    if nano < 1:
        raise BadInput(f"epsilon must be at least 1e-9, the smallest unit of the ledger; given {epsilon}.")
    return nano


def from_nano(nano: int) -> float:
    """Return nano-epsilon as a float, for people and plots only."""
    return int(nano) / NANO


def format_epsilon(nano: int) -> str:
    """Return nano-epsilon as a short exact decimal.

    >>> format_epsilon(20000000)
    '0.02'
    """
    whole, rest = divmod(abs(int(nano)), NANO)
    sign = "-" if nano < 0 else ""
    return f"{sign}{whole}.{rest:09d}".rstrip("0").rstrip(".")


def check_nano(nano: int) -> None:
    """Refuse an amount that is not a payment: a draw that costs nothing would break every guarantee."""
    if not 1 <= nano <= LARGEST_EPSILON * NANO:
        raise BadInput(f"a payment of {nano}e-9 ε; allowed: from 1e-9 to {LARGEST_EPSILON}, in steps of 1e-9.")


def utc_text(at_ns: int, *, exact: bool = False) -> str:
    """Return a time as RFC 3339 in UTC, to the second, or, if `exact`, with its fraction.

    >>> utc_text(1_800_000_000_000_000_000)
    '2027-01-15T08:00:00Z'
    """
    seconds, fraction = divmod(at_ns, NANO)
    digits = f".{fraction:09d}".rstrip("0") if exact and fraction else ""
    return f"{np.datetime64(seconds, 's')}{digits}Z"
