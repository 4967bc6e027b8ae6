"""Accounts as storage loads them: little by little, by whichever process, and the same as if everything were read."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from dpcrowd.errors import BudgetExhausted
from dpcrowd.node.storage import Storage
from dpcrowd.node.storage.account_rows import load
from dpcrowd.privacy.account import EVER, Account
from node_support_storage import LENGTH, SLOTS, draw, open_storage, opens


def anew(storage: Storage) -> Account:
    """Everything that is on the disk."""
    return load(storage._reader.rows, storage._network, EVER)


def same(one: Account, other: Account, slots: range) -> bool:
    """Whether both say the same of some slots."""
    return [one.allowance(opens(slot)).nano for slot in slots] == [other.allowance(opens(slot)).nano for slot in slots]


def test_an_account_is_brought_up_to_date_by_what_is_new(tmp_path: Path) -> None:
    """Rows that are read twice would be paid twice, and rows of other networks that are missed would be spent again."""
    shared = tmp_path / "a"
    with (
        open_storage(shared, "a", nano=100, slots=8) as a,
        open_storage(tmp_path / "b", "b", ledger=shared, nano=60, slots=5) as b,
    ):
        for slot in range(0, 40, 2):
            for storage in (a, b):
                if amount := min(storage.ledger.allowance(opens(slot)).nano, 7):
                    draw(storage, slot, nano=amount)
            for storage in (a, b):
                now = storage.ledger.account(opens(slot))
                assert same(now, anew(storage), range(slot, slot + 12))
                assert (now.count, now.total) == (anew(storage).count, anew(storage).total)


def test_only_what_can_still_bind_is_loaded(tmp_path: Path) -> None:
    """A node that reads the payments of years at every start, and keeps them, would be slow and large."""
    with open_storage(tmp_path, nano=100, slots=3) as storage:
        for slot in range(300):
            draw(storage, slot, nano=1)
    with open_storage(tmp_path, nano=100, slots=3) as storage:
        storage.ledger._cached = None  # the declaration of these tests is dated 1970
        account = storage.ledger.account(opens(300))
        assert 2 <= len(account.payments) < 150
        assert (account.count, account.total) == (300, 300)
        assert storage.ledger.allowance(opens(300)).counted == 2


def test_a_slot_long_ago_is_judged_by_all_that_was_paid_then(tmp_path: Path) -> None:
    """A clock that went back asks for slots before those that are loaded."""
    with open_storage(tmp_path, nano=10, slots=3) as storage:
        draw(storage, 0, nano=6)
        draw(storage, 5000, nano=1)
        storage.ledger._cached = None
        assert storage.ledger.allowance(opens(5001)).counted == 1
        assert len(storage.ledger.account(opens(5001)).payments) == 1
        assert storage.ledger.allowance(opens(1)).counted == 7, "and what is dated later"
        with pytest.raises(BudgetExhausted):
            draw(storage, 1, nano=4)


@pytest.mark.slow
def test_what_is_over_is_let_go(tmp_path: Path) -> None:
    """A node that runs for a year would hold every payment of the year."""
    with open_storage(tmp_path, nano=10**6, slots=3) as storage:
        for slot in range(2200):
            with storage._database.transaction() as connection:
                _, account = storage.ledger.pay(connection, slot, opens(slot), LENGTH, 1, b"")
            storage.ledger.committed(slot + 1, account)
        assert len(storage.ledger.account(opens(2200)).payments) < 1300
        assert storage.ledger.allowance(opens(2200)).counted == 2


def _pay_and_stop(storage: Storage, connection: sqlite3.Connection) -> None:
    storage.ledger.pay(connection, 1, opens(1), LENGTH, 5, b"")
    raise KeyboardInterrupt


def test_a_payment_that_was_rolled_back_is_not_in_the_account(tmp_path: Path) -> None:
    """It was never paid: a full disk would cost budget for good."""
    with open_storage(tmp_path, nano=10, slots=3) as storage:
        draw(storage, 0, nano=4)
        with pytest.raises(KeyboardInterrupt), storage._database.transaction() as connection:
            _pay_and_stop(storage, connection)
        assert storage.ledger.allowance(opens(1)).counted == 4
        assert draw(storage, 1, nano=6) == 2


def test_two_processes_cannot_spend_the_same_rest(tmp_path: Path) -> None:
    """Both have asked before either pays: the second is refused where it pays, not where it asked."""
    shared = tmp_path / "a"
    with (
        open_storage(shared, "a", nano=10, slots=3) as a,
        open_storage(tmp_path / "b", "b", ledger=shared, nano=10, slots=3) as b,
    ):
        assert [storage.ledger.allowance(opens(0)).nano for storage in (a, b)] == [10, 10]
        draw(a, 0, nano=6)
        with pytest.raises(BudgetExhausted) as refused:
            draw(b, 0, nano=6)
        assert refused.value.remaining == 4
        assert SLOTS.length_ns == LENGTH


def test_an_account_of_a_file_that_was_replaced_is_not_used(tmp_path: Path) -> None:
    """Fewer payments than were loaded: what is in the file counts."""
    with open_storage(tmp_path, nano=10, slots=3) as storage:
        draw(storage, 0, nano=4)
        loaded = storage.ledger.account(opens(1))
        with storage._database.transaction() as connection:
            connection.execute("DROP TRIGGER ledger_keeps")
            connection.execute("PRAGMA defer_foreign_keys = ON")
            connection.execute("DELETE FROM noisy")
            connection.execute("DELETE FROM ledger")
            connection.execute("UPDATE account SET counter = 0, total = 0")
        assert load(storage._reader.rows, "crowd", opens(1), loaded).allowance(opens(1)).counted == 0
