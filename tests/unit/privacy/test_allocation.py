"""Allocation rules by example; that their sums never exceed the total is tested as a property."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from dpcrowd.errors import BadInput
from dpcrowd.privacy import allocation
from dpcrowd.privacy.units import NANO


def test_equal_parts_round_down() -> None:
    """A part that is rounded up is overspent after w slots."""
    assert allocation.uniform(NANO, 120) == 8_333_333
    assert allocation.per_sample(NANO, 300) == 3_333_333
    assert allocation.dissimilarity(NANO, 120) == 4_166_666


@pytest.mark.parametrize(
    ("rule", "parts"), [(allocation.uniform, 6), (allocation.per_sample, 6), (allocation.dissimilarity, 12)]
)
def test_a_budget_too_small_to_split_is_refused(rule: Callable[[int, int], int], parts: int) -> None:
    """A part of 0 means no noise scale at all: refuse when the scheme starts, not in its first slot."""
    text = (
        rf"^a budget of 5e-9 epsilon cannot be split into {parts} parts of at least 1e-9; "
        r"give a larger epsilon or fewer slots\.$"
    )
    with pytest.raises(BadInput, match=text):
        rule(5, 6)
    assert rule(12, 6) == 12 // parts


def test_rescue_takes_a_part_of_what_remains() -> None:
    """p = min(phi ln(I + 1), p_max), capped: from RescueDP's own text."""
    remaining = np.array([[NANO], [NANO], [NANO // 2]])
    interval = np.array([[1.0], [100.0], [1.0]])
    given = allocation.rescue(remaining, interval, phi=0.2, p_max=0.6, largest=NANO)
    assert given[:, 0].tolist() == [int(0.2 * math.log(2) * NANO), 600_000_000, int(0.2 * math.log(2) * NANO / 2)]
    assert given.dtype == np.int64
    capped = allocation.rescue(remaining, interval, phi=0.2, p_max=0.6, largest=NANO // 5)
    assert capped[:, 0].tolist() == [given[0, 0], NANO // 5, given[2, 0]]


@pytest.mark.parametrize(("phi", "p_max"), [(0.2, 7.0), (50.0, 1.0), (50.0, 1.5), (-1.0, 0.6)])
def test_rescue_never_asks_for_more_than_there_is(phi: float, p_max: float) -> None:
    """However it is tuned: a part above 1 would be refused by the ledger in the middle of a run."""
    remaining = np.array([[NANO], [1], [0], [10**15]])
    given = allocation.rescue(remaining, np.full((4, 1), 30.0), phi, p_max, largest=10**15)
    assert (given <= remaining).all()
    assert (given >= 0).all()


def test_distribution_halves_the_rest_of_its_half() -> None:
    """BD: the first publication gets ε/4, the next ε/8; nothing once ε/2 is published."""
    spent = np.array([0, NANO // 4, 3 * NANO // 8, NANO // 2 - 1, NANO // 2, NANO // 2 + 5])
    given = allocation.distribution(NANO, spent)
    assert given.tolist() == [NANO // 4, NANO // 8, NANO // 16, 0, 0, 0]


def test_absorption_takes_the_skipped_shares() -> None:
    """BA: its own share and one for each skipped slot, never those of more than a window."""
    given = allocation.absorption(NANO, 10, np.array([0, 1, 9, 10, 1000]))
    assert given.tolist() == [NANO // 20, NANO // 10, NANO // 2, NANO // 2, NANO // 2]
