"""What was paid and what is blocked: two numbers, so that nobody takes a precaution for an exposure."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpcrowd.node.live.spending import Spending, spending
from dpcrowd.node.live.steps import ClockSteps
from dpcrowd.node.storage import Storage
from dpcrowd.privacy import Guarantee
from dpcrowd.privacy.units import NANO
from node_support_storage import LENGTH, SLOTS, draw, open_storage, opens

WINDOW = Guarantee(kind="window", length=4, epsilon=1.0)
FINITE = Guarantee(kind="finite", length=1000, epsilon=1.0)
QUARTER = NANO // 4


def of(storage: Storage, slot: int, guarantee: Guarantee = WINDOW) -> Spending:
    return spending(storage, guarantee, SLOTS, slot, "crowd")


def test_payments_of_the_window_are_spent_and_nothing_else(tmp_path: Path) -> None:
    """The number that users were promised a bound for."""
    with open_storage(tmp_path, nano=NANO, slots=4) as storage:
        for slot in range(6):
            draw(storage, slot, nano=QUARTER)
        assert of(storage, 5) == Spending(NANO, 0, "")
        assert of(storage, 7) == Spending(NANO // 2, 0, "")
        assert of(storage, 9) == Spending(0, 0, "")


@pytest.mark.parametrize("guarantee", [WINDOW, FINITE], ids=["window", "finite"])
def test_a_confirmed_loss_is_blocked_and_was_not_paid(guarantee: Guarantee, tmp_path: Path) -> None:
    """It is booked to be on the safe side; nobody has released anything for it that this server knows of."""
    with open_storage(tmp_path, nano=NANO, slots=4 if guarantee is WINDOW else None) as storage:
        draw(storage, 0, nano=QUARTER)
        storage.ledger.mark_lost(opens(1), opens(2), NANO, "an old copy", at_ns=opens(2))
        found = of(storage, 2, guarantee)
        assert (found.spent, found.blocked) == (QUARTER, NANO)
        assert found.text == "ε=1 for losses that were confirmed."


def test_a_clock_that_was_set_ahead_in_an_earlier_life_blocks_and_spends_nothing(tmp_path: Path) -> None:
    """After an hour there and back with a restart between, "3.85 of 1 spent" says that a promise was broken."""
    with open_storage(tmp_path, nano=NANO, slots=4) as storage:
        for slot in range(0, 400, 2):
            draw(storage, slot, nano=NANO // 2)
        storage.set_ahead(opens(400), 360 * LENGTH)  # and back again, while nobody looked
        found = of(storage, 401)
        assert found.spent <= NANO
        assert found.blocked > 100 * NANO // 2
        assert "was set ahead" in found.text
        assert storage.ledger.room(opens(401)).nano == 0, "it is blocked"


def test_a_clock_that_stays_ahead_leaves_spent_what_is_spent(tmp_path: Path) -> None:
    """By their dates the payments of the last slots are old; they are not."""
    with open_storage(tmp_path, nano=NANO, slots=4) as storage:
        for slot in range(4):
            draw(storage, slot, nano=QUARTER)
        storage.set_ahead(opens(4), 360 * LENGTH)
        assert of(storage, 363) == Spending(NANO, 0, "")
        assert of(storage, 366) == Spending(QUARTER, 0, "")


def test_a_clock_that_came_back_blocks_nothing(tmp_path: Path) -> None:
    """What this life has seen itself needs no precaution; what was paid meanwhile is spent, dated as it is."""
    with open_storage(tmp_path, nano=NANO, slots=4) as storage:
        steps = ClockSteps(storage, "crowd")
        for slot in range(0, 400, 2):
            draw(storage, slot, nano=NANO // 2)
        steps.add(opens(400), 360 * LENGTH)
        steps.book()
        draw(storage, 762, nano=QUARTER)
        steps.add(opens(763), -360 * LENGTH)
        steps.book()
        assert of(storage, 403) == Spending(QUARTER, 0, "")


def test_less_than_was_promised_before_is_told_as_it_is(tmp_path: Path) -> None:
    """A promise that was made stronger finds more spent than it allows: that is spent, not blocked."""
    with open_storage(tmp_path, nano=NANO, slots=4) as storage:
        draw(storage, 0, nano=NANO)
        stronger = Guarantee(kind="window", length=4, epsilon=0.5)
        storage.ledger.promises.declare(NANO // 2, 4 * LENGTH, slots=SLOTS)
        assert of(storage, 1, stronger) == Spending(NANO, 0, "")
