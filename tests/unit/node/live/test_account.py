"""What a slot may cost by the durable ledger: jumps first, other networks too, and the operator is told once."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from dpcrowd.node.live.account_loader import AccountLoader
from dpcrowd.node.slots import rfc3339
from dpcrowd.node.storage import Storage, StorageError
from dpcrowd.privacy.account import Account
from dpcrowd.privacy.allowance import Allowance
from dpcrowd.privacy.network_guarantee import Slots
from dpcrowd.privacy.units import NANO
from node_support_storage import EPOCH, LENGTH, SLOTS, draw, open_storage, opens

FOUR = Slots(EPOCH, LENGTH, 4)


def left(loader: AccountLoader, slot: int) -> int:
    """What the loaded account allows a slot; 0 where there is none."""
    account = loader.load(slot)
    return 0 if account is None else account.allowance(opens(slot)).nano


def allowance(storage: Storage, slot: int, slots: Slots = FOUR) -> Allowance:
    return storage.ledger.account(opens(slot), slots).allowance(opens(slot))


def declared(nano: int, span_ns: int | None) -> Account:
    """An account without payments, of a network alone."""
    account = Account("crowd", configured=FOUR)
    return account.declare(nano, span_ns, slot_ns=LENGTH, epoch_ns=SLOTS.epoch_ns)


def test_the_operator_is_told_when_budget_ends_and_when_it_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A node that stops sampling without a word, or says so in every slot, would be no help."""
    with open_storage(tmp_path, nano=NANO, slots=4) as storage, caplog.at_level(logging.INFO):
        loader = AccountLoader(storage, FOUR)
        assert left(loader, 0) == NANO
        draw(storage, 0, nano=NANO - NANO // 4 + 1)
        for slot in (1, 2):
            assert left(loader, slot) == NANO // 4 - 1
            loader.note_unpaid()
        assert left(loader, 4) == NANO
        loader.note_sampled()
        loader.note_sampled()
    events = [(record.event, record.getMessage()) for record in caplog.records]  # type: ignore[attr-defined]
    assert [event for event, _ in events] == ["budget-spent", "budget-back"]
    assert "ε=0.750000001 of 1 is spent" in events[0][1]


@pytest.mark.parametrize(("keeps_schedule", "level"), [(True, logging.INFO), (False, logging.WARNING)])
def test_a_window_that_its_schedule_uses_up_is_no_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, keeps_schedule: bool, level: int
) -> None:
    """With relay it is used up in most slots: a line every few slots hides those that mean something."""
    with open_storage(tmp_path, nano=NANO, slots=4) as storage, caplog.at_level(logging.INFO):
        loader = AccountLoader(storage, FOUR, keeps_schedule=keeps_schedule)
        draw(storage, 0, nano=NANO)
        assert left(loader, 1) == 0
        assert not caplog.records, "no sample was due"
        loader.note_unpaid()
    assert [(record.event, record.levelno) for record in caplog.records] == [("budget-spent", level)]  # type: ignore[attr-defined]


