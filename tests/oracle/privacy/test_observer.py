"""The observer's figures against every possible life of a user, tried one by one."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from dpcrowd.errors import BudgetExhausted
from dpcrowd.privacy import Guarantee, ObserverLedger, Paid, open_ledger, worst_paid

Nanos = NDArray[np.int64]


def by_lives(charges: Nanos, window: int | None) -> Paid:
    """The worst payment over all places (server, region) that a user can be at in each slot."""
    slots, servers, regions = charges.shape
    places = list(product(range(servers), range(regions)))
    worst = {"staying": 0, "moving": 0, "roaming": 0}
    span = slots if window is None else min(window, slots)
    for first in range(slots - span + 1):
        for life in product(places, repeat=span):
            paid = sum(int(charges[first + step, i, k]) for step, (i, k) in enumerate(life))
            worst["roaming"] = max(worst["roaming"], paid)
            if len({server for server, _ in life}) == 1:
                worst["moving"] = max(worst["moving"], paid)
                if len(set(life)) == 1:
                    worst["staying"] = max(worst["staying"], paid)
    return Paid(**worst)


@pytest.mark.parametrize("shape", [(4, 2, 2), (5, 1, 3), (5, 3, 1), (1, 2, 3), (6, 1, 1), (3, 3, 2)])
@pytest.mark.parametrize("window", [None, 1, 2, 3, 9])
def test_worst_paid_is_the_worst_life(shape: tuple[int, int, int], window: int | None) -> None:
    """Axes swapped, a window one slot short, or max and sum in the wrong order each change a figure here."""
    rng = np.random.default_rng([*shape, window or 0])
    for _ in range(4):
        charges = rng.integers(0, 9, shape) * rng.integers(0, 2, shape)
        assert worst_paid(charges, window) == by_lives(charges, window)


@pytest.mark.parametrize("kind", ["window", "finite"])
def test_recorded_slot_by_slot_in_any_order(kind: str) -> None:
    """The collector gives what the whole array gives, with several reads a slot and slots left out."""
    rng = np.random.default_rng(3)
    guarantee = Guarantee.window(3, 1.0) if kind == "window" else Guarantee.finite(5, 1.0)
    for _ in range(10):
        observer = ObserverLedger(guarantee, 2, 2)
        charges = np.zeros((5, 2, 2), dtype=np.int64)
        for slot in rng.permutation(np.repeat(np.arange(5), 2))[:7]:
            charge = rng.integers(0, 9, (2, 2))
            charges[slot] += charge
            observer.record(int(slot) + 40, charge)
        assert observer.report() == by_lives(charges, 3 if kind == "window" else None)


@pytest.mark.parametrize("kind", ["window", "finite"])
def test_no_life_overspends_a_sound_ledger(kind: str) -> None:
    """Greedy random spending: every life at one server stays within ε; under the paper's ledger some life does not."""
    rng = np.random.default_rng(11)
    guarantee = Guarantee.window(3, 1e-8) if kind == "window" else Guarantee.finite(5, 1e-8)  # 10 nano-epsilon
    window, broken = (3 if kind == "window" else None), 0
    for _ in range(30):
        for accounting in ("sound", "per-region"):
            ledger = open_ledger(guarantee, 1, 3, accounting)
            charges = np.zeros((5, 1, 3), dtype=np.int64)
            for slot in np.sort(rng.integers(0, 5, 12)).tolist():
                charge = rng.integers(0, 7, (1, 3))
                try:
                    ledger.spend(slot, charge)
                except BudgetExhausted:
                    continue
                charges[slot] += charge
            paid = by_lives(charges, window)
            assert paid.staying <= 10
            if accounting == "sound":
                assert paid.moving <= 10
            else:
                broken += paid.moving > 10
    assert broken > 10
