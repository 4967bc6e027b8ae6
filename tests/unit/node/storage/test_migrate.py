"""Old files and new versions: copied first, migrated whole or not at all, and never by an older program."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from dpcrowd.node.storage import Storage, StorageError
from dpcrowd.node.storage import storage as storage_module
from dpcrowd.node.storage.migrate import LEDGER_STEPS
from node_support_storage import bytes_on_disk, draw, open_storage, opens

NOW = len(LEDGER_STEPS)


def test_a_migration_copies_first_and_keeps_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new version must find the old payments, and a way back must exist; check-ins are not copied."""
    with open_storage(tmp_path) as storage:
        draw(storage, 0, noisy=b"paid")
        storage.journal.slot_key(opens(1))
        storage.journal.append(opens(1), b"someone was here")
    monkeypatch.setattr(storage_module, "LEDGER_STEPS", (*LEDGER_STEPS, ("CREATE TABLE later (x)",)))
    with open_storage(tmp_path) as storage:
        assert storage.migrated_from == tmp_path / f"dpcrowd.schema-{NOW}.db"
        assert storage.ledger.total_spent() == 5
        assert list(storage.journal.batches(opens(1))) == [b"someone was here"]
        assert storage._database.rows("SELECT * FROM later") == []
        storage.journal.forget(opens(1))
    assert b"someone was here" not in bytes_on_disk(tmp_path)
    with closing(sqlite3.connect(tmp_path / f"dpcrowd.schema-{NOW}.db")) as copy:
        assert copy.execute("PRAGMA user_version").fetchone() == (NOW,)
        assert copy.execute("SELECT noisy FROM noisy").fetchone() == (b"paid",)
    with open_storage(tmp_path) as storage:
        assert storage.migrated_from is None


def test_the_first_schema_becomes_the_present_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neighbours remember the counter that all networks of a ledger shared: a lower one would look like an old copy."""
    with closing(sqlite3.connect(tmp_path / "dpcrowd.db")) as old, old:
        for statement in LEDGER_STEPS[0]:
            old.execute(statement)
        for counter, network in enumerate(["crowd", "crowd", "other"], start=1):
            old.execute(
                "INSERT INTO ledger VALUES (?, ?, 'sample', ?, ?, ?, 5, '')",
                (counter, network, counter, opens(counter), opens(counter + 1)),
            )
        old.execute("UPDATE account SET counter = 3, total = 15")
        old.execute("INSERT INTO neighbour VALUES ('crowd', 'clinic', 7, 9)")
        old.execute("PRAGMA user_version = 1")
    for network, counter in (("crowd", 2), ("other", 3), ("third", 0)):
        with open_storage(tmp_path, network) as storage:
            assert (storage.ledger.counter(), storage.ledger.payments(), storage.ledger.total_spent()) == (
                counter,
                3,
                15,
            )
    with open_storage(tmp_path) as storage:
        assert draw(storage, 9) == 3
        # Its memory reaches back as far as can be told: to the slot of the counter itself.
        assert storage.memory.remembered() == {"clinic": (7, 9, b"", 7)}


def test_a_failing_migration_leaves_the_old_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a migration would be a file that no version can read; a second try must not overwrite the first copy."""
    with open_storage(tmp_path) as storage:
        draw(storage, 0)
    broken = (*LEDGER_STEPS, ("CREATE TABLE later (x)", "CREATE TABLE later (x)"))
    monkeypatch.setattr(storage_module, "LEDGER_STEPS", broken)
    for _ in range(2):
        with pytest.raises(StorageError):
            Storage.open(tmp_path, network_id="crowd")
    monkeypatch.undo()
    with open_storage(tmp_path) as storage:
        assert storage.ledger.total_spent() == 5
        assert storage._database.rows("SELECT 1 FROM sqlite_master WHERE name = 'later'") == []
    assert (tmp_path / f"dpcrowd.schema-{NOW}-2.db").exists()


def test_a_later_or_earlier_schema_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An older program that writes a newer file could lose what it does not know."""
    with open_storage(tmp_path):
        pass
    with monkeypatch.context() as later:
        later.setattr(storage_module, "LEDGER_STEPS", (*LEDGER_STEPS, ("CREATE TABLE later (x)",)))
        with pytest.raises(StorageError, match="start the node once") as refused:
            Storage.inspect(tmp_path, network_id="crowd")
        assert refused.value.kind == "older"
        Storage.open(tmp_path, network_id="crowd").close()
    for attempt in (Storage.open, Storage.inspect):
        with pytest.raises(StorageError, match=rf"later dpcrowd \(schema {NOW + 1}; this one knows {NOW}\)") as refused:
            attempt(tmp_path, network_id="crowd")
        assert refused.value.kind == "newer"