def test_a_sample_that_costs_more_than_is_left_is_explained(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A scheme whose samples cost several even shares would be silent without a reason."""
    with open_storage(tmp_path, nano=NANO, slots=4) as storage, caplog.at_level(logging.INFO):
        loader = AccountLoader(storage, FOUR)
        draw(storage, 0, nano=NANO // 2)
        assert left(loader, 1) == NANO // 2
        loader.note_unpaid()
        assert loader.is_short
    assert "ε=0.5 is left, less than a sample costs" in caplog.text


def test_nothing_is_paid_before_a_jump_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A full disk at the moment of a jump, and the ledger would never learn how young its payments are."""
    with open_storage(tmp_path, nano=NANO, slots=4) as storage:
        loader = AccountLoader(storage, FOUR)
        draw(storage, 0, nano=NANO)
        loader.clock_set(opens(1), 100 * LENGTH)
        with monkeypatch.context() as full:

            def refuse(*given: object) -> None:
                raise StorageError("full", "no space", "free some")

            full.setattr(storage.ledger, "set_clock", refuse)
            loader.book()
            assert loader.load(102) is None
        assert "cannot be asked" in caplog.text
        assert left(loader, 103) == 0
        assert left(loader, 104) == NANO
        assert [event.kind for event in storage.events.all()] == ["clock"]


def test_another_networks_promise_is_named(tmp_path: Path) -> None:
    """Otherwise "remaining 0" beside "spent 0" would be a riddle."""
    shared = tmp_path / "a"
    with (
        open_storage(shared, "a", nano=NANO // 2, slots=4),
        open_storage(tmp_path / "b", "crowd", ledger=shared, nano=NANO, slots=4) as storage,
    ):
        draw(storage, 0, nano=NANO // 2)
        text = allowance(storage, 1).shortage
        assert "'a' shares this ledger and promises ε=0.5, of which 0.5 is spent" in text


@pytest.mark.parametrize(("nano", "short"), [(NANO // 4 - 1, True), (NANO // 4, False)])
def test_less_than_an_even_share_is_not_enough(nano: int, short: bool) -> None:
    """No scheme asks for less: the node would say that it samples, and be silent."""
    account = declared(NANO, 4 * LENGTH).pay(8, opens(8), LENGTH, NANO - nano)
    assert bool(account.allowance(opens(9)).shortage) is short


def test_a_horizon_ends_and_begins_anew_where_the_operator_says(tmp_path: Path) -> None:
    """Counted from the epoch, a new horizon would be over before it began."""
    with open_storage(tmp_path, nano=NANO) as storage:
        assert allowance(storage, 3).shortage == ""
        assert "ended with slot 3" in allowance(storage, 4).shortage
        assert allowance(storage, 4).nano == 0
        draw(storage, 0, nano=NANO)
        assert allowance(storage, 3).counted == NANO
        storage.ledger.new_horizon(opens(7) + 1, opens(7), "again")
        assert storage.ledger.account(opens(7)).first_slot == 7
        assert allowance(storage, 7).counted == 0
        assert allowance(storage, 10).shortage == ""
        assert "ended with slot 10" in allowance(storage, 11).shortage
        assert (
            "belongs to a horizon that has ended; the present one begins with slot 7" in allowance(storage, 6).shortage
        )


def test_more_than_promised_is_put_down_to_losses_only_where_there_are_some(tmp_path: Path) -> None:
    """An operator who has confirmed nothing would look for a loss, and for whoever confirmed it."""
    with open_storage(tmp_path, nano=NANO, slots=4) as storage:
        draw(storage, 0, nano=NANO // 2)
        storage.ledger.declare(NANO // 4, 4 * LENGTH, slots=SLOTS)  # a stronger promise is allowed at any time
        text = allowance(storage, 1).shortage
        assert text == "ε=0.5 is spent, more than the 0.25 that is promised now."
        storage.ledger.book_loss(opens(1), opens(2), NANO, "restored", at_ns=opens(2))
        text = allowance(storage, 2).shortage
        assert text == (
            "ε=0.5 is spent, more than the 0.25 that is promised now, and blocked is ε=1 for confirmed losses, "
            f"until {rfc3339(opens(5))}."
        )
        text = allowance(storage, 4).shortage
        assert "losses" in text, "the loss is the last to leave the window"


def test_more_than_another_network_promises_is_put_down_to_that_promise(tmp_path: Path) -> None:
    """It was declared when more was spent already; nobody has lost anything."""
    shared = tmp_path / "a"
    with open_storage(shared, "crowd", nano=NANO, slots=4) as storage:
        draw(storage, 0, nano=NANO // 2)
        with open_storage(tmp_path / "b", "b", ledger=shared, nano=NANO // 4, slots=4):
            text = allowance(storage, 1).shortage
        assert text == "network 'b' shares this ledger and promises ε=0.25, but ε=0.5 is spent already."


def test_another_networks_horizon_is_not_ours(tmp_path: Path) -> None:
    """A new horizon of one network on a shared ledger would forgive the other what it has spent."""
    shared = tmp_path / "a"
    with (
        open_storage(shared, "a", nano=NANO) as other,
        open_storage(tmp_path / "b", "crowd", ledger=shared, nano=NANO) as storage,
    ):
        draw(storage, 0, nano=NANO // 2)
        other.ledger.new_horizon(opens(7), opens(7), "theirs")
        assert storage.ledger.account(opens(8)).first_slot == 0
        assert allowance(storage, 8, Slots(EPOCH, LENGTH, 100)).nano == NANO // 2
