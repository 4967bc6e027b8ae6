"""Files that are deleted, moved away or replaced under a running node: it neither acknowledges nor pays."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from dpcrowd.node.storage import Storage, StorageError
from node_support_storage import draw, open_storage, opens, release

pytestmark = pytest.mark.skipif(os.name != "posix", reason="other systems do not let go of a file that is open")

Harm = Callable[[Path], None]


def _replace(folder: Path, name: str) -> None:
    """As `mv backup.db dpcrowd.db` does: the same name, another file."""
    (folder / "new").write_bytes((folder / name).read_bytes())
    os.rename(folder / "new", folder / name)


def _move_and_make_anew(folder: Path) -> None:
    folder.rename(folder.with_name("elsewhere"))
    shutil.copytree(folder.with_name("elsewhere"), folder)


HARMS: dict[str, tuple[Harm, str]] = {
    "the folder is deleted": (shutil.rmtree, "missing"),
    "the folder is moved": (lambda folder: folder.rename(folder.with_name("elsewhere")), "missing"),
    "the folder is another one": (_move_and_make_anew, "replaced"),
    "the database is deleted": (lambda folder: (folder / "dpcrowd.db").unlink(), "missing"),
    "the database is replaced": (lambda folder: _replace(folder, "dpcrowd.db"), "replaced"),
    "the log is deleted": (lambda folder: (folder / "dpcrowd.db-wal").unlink(), "missing"),
    "the index of the log is replaced": (lambda folder: _replace(folder, "dpcrowd.db-shm"), "replaced"),
}


@pytest.mark.parametrize("what", HARMS)
def test_nothing_is_paid_into_a_file_that_nobody_will_find_again(what: str, tmp_path: Path) -> None:
    """SQLite goes on writing into a deleted file and says that all is well; the next start would pay a second time."""
    harm, kind = HARMS[what]
    with open_storage(tmp_path / "data") as storage:
        draw(storage, 0)
        assert storage.failure is None
        harm(tmp_path / "data")
        with pytest.raises(StorageError, match="while the node was running") as refused:
            draw(storage, 1)
        assert refused.value.kind == kind
        assert storage.failure is refused.value
        assert storage.ledger.counter() == 1, "what was refused was not paid"
        with pytest.raises(StorageError, match="while the node was running"):
            storage.commit_release([release(0)], b"state")
        with pytest.raises(StorageError, match="while the node was running"):
            storage.retention(opens(5))


@pytest.mark.parametrize("what", HARMS)
def test_it_is_noticed_before_anything_is_written(what: str, tmp_path: Path) -> None:
    """A node that says it is ready until its next payment fails lets its operator sleep."""
    harm, kind = HARMS[what]
    with open_storage(tmp_path / "data") as storage:
        storage.check_files()
        harm(tmp_path / "data")
        with pytest.raises(StorageError) as refused:
            storage.check_files()
        assert refused.value.kind == kind
        assert storage.failure is refused.value


def test_a_folder_that_is_put_back_as_it_was_is_used_again(tmp_path: Path) -> None:
    """An operator who has moved it by mistake must be able to undo that without a restart."""
    with open_storage(tmp_path / "data") as storage:
        draw(storage, 0)
        storage.journal.slot_key(opens(1))
        (tmp_path / "data").rename(tmp_path / "elsewhere")
        with pytest.raises(StorageError):
            draw(storage, 1)
        with pytest.raises(StorageError):
            storage.journal.append(opens(1), b"record")
        (tmp_path / "elsewhere").rename(tmp_path / "data")
        assert draw(storage, 1) == 2
        storage.journal.append(opens(1), b"record")
        storage.check_files()
        assert storage.failure is None


@pytest.mark.parametrize("what", ["the folder is deleted", "the folder is moved", "the folder is another one"])
def test_check_ins_are_not_taken_into_a_folder_that_is_gone(what: str, tmp_path: Path) -> None:
    """They would be acknowledged and lost; nor may the next slot be opened in another folder of that name."""
    harm, kind = HARMS[what]
    with open_storage(tmp_path / "data") as storage:
        storage.journal.slot_key(opens(1))
        storage.journal.append(opens(1), b"before")
        storage.journal.stamp(opens(1))
        harm(tmp_path / "data")
        left = set(tmp_path.rglob("*.slot"))
        for attempt in (
            lambda: storage.journal.append(opens(1), b"record"),
            lambda: storage.journal.slot_key(opens(1)),
            lambda: storage.journal.slot_key(opens(2)),
            lambda: storage.journal.add_missed(opens(1), 5),
            lambda: storage.journal.stamp(opens(2)),
        ):
            with pytest.raises(StorageError) as refused:
                attempt()
            assert refused.value.kind == kind
            assert storage.journal.failure is refused.value
        assert set(tmp_path.rglob("*.slot")) == left


@pytest.mark.parametrize("name", ["slot", "alive"])
def test_a_file_of_the_journal_that_was_moved_away_is_missed(name: str, tmp_path: Path) -> None:
    """After a crash the check-ins that were written to it would not be found: a name must lead to what was written."""
    with open_storage(tmp_path / "data") as storage:
        storage.journal.slot_key(opens(1))
        storage.journal.stamp(opens(1))
        file = storage.journal.folder / (f"{opens(1)}.slot" if name == "slot" else name)
        file.rename(tmp_path / "kept")
        with pytest.raises(StorageError, match="while the node was running"):
            storage.journal.append(opens(1), b"x") if name == "slot" else storage.journal.stamp(opens(2))


def test_a_slot_is_forgotten_even_if_the_folder_is_gone(tmp_path: Path) -> None:
    """Whoever has moved the folder away still holds the file: keys and hashes in it are overwritten all the same."""
    with open_storage(tmp_path / "data") as storage:
        for slot in (1, 2):
            storage.journal.slot_key(opens(slot))
            storage.journal.append(opens(slot), b"someone was here")
        (tmp_path / "data").rename(tmp_path / "elsewhere")
        with pytest.raises(StorageError, match="while the node was running"):
            storage.journal.forget_before(opens(3))
        left = [path.read_bytes() for path in (tmp_path / "elsewhere" / "journal").glob("*.slot")]
        assert len(left) == 2
        assert not b"".join(left).strip(b"\0")


def test_a_ledger_that_has_fewer_payments_than_before_is_not_paid_from(tmp_path: Path) -> None:
    """`cp backup.db dpcrowd.db` keeps the file and takes payments out of it: their budget would be spent again."""
    with open_storage(tmp_path / "data") as storage:
        for slot in range(3):
            draw(storage, slot)
        with storage._database.transaction() as connection:
            connection.execute("UPDATE tally SET counter = 1")
        with pytest.raises(StorageError, match="fewer payments") as refused:
            draw(storage, 3)
        assert refused.value.kind == "replaced"
        assert storage.failure is refused.value
        assert storage.ledger.sample(opens(3)) is None


def _pay_and_stop(storage: Storage, connection: sqlite3.Connection) -> None:
    assert storage.ledger.pay(connection, 1, opens(1), 1, 5, b"noisy")[0] == 2
    raise KeyboardInterrupt


def test_a_payment_that_was_rolled_back_is_not_missed_later(tmp_path: Path) -> None:
    """A commit that failed has raised the counter for nothing: the next payment has the same one, and is right."""
    with open_storage(tmp_path / "data") as storage:
        draw(storage, 0)
        with pytest.raises(KeyboardInterrupt), storage._database.transaction() as connection:
            _pay_and_stop(storage, connection)
        assert draw(storage, 1) == 2


def test_tools_beside_a_node_do_not_ask_whose_file_it_is(tmp_path: Path) -> None:
    """They open what is there, and read it; a backup copies from a connection of its own."""
    with open_storage(tmp_path / "data") as storage:
        draw(storage, 0)
        with Storage.inspect(tmp_path / "data", network_id="crowd") as tool:
            tool.check_files()
            assert tool.ledger.counter() == 1


JOURNAL_HARMS: dict[str, Harm] = {
    "deleted": lambda folder: shutil.rmtree(folder / "journal"),
    "another one": lambda folder: _move_and_make_anew(folder / "journal"),
    "a file in it": lambda folder: (folder / "journal" / f"{opens(1)}.slot").unlink(),
}


@pytest.mark.parametrize("what", JOURNAL_HARMS)
def test_for_the_journal_alone_a_restart_is_enough(what: str, tmp_path: Path) -> None:
    """Told to restore a backup and to confirm a loss, an operator would pay a window for one slot's check-ins."""
    with open_storage(tmp_path / "data") as storage:
        draw(storage, 0)
        storage.journal.slot_key(opens(1))
        JOURNAL_HARMS[what](tmp_path / "data")
        with pytest.raises(StorageError) as refused:
            storage.journal.append(opens(1), b"record")
        assert "restart the node" in refused.value.fix
        assert "backup" not in str(refused.value)
    with open_storage(tmp_path / "data") as storage:
        assert draw(storage, 2) == 2, "the ledger is as it was: nothing has to be confirmed"
        storage.journal.slot_key(opens(2))
        storage.journal.append(opens(2), b"record")


