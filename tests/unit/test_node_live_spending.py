"""What was paid and what is blocked: two numbers, so that nobody takes a precaution for an exposure."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpcrowd.node.ingest.times import rfc3339
from dpcrowd.node.live.purse import own_promise
from dpcrowd.node.live.spending import Spending, spending
from dpcrowd.node.live.steps import ClockSteps
from dpcrowd.node.storage import Promise, Storage
from dpcrowd.privacy.units import NANO
from node_support_storage import LENGTH, SLOTS, draw, open_storage, opens

QUARTER = NANO // 4


def of(storage: Storage, slot: int) -> Spending:
    own = own_promise(storage, "crowd")
    assert own is not None
    return spending(storage, own, SLOTS, slot)


def paid_and_blocked(storage: Storage, slot: int) -> tuple[int, int, str]:
    found = of(storage, slot)
    return found.spent, found.blocked, found.text


def test_payments_of_the_window_are_spent_and_nothing_else(tmp_path: Path) -> None:
    """The number that users were promised a bound for."""
    with open_storage(tmp_path, nano=NANO, slots=4) as storage:
        for slot in range(6):
            draw(storage, slot, nano=QUARTER)
        assert of(storage, 5) == Spending(NANO, 0, returns=QUARTER, returns_slot=6)
        assert of(storage, 7) == Spending(NANO // 2, 0, returns=QUARTER, returns_slot=8)
        assert of(storage, 9) == Spending(0, 0)


@pytest.mark.parametrize("window", [True, False], ids=["window", "finite"])
def test_a_confirmed_loss_is_blocked_and_was_not_paid(window: bool, tmp_path: Path) -> None:
    """It is booked to be on the safe side; nobody has released anything for it that this server knows of.

    An operator who has confirmed it asks when the block ends, and when the server samples again.
    """
    with open_storage(tmp_path, nano=NANO, slots=4 if window else None) as storage:
        draw(storage, 0, nano=QUARTER)
        storage.ledger.mark_lost(opens(1), opens(2), NANO, "an old copy", at_ns=opens(2))
        found = of(storage, 2)
        assert (found.spent, found.blocked) == (QUARTER, NANO)
        if window:
            assert found.text == f"ε=1 for losses that were confirmed, until {rfc3339(opens(5))}."
            assert found.blocked_until == opens(5)
            assert (found.returns_slot, found.returns) == (5, NANO), "the payment that leaves before makes no room"
            assert [storage.ledger.room(opens(slot)).nano for slot in (4, 5)] == [0, NANO]
        else:
            assert found.text == "ε=1 for losses that were confirmed, as long as the horizon lasts."
            assert (found.blocked_until, found.returns_slot) == (None, None)
        assert storage.ledger.total_spent() - storage.ledger.total_lost() == QUARTER
        assert storage.ledger.total_lost() == NANO, "each row is counted once"


def test_what_was_lost_is_known_to_every_life_and_every_network(tmp_path: Path) -> None:
    """A second network on the ledger, or a restart, would call blocked what the first calls spent, or the reverse."""
    with (
        open_storage(tmp_path / "a", "a", nano=NANO, slots=4) as storage,
        open_storage(tmp_path / "b", "b", ledger=tmp_path / "a", nano=NANO, slots=4) as other,
    ):
        assert other.ledger.total_lost() == 0
        storage.ledger.mark_lost(opens(1), opens(2), NANO, "an old copy", at_ns=opens(2))
        assert other.ledger.total_lost() == storage.ledger.total_lost() == NANO
    with open_storage(tmp_path / "a", "a", nano=NANO, slots=4) as storage:
        assert storage.ledger.total_lost() == NANO


def test_what_comes_back_is_said_by_the_promise_that_binds(tmp_path: Path) -> None:
    """Of the own window alone it would be promised again and again, and never come."""
    shared = tmp_path / "a"
    with (
        open_storage(shared, "a", nano=NANO, slots=10) as other,
        open_storage(tmp_path / "b", "crowd", ledger=shared, nano=NANO, slots=4) as storage,
    ):
        draw(storage, 0, nano=NANO // 2)
        draw(other, 1, nano=NANO // 4)

        def comes_back(promise: Promise, slot: int) -> tuple[int | None, int]:
            found = spending(storage, promise, SLOTS, slot)
            return found.returns_slot, found.returns

        (theirs, own) = storage.ledger.promises.all()
        assert comes_back(own, 2) == (4, NANO // 2)
        assert comes_back(theirs, 2) == (10, NANO // 2)
        assert comes_back(theirs, 10) == (11, NANO // 4)
        assert [storage.ledger.room(opens(slot)).nano for slot in (9, 10, 11)] == [
            NANO // 4,
            3 * NANO // 4,
            NANO,
        ]
        assert comes_back(Promise("a", NANO, None, 0), 2) == (None, 0)
        assert comes_back(own, 30) == (None, 0)


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
        assert found.blocked_until is not None
        end = (found.blocked_until - opens(0)) // LENGTH
        assert [of(storage, slot).blocked > 0 for slot in (end - 1, end)] == [True, False], "it ends when it is said to"
        assert storage.ledger.room(opens(401)).nano == 0, "it is blocked"


def test_a_clock_that_stays_ahead_leaves_spent_what_is_spent(tmp_path: Path) -> None:
    """By their dates the payments of the last slots are old; they are not."""
    with open_storage(tmp_path, nano=NANO, slots=4) as storage:
        for slot in range(4):
            draw(storage, slot, nano=QUARTER)
        storage.set_ahead(opens(4), 360 * LENGTH)
        assert paid_and_blocked(storage, 363) == (NANO, 0, "")
        assert paid_and_blocked(storage, 366) == (QUARTER, 0, "")


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
        assert paid_and_blocked(storage, 403) == (QUARTER, 0, "")


def test_less_than_was_promised_before_is_told_as_it_is(tmp_path: Path) -> None:
    """A promise that was made stronger finds more spent than it allows: that is spent, not blocked."""
    with open_storage(tmp_path, nano=NANO, slots=4) as storage:
        draw(storage, 0, nano=NANO)
        storage.ledger.promises.declare(NANO // 2, 4 * LENGTH, slots=SLOTS)
        assert paid_and_blocked(storage, 1) == (NANO, 0, "")
