"""What users really paid; and that the per-region ledger lets a moving user pay more than it says."""

from __future__ import annotations

import numpy as np
import pytest

from dpcrowd.errors import BadInput, BudgetExhausted
from dpcrowd.privacy import Guarantee, ObserverLedger, Paid, WindowLedger, open_ledger, worst_paid
from dpcrowd.privacy.units import NANO


def test_three_ways_of_living() -> None:
    """By hand: two servers, two regions, three slots."""
    charges = np.array([[[5, 1], [0, 2]], [[1, 5], [0, 0]], [[0, 0], [4, 4]]])
    assert worst_paid(charges, None) == Paid(staying=6, moving=10, roaming=14)
    assert worst_paid(charges, 2) == Paid(staying=6, moving=10, roaming=10)
    assert worst_paid(charges, 1) == Paid(staying=5, moving=5, roaming=5)
    assert worst_paid(charges, 50) == worst_paid(charges, 3) == worst_paid(charges, None)


def test_no_slots_no_payment() -> None:
    """A run without a sample, or of no slots, has paid nothing."""
    assert worst_paid(np.zeros((0, 3, 4), dtype=np.int64), 5) == Paid(0, 0, 0)
    assert ObserverLedger(Guarantee.window(5, 1.0), 3, 4).report() == Paid(0, 0, 0)


def test_bad_shapes_are_refused() -> None:
    """A forgotten axis would be read as other servers or regions."""
    with pytest.raises(BadInput, match=r"shape \(slots, servers, regions\); given \(3, 4\)"):
        worst_paid(np.zeros((3, 4), dtype=np.int64), 5)
    for window in (0, -1):
        with pytest.raises(BadInput, match=f"window must be at least 1 slot; given {window}"):
            worst_paid(np.zeros((3, 4, 5), dtype=np.int64), window)


def test_records_add_up_and_gaps_count() -> None:
    """Several reads of a slot add; slots without a record are slots of the window all the same."""
    observer = ObserverLedger(Guarantee.window(3, 1.0), 2, 2)
    observer.record(10, np.array([[1, 2], [0, 0]]))
    observer.record(10, np.array([[4], [0]]))  # a read of all regions alike
    observer.record(13, np.array([[7, 0], [0, 0]]))
    assert observer.report() == Paid(staying=7, moving=7, roaming=7)
    observer.record(12, np.array([[0, 0], [3, 3]]))
    assert observer.report() == Paid(staying=7, moving=7, roaming=10)
    observer.record(12, np.array([[1, 0], [0, 0]]))
    assert observer.report() == Paid(staying=8, moving=8, roaming=10)


def test_a_finite_promise_counts_the_whole_stream() -> None:
    """User-level: slots far apart belong to the same user."""
    observer = ObserverLedger(Guarantee.finite(100, 1.0), 1, 1)
    for slot in (0, 50, 99):
        observer.record(slot, np.array([[5]]))
    assert observer.report() == Paid(15, 15, 15)


def test_recorded_arrays_are_not_shared() -> None:
    """A driver that reuses its buffer must not change what was recorded."""
    observer = ObserverLedger(Guarantee.window(3, 1.0), 1, 1)
    buffer = np.array([[5]])
    observer.record(0, buffer)
    buffer[:] = 0
    assert observer.report().moving == 5


def test_epsilons_are_named_for_reports() -> None:
    """The JSON of a simulation carries these three names."""
    assert Paid(NANO // 2, NANO, 2 * NANO).epsilons() == {"server": 0.5, "moving": 1.0, "roaming": 2.0}


def test_per_region_ledger_is_unsound_for_moving_users() -> None:
    """Each region stays within ε, but a user who is each time in the region that is read pays d times as much."""
    guarantee, regions = Guarantee.window(10, 1.0), 4
    paper, sound = open_ledger(guarantee, 1, regions, "per-region"), open_ledger(guarantee, 1, regions)
    observer = ObserverLedger(guarantee, 1, regions)
    refused = 0
    for slot in range(10):
        charge = np.zeros((1, regions), dtype=np.int64)
        charge[0, slot % regions] = NANO // 2 if slot < 2 * regions else 0
        observer.record(slot, paper.spend(slot, charge))
        try:
            sound.spend(slot, charge)
        except BudgetExhausted:
            refused += 1
    paid = observer.report()
    assert paid.staying == NANO
    assert paid.moving == regions * NANO
    assert refused == 2 * regions - 2


def test_one_sound_ledger_a_server_does_not_bound_a_roaming_user() -> None:
    """Servers that take turns each stay within ε; a user who follows them pays m times ε."""
    servers, w = 5, 10
    ledger = WindowLedger(NANO, w, servers, 1, "sound")
    observer = ObserverLedger(Guarantee.window(w, 1.0, users="roaming"), servers, 1)
    for slot in range(servers):
        charge = np.zeros((servers, 1), dtype=np.int64)
        charge[slot] = NANO
        observer.record(slot, ledger.spend(slot, charge))
    assert observer.report() == Paid(staying=NANO, moving=NANO, roaming=servers * NANO)
