"""What a slot may cost by the durable ledger: jumps first, other networks too, and the operator is told once."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from dpcrowd.node.ingest.times import rfc3339
from dpcrowd.node.live.build import debts
from dpcrowd.node.live.purse import Purse, horizon, shortage
from dpcrowd.node.live.spending import Spending, spending
from dpcrowd.node.slots import SlotClock
from dpcrowd.node.storage import Promise, Room, Storage, StorageFailed
from dpcrowd.privacy import Guarantee
from dpcrowd.privacy.units import NANO
from node_support_storage import EPOCH, LENGTH, draw, open_storage, opens

CLOCK = SlotClock(EPOCH, LENGTH)
WINDOW = Guarantee(kind="window", length=4, epsilon=1.0)
FINITE = Guarantee(kind="finite", length=4, epsilon=1.0)


def purse_of(storage: Storage, guarantee: Guarantee = WINDOW) -> Purse:
    return Purse(storage, guarantee, CLOCK, "crowd")


def short_of(storage: Storage, guarantee: Guarantee, slot: int) -> str:
    room = storage.ledger.room(opens(slot))
    return shortage(guarantee, room, spending(storage, room.promise, CLOCK, slot), slot, 0, "crowd")


def test_the_operator_is_told_when_budget_ends_and_when_it_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A node that stops sampling without a word, or says so in every slot, would be no help."""
    with open_storage(tmp_path, nano=NANO, slots=4) as storage, caplog.at_level(logging.INFO):
        purse = purse_of(storage)
        assert purse.room(0) == NANO
        draw(storage, 0, nano=NANO - NANO // 4 + 1)
        assert purse.room(1) == purse.room(2) == NANO // 4 - 1
        assert purse.room(4) == NANO
    events = [(record.event, record.getMessage()) for record in caplog.records]  # type: ignore[attr-defined]
    assert [event for event, _ in events] == ["budget-spent", "budget-back"]
    assert "ε=0.750000001 of 1 is spent" in events[0][1]


def test_nothing_is_paid_before_a_jump_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A full disk at the moment of a jump, and the ledger would never learn how young its payments are."""
    with open_storage(tmp_path, nano=NANO, slots=4) as storage:
        purse = purse_of(storage)
        draw(storage, 0, nano=NANO)
        purse.clock_set(opens(1), 100 * LENGTH)
        with monkeypatch.context() as full:

            def refuse(at_ns: int, moved_ns: int) -> None:
                raise StorageFailed("full", "no space", "free some")

            full.setattr(storage, "set_ahead", refuse)
            assert purse.room(102) == 0
        assert "cannot be asked" in caplog.text
        assert purse.room(103) == 0
        assert purse.room(104) == NANO
        assert [event.kind for event in storage.events.all()] == ["clock"]


def test_another_networks_promise_is_named(tmp_path: Path) -> None:
    """Otherwise "remaining 0" beside "spent 0" would be a riddle."""
    shared = tmp_path / "a"
    with (
        open_storage(shared, "a", nano=NANO // 2, slots=4),
        open_storage(tmp_path / "b", "crowd", ledger=shared, nano=NANO, slots=4) as storage,
    ):
        draw(storage, 0, nano=NANO // 2)
        text = short_of(storage, WINDOW, 1)
        assert "'a' shares this ledger and promises ε=0.5, of which 0.5 is spent" in text


@pytest.mark.parametrize(("nano", "short"), [(NANO // 4 - 1, True), (NANO // 4, False)])
def test_less_than_an_even_share_is_not_enough(nano: int, short: bool) -> None:
    """No scheme asks for less: the node would say that it samples, and be silent."""
    room = Room(nano, NANO - nano, Promise("crowd", NANO, 4 * LENGTH, 0))
    assert bool(shortage(WINDOW, room, Spending(NANO - nano, 0), 9, 0, "crowd")) is short


def test_a_horizon_ends_and_begins_anew_where_the_operator_says(tmp_path: Path) -> None:
    """Counted from the epoch, a new horizon would be over before it began."""
    with open_storage(tmp_path, nano=NANO) as storage:
        room, cost = Room(NANO, 0, Promise("crowd", NANO, None, 0)), Spending(0, 0)
        assert shortage(FINITE, room, cost, 3, 0, "crowd") == ""
        assert "ended with slot 3" in shortage(FINITE, room, cost, 4, 0, "crowd")
        draw(storage, 0, nano=NANO)
        assert debts(storage, FINITE, CLOCK, 5, "crowd") == {0: NANO}
        storage.ledger.promises.new_horizon(opens(7) + 1, opens(7), "again")
        assert horizon(storage, CLOCK, "crowd") == 7
        assert debts(storage, FINITE, CLOCK, 6, "crowd") == {}
        assert shortage(FINITE, room, cost, 10, 7, "crowd") == ""
        assert "ended with slot 10" in shortage(FINITE, room, cost, 11, 7, "crowd")


def test_more_than_promised_is_put_down_to_losses_only_where_there_are_some(tmp_path: Path) -> None:
    """An operator who has confirmed nothing would look for a loss, and for whoever confirmed it."""
    with open_storage(tmp_path, nano=NANO, slots=4) as storage:
        draw(storage, 0, nano=NANO // 2)
        storage.ledger.promises.declare(NANO // 4, 4 * LENGTH, slots=CLOCK)  # a stronger promise is allowed at any time
        smaller = Guarantee(kind="window", length=4, epsilon=0.25)
        text = short_of(storage, smaller, 1)
        assert text == "ε=0.5 is spent, more than the 0.25 that is promised now."
        storage.ledger.mark_lost(opens(1), opens(2), NANO, "restored", at_ns=opens(2))
        text = short_of(storage, smaller, 2)
        assert text == (
            "ε=0.5 is spent, more than the 0.25 that is promised now, and blocked is ε=1 for losses that were "
            f"confirmed, until {rfc3339(opens(5))}."
        )
        text = short_of(storage, smaller, 4)
        assert "losses" in text, "the loss is the last to leave the window"


def test_more_than_another_network_promises_is_put_down_to_that_promise(tmp_path: Path) -> None:
    """It was declared when more was spent already; nobody has lost anything."""
    shared = tmp_path / "a"
    with open_storage(shared, "crowd", nano=NANO, slots=4) as storage:
        draw(storage, 0, nano=NANO // 2)
        with open_storage(tmp_path / "b", "b", ledger=shared, nano=NANO // 4, slots=4):
            text = short_of(storage, WINDOW, 1)
        assert text == "network 'b' shares this ledger and promises ε=0.25, but ε=0.5 is spent already."


def test_another_networks_horizon_is_not_ours(tmp_path: Path) -> None:
    """A new horizon of one network on a shared ledger would forgive the other what it has spent."""
    shared = tmp_path / "a"
    with (
        open_storage(shared, "a", nano=NANO) as other,
        open_storage(tmp_path / "b", "crowd", ledger=shared, nano=NANO) as storage,
    ):
        draw(storage, 0, nano=NANO // 2)
        other.ledger.promises.new_horizon(opens(7), opens(7), "theirs")
        assert horizon(storage, CLOCK, "crowd") == 0
        assert debts(storage, FINITE, CLOCK, 8, "crowd") == {0: NANO // 2}
