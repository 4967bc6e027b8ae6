"""Allocation: whatever is published and skipped, no window ever gets more than its total.

The rules of BD and BA are played here with plain lists, apart from the schemes that use them: the adversary
(hypothesis) decides in which slots something is published.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcrowd.privacy import allocation

totals = st.integers(50, 10**10)
windows = st.integers(1, 12)
choices = st.lists(st.booleans(), min_size=1, max_size=60)


def worst(charges: list[int], window: int) -> int:
    """The largest sum over any `window` consecutive slots, by trying all."""
    return max(sum(charges[first : first + window]) for first in range(len(charges)))


def play_bd(total: int, w: int, publishes: list[bool]) -> list[int]:
    charges: list[int] = []
    for publish in publishes:
        recent = sum(charges[max(0, len(charges) - (w - 1)) :]) if w > 1 else 0
        price = int(allocation.distribution(total, np.array([[recent]], dtype=np.int64))[0, 0])
        charges.append(price if publish else 0)
    return charges


def play_ba(total: int, w: int, publishes: list[bool], nullify: bool = True) -> list[int]:
    """After a publication that took k skipped shares, the next k slots are nullified and earn nothing."""
    charges: list[int] = []
    skipped = nullified = 0
    for publish in publishes:
        if nullified:
            nullified -= 1
            charges.append(0)
        elif publish:
            charges.append(int(allocation.absorption(total, w, np.array([[skipped]], dtype=np.int64))[0, 0]))
            nullified, skipped = min(skipped, w - 1) * nullify, 0
        else:
            skipped += 1
            charges.append(0)
    return charges


@pytest.mark.slow
@given(totals, st.integers(1, 50))
def test_equal_parts(total: int, parts: int) -> None:
    """uniform * w, per_sample * T_s and 2w tests stay within the total, and waste less than a unit each."""
    for rule in (allocation.uniform, allocation.per_sample):
        assert total - parts < parts * rule(total, parts) <= total
    if total >= 2 * parts:
        assert total - 2 * parts < 2 * parts * allocation.dissimilarity(total, parts) <= total


@given(totals, windows, choices)
def test_bd_publications_and_tests(total: int, w: int, publishes: list[bool]) -> None:
    """Publications of any window stay within ε/2; with a test paid in every slot, within ε."""
    charges = play_bd(total, w, publishes)
    assert 2 * worst(charges, w) <= total
    if total >= 2 * w:
        test = allocation.dissimilarity(total, w)
        assert worst([charge + test for charge in charges], w) <= total


@given(totals, windows, choices)
def test_ba_publications_and_tests(total: int, w: int, publishes: list[bool]) -> None:
    """The same for absorption with nullification."""
    charges = play_ba(total, w, publishes)
    assert 2 * worst(charges, w) <= total
    if total >= 2 * w:
        test = allocation.dissimilarity(total, w)
        assert worst([charge + test for charge in charges], w) <= total


def test_ba_without_nullification_overspends() -> None:
    """Why slots are nullified: skip 9, publish, then publish each slot spends nearly twice ε/2 in one window."""
    publishes = [False] * 9 + [True] * 10
    assert 2 * worst(play_ba(1000, 10, publishes), 10) <= 1000
    assert 2 * worst(play_ba(1000, 10, publishes, nullify=False), 10) > 1000


@given(
    st.integers(0, 10**15),
    st.floats(1, 1e6),
    st.floats(0.01, 10),
    st.floats(0.01, 2),
    st.integers(1, 10**15),
)
def test_rescue_is_within_what_remains(remaining: int, interval: float, phi: float, p_max: float, largest: int) -> None:
    """Never more than remains or than the cap; within rounding it is the rule of the paper."""
    given_ = allocation.rescue(np.array([[remaining]]), np.array([[interval]]), phi, p_max, largest)
    amount = int(given_[0, 0])
    assert 0 <= amount <= min(remaining, largest)
    part = min(phi * math.log(interval + 1), p_max, 1.0)
    assert math.isclose(amount, min(part * remaining, largest), rel_tol=1e-12, abs_tol=1.0)


@given(st.lists(st.floats(1, 50), min_size=1, max_size=40), windows, totals)
def test_rescue_in_a_sliding_window(intervals: list[float], w: int, total: int) -> None:
    """A part of what the window has left, slot after slot, never overdraws the window."""
    charges: list[int] = []
    for interval in intervals:
        recent = sum(charges[max(0, len(charges) - (w - 1)) :]) if w > 1 else 0
        left = np.array([[total - recent]], dtype=np.int64)
        charges.append(int(allocation.rescue(left, np.array([[interval]]), 5.0, 1.0, total)[0, 0]))
    assert worst(charges, w) <= total