@pytest.mark.parametrize("what", HARMS)
def test_a_journal_that_is_gone_with_the_ledger_does_not_ask_for_a_restart(what: str, tmp_path: Path) -> None:
    """A restart would begin with an empty ledger, and spend the window's budget once more."""
    harm, _ = HARMS[what]
    with open_storage(tmp_path / "data") as storage:
        draw(storage, 0)
        storage.journal.slot_key(opens(1))
        harm(tmp_path / "data")
        shutil.rmtree(tmp_path / "data" / "journal", ignore_errors=True)
        with pytest.raises(StorageError) as refused:
            storage.journal.append(opens(1), b"record")
        assert "restart" not in refused.value.fix
        assert "backup" in refused.value.fix


def test_a_file_in_the_journals_place_is_named(tmp_path: Path) -> None:
    """A mere "File exists; check the folder and disk" leaves the operator with a disk that is well."""
    with open_storage(tmp_path / "data") as storage:
        draw(storage, 0)
        shutil.rmtree(tmp_path / "data" / "journal")
        (tmp_path / "data" / "journal").write_bytes(b"something")
        with pytest.raises(StorageError) as running:
            storage.check_files()
    with pytest.raises(StorageError) as starting:
        open_storage(tmp_path / "data")
    for refused, then in ((running.value, "restart the node"), (starting.value, "start the node again")):
        assert "is a file, but has to be the folder for check-ins" in refused.reason
        assert "move it away" in refused.fix
        assert then in refused.fix
    (tmp_path / "data" / "journal").rename(tmp_path / "moved away")
    with open_storage(tmp_path / "data") as storage:
        assert draw(storage, 1) == 2
