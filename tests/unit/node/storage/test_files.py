"""Locks, versions, backups, and what a person reads when the disk or a file fails."""

from __future__ import annotations

import errno
import os
import pickle
import sqlite3
import stat
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

from dpcrowd.errors import BadInput, BudgetExhausted, DpcrowdError
from dpcrowd.node.storage import Refusal, Storage, StorageError
from dpcrowd.node.storage.database import Database
from dpcrowd.node.storage.failures import translated
from node_support_storage import draw, open_storage, opens, release

posix_only = pytest.mark.skipif(os.name != "posix", reason="rights of files as POSIX has them")


def test_a_second_node_is_refused_with_the_process_of_the_first(tmp_path: Path) -> None:
    """Two samplers on one folder would each draw the same slot."""
    with open_storage(tmp_path):
        with pytest.raises(StorageError, match=f"in use by process {os.getpid()}") as refused:
            Storage.open(tmp_path, network_id="another")
        assert refused.value.kind == "locked"
    open_storage(tmp_path).close()


@pytest.mark.slow
def test_another_process_is_refused_too(tmp_path: Path) -> None:
    """A lock that only this process sees would be none."""
    code = (
        "import sys; from pathlib import Path; from dpcrowd.node.storage import Storage, StorageError\n"
        "try: Storage.open(Path(sys.argv[1]), network_id='crowd')\n"
        "except StorageError as failure: sys.stdout.write(str(failure))"
    )
    with open_storage(tmp_path):
        answer = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert f"in use by process {os.getpid()}; stop that process first" in answer.stdout


def test_one_network_has_one_sampler_on_a_shared_ledger(tmp_path: Path) -> None:
    """The same network from two data folders on one ledger would be two samplers."""
    shared = tmp_path / "a"
    with open_storage(shared, "a"), open_storage(tmp_path / "b", "b", ledger=shared):
        with pytest.raises(StorageError, match="the ledger of network 'a' is in use"):
            Storage.open(tmp_path / "c", network_id="a", ledger_folder=shared)
        # What was refused has let go of its own folder.
        open_storage(tmp_path / "c", "c", ledger=shared).close()


@posix_only
def test_files_and_folders_are_for_their_owner_only(tmp_path: Path) -> None:
    """Keyed hashes and keys of open slots lie in one file: other users of the machine must not read it."""
    with open_storage(tmp_path / "data") as storage:
        draw(storage, 0)
        storage.journal.slot_key(opens(0))
        storage.backup(tmp_path / "backup.db")
        storage.journal.stamp(opens(0))
        files = [*(one for one in (tmp_path / "data").rglob("*") if one.is_file()), tmp_path / "backup.db"]
        assert {"dpcrowd.db", "dpcrowd.db-wal", f"{opens(0)}.slot", "alive"} <= {file.name for file in files}
        assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    for folder in (tmp_path / "data", tmp_path / "data" / "journal"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_commits_are_set_to_be_durable(tmp_path: Path) -> None:
    """With SQLite's faster settings a power failure could undo a payment whose values have left."""
    with open_storage(tmp_path) as storage:
        database = storage._database
        settings = {name: database.row(f"PRAGMA {name}") for name in ("journal_mode", "synchronous", "foreign_keys")}
        assert settings == {"journal_mode": ("wal",), "synchronous": (2,), "foreign_keys": (1,)}
        assert database.row("PRAGMA secure_delete") == (1,)
        assert database.row("PRAGMA fullfsync") == (1,)


def test_a_backup_of_a_running_node_is_one_whole_file(tmp_path: Path) -> None:
    """A copy of the files of a running node could miss the log, and with it the last payments."""
    with open_storage(tmp_path / "data") as storage:
        for slot in range(3):
            draw(storage, slot)
        storage.commit_release([release(0)], b"latest")
        with Storage.inspect(tmp_path / "data", network_id="crowd") as tool:
            assert tool.backup(tmp_path / "backup.db") == 3
        draw(storage, 3)
        with pytest.raises(BadInput, match="exists already"):
            storage.backup(tmp_path / "backup.db")
    assert not list(tmp_path.glob("backup.db?*"))
    # The file's header: no write-ahead log, so that it can be read from a medium that cannot be written.
    assert (tmp_path / "backup.db").read_bytes()[18:20] == b"\x01\x01"
    (tmp_path / "restored").mkdir()
    (tmp_path / "backup.db").rename(tmp_path / "restored" / "dpcrowd.db")
    with open_storage(tmp_path / "restored") as storage:
        assert (storage.ledger.counter(), storage.ledger.total_spent(), storage.state()) == (3, 15, b"latest")


def test_a_backup_to_nowhere_says_so(tmp_path: Path) -> None:
    """The operator must not believe in a backup that does not exist."""
    with open_storage(tmp_path) as storage, pytest.raises(StorageError, match="No such file"):
        storage.backup(tmp_path / "missing" / "backup.db")


def test_tools_read_beside_the_node_and_cannot_write(tmp_path: Path) -> None:
    """`dpcrowd node status` must neither be locked out nor be able to spend."""
    with pytest.raises(StorageError, match="no node has run here"):
        Storage.inspect(tmp_path, network_id="crowd")
    assert list(tmp_path.iterdir()) == []
    with open_storage(tmp_path) as storage:
        draw(storage, 0)
        with Storage.inspect(tmp_path, network_id="crowd") as tool:
            assert tool.ledger.total_spent() == 5
            assert tool.problems() == []
            assert tool.failure is None
            with pytest.raises(StorageError) as refused:
                draw(tool, 1)
            assert refused.value.kind == "read-only"
            draw(storage, 1)
            assert tool.ledger.counter() == 2


def test_a_full_disk_undoes_the_payment_and_the_node_goes_on_once_there_is_room(tmp_path: Path) -> None:
    """Values that were not paid durably must not leave; and one line must say why."""
    with open_storage(tmp_path) as storage:
        draw(storage, 0)
        (pages,) = storage._database.row("PRAGMA page_count") or (0,)
        storage._database.connection.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(StorageError) as failed:
            storage.commit_sample(1, opens(1), 1, 5, b"n" * 100_000, b"s")
        assert failed.value.kind == "full"
        assert str(failed.value).endswith("the disk is full (SQLITE_FULL); free some space.")
        assert failed.value.__suppress_context__
        assert storage.failure is failed.value
        assert (storage.ledger.counter(), storage.ledger.total_spent(), storage.state()) == (1, 5, b"state")
        storage._database.connection.execute("PRAGMA max_page_count = 1000000")
        assert storage.commit_sample(1, opens(1), 1, 5, b"n" * 100_000, b"s") == 2
        assert storage.failure is None


def test_a_disk_without_room_for_the_logs_index_is_full() -> None:
    """SQLite calls it an error of input and output, and the operator would look for a broken disk."""
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode, error.sqlite_errorname = sqlite3.SQLITE_IOERR_SHMSIZE, "SQLITE_IOERR_SHMSIZE"
    with pytest.raises(StorageError) as failed, translated(Path("dpcrowd.db")):
        raise error
    assert failed.value.kind == "full"


def test_a_full_disk_refuses_check_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An acknowledged check-in must be on the disk: if it cannot be, it must not be acknowledged, nor counted later."""
    with open_storage(tmp_path) as storage:
        storage.journal.slot_key(opens(0))
        storage.journal.append(opens(0), b"before")
        write = os.pwrite

        def full(handle: int, content: bytes, at: int) -> int:
            if len(content) < 10:
                raise OSError(errno.ENOSPC, "No space left on device")
            return write(handle, content[: len(content) // 2], at)

        monkeypatch.setattr(os, "pwrite", full)
        with pytest.raises(StorageError) as failed:
            storage.journal.append(opens(0), b"secret" * 20_000)
        monkeypatch.setattr(os, "pwrite", write)
        assert failed.value.kind == "full"
        assert "free some space" in failed.value.fix
        assert "secret" not in str(failed.value)
        assert storage.failure is failed.value
        storage.journal.append(opens(0), b"after")
        assert list(storage.journal.batches(opens(0))) == [b"before", b"after"]
        assert storage.failure is None


def test_what_still_fits_into_the_journal_of_a_full_disk_is_kept(tmp_path: Path) -> None:
    """A small check-in fits into what the slot's file has of the disk already. It is acknowledged, so the next run has
    to count it, although nothing could be paid meanwhile."""
    with open_storage(tmp_path) as storage:
        draw(storage, 0)
        storage.journal.slot_key(opens(1))
        (pages,) = storage._database.row("PRAGMA page_count") or (0,)
        storage._database.connection.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(StorageError):
            storage.commit_sample(1, opens(1), 1, 5, b"n" * 100_000, b"s")
        storage.journal.append(opens(1), b"small")
        assert storage.failure is not None, "the database is still full, and /readyz says so"
    with open_storage(tmp_path) as storage:
        assert list(storage.journal.batches(opens(1))) == [b"small"]
        assert storage.ledger.counter() == 1


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    """A traceback of sqlite3 helps nobody at three in the morning."""
    name = "dpcrowd.db"
    with open_storage(tmp_path):
        pass
    (tmp_path / name).write_bytes(b"this is not a database, but it is long enough to be read as one" * 100)
    with pytest.raises(StorageError, match=f"{name}: the file is not a database.*restore the last backup") as failed:
        Storage.open(tmp_path, network_id="crowd")
    assert failed.value.kind == "corrupt"
    assert isinstance(failed.value, DpcrowdError)


def test_a_damaged_page_is_found_at_the_start(tmp_path: Path) -> None:
    """Spending from a ledger that has lost rows would overspend."""
    with open_storage(tmp_path) as storage:
        for slot in range(3):
            draw(storage, slot, noisy=b"x" * 9000)
        (page,) = storage._database.row("SELECT rootpage FROM sqlite_master WHERE name = 'ledger'") or (0,)
    with open(tmp_path / "dpcrowd.db", "rb+") as file:
        file.seek(4096 * (page - 1))
        file.write(b"\xff" * 4096)
    with pytest.raises(StorageError) as failed:
        Storage.open(tmp_path, network_id="crowd")
    assert failed.value.kind == "corrupt"


def test_a_ledger_that_does_not_add_up_is_refused(tmp_path: Path) -> None:
    """A row that vanished without damage to the file (a merge by hand, a bug) is seen by the account."""
    with open_storage(tmp_path) as storage:
        draw(storage, 0)
        draw(storage, 1)
    for change in ("UPDATE account SET total = total - 1", "UPDATE account SET total = total + 1, counter = 3"):
        with closing(sqlite3.connect(tmp_path / "dpcrowd.db")) as connection:
            connection.execute(change)
            connection.commit()
        with pytest.raises(StorageError, match="do not add up"):
            Storage.open(tmp_path, network_id="crowd")


def test_a_thorough_check_finds_what_the_quick_one_leaves_out(tmp_path: Path) -> None:
    """`doctor` promises a check of the whole file, releases included."""
    with open_storage(tmp_path) as storage:
        storage.commit_release([release(0)], b"")
        assert storage.problems() == []
        (page,) = storage._database.row("SELECT rootpage FROM sqlite_master WHERE name = 'one_release'") or (0,)
    with open(tmp_path / "dpcrowd.db", "rb+") as file:
        file.seek(4096 * (page - 1))
        file.write(b"\xff" * 4096)
    with open_storage(tmp_path) as storage:
        assert storage.problems() != []


@posix_only
def test_folders_may_have_any_name(tmp_path: Path) -> None:
    """SQLite is given an address, in which some signs mean something else."""
    folder = tmp_path / "a folder? #1 100%41 é"
    with open_storage(folder) as storage:
        draw(storage, 0)
    assert (folder / "dpcrowd.db").stat().st_size > 0


def test_a_closed_storage_says_so(tmp_path: Path) -> None:
    """A late callback after shutdown must meet one error of ours, not sqlite3's."""
    storage = open_storage(tmp_path)
    storage.close()
    storage.close()
    with pytest.raises(StorageError) as failed:
        draw(storage, 0)
    assert failed.value.kind == "closed"


def test_another_writer_is_waited_for_and_then_named(tmp_path: Path) -> None:
    """Networks that share a ledger write in turn; one that never lets go must not hang the node."""
    with open_storage(tmp_path) as storage:
        storage._database.connection.execute("PRAGMA busy_timeout = 20")
        with closing(sqlite3.connect(tmp_path / "dpcrowd.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StorageError) as failed:
                draw(storage, 0)
            assert failed.value.kind == "busy"
            other.execute("ROLLBACK")
        assert draw(storage, 0) == 1


@posix_only
def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    """The first thing that goes wrong for a new operator."""
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageError, match="file") as failed:
        Storage.open(tmp_path / "file" / "data", network_id="crowd")
    assert failed.value.kind == "io"


def test_failures_survive_a_process_boundary() -> None:
    """Tools that run a node in a child process show its failure whole."""
    failure = pickle.loads(pickle.dumps(StorageError("full", "reason", "fix")))
    assert (failure.kind, failure.reason, failure.fix, str(failure)) == ("full", "reason", "fix", "reason; fix.")


def test_threads_take_turns(tmp_path: Path) -> None:
    """The event loop hands work to threads: two of them inside one transaction would mix their writes."""
    errors: list[BaseException] = []
    with open_storage(tmp_path) as storage:
        storage.journal.slot_key(opens(0))

        def work(start: int) -> None:
            try:
                for slot in range(start, start + 10):
                    draw(storage, slot, nano=1)
                    storage.journal.append(opens(0), b"b")
                    storage.ledger.counter()
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=work, args=(100 * number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        assert (storage.ledger.counter(), storage.ledger.total_spent()) == (40, 40)
        assert len(list(storage.journal.batches(opens(0)))) == 40


def test_networks_that_share_a_ledger_pay_in_turn(tmp_path: Path) -> None:
    """A transaction that reads first and asks for the write lock later would fail, or spend the same rest twice."""
    shared = tmp_path / "a"
    failures: list[BaseException] = []

    def work(storage: Storage) -> None:
        for slot in range(25):
            try:
                draw(storage, slot, nano=1)
            except BudgetExhausted:
                return
            except BaseException as error:
                failures.append(error)

    with (
        open_storage(shared, "a", nano=30) as a,
        open_storage(tmp_path / "b", "b", ledger=shared, nano=30) as b,
    ):
        threads = [threading.Thread(target=work, args=(storage,)) for storage in (a, b)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert a.ledger.total_spent() == 30


def test_a_constraint_that_did_its_work_is_no_failing_disk(tmp_path: Path) -> None:
    """`/readyz` must not go red because a wrong change was refused."""
    with open_storage(tmp_path) as storage:
        with pytest.raises(StorageError) as refused:
            storage.refusals.add([Refusal(opens(0), "check-in", "full", 12)])
        assert refused.value.kind == "refused"
        assert "12" not in str(refused.value).removeprefix(str(tmp_path))
        assert storage.failure is None


def test_an_error_inside_a_transaction_leaves_the_connection_usable(tmp_path: Path) -> None:
    """A transaction that stayed open would let the next one's commit make the failed one durable."""
    with closing(Database(tmp_path / "x.db")) as database:
        database.write("CREATE TABLE t (x)")
        with pytest.raises(StorageError), database.transaction() as connection:
            connection.executescript("SAVEPOINT s; INSERT INTO t VALUES (1); SELECT no_such_function()")
        with database.transaction() as connection:
            connection.execute("INSERT INTO t VALUES (2)")
        assert database.rows("SELECT x FROM t") == [(2,)]


def test_a_shared_ledger_is_never_made_by_a_mistyped_path(tmp_path: Path) -> None:
    """It would be empty, and both networks would spend a whole budget on the same people."""
    with pytest.raises(StorageError, match=r"ledger\.shared") as refused:
        Storage.open(tmp_path / "b", network_id="b", ledger_folder=tmp_path / "tpyo")
    assert refused.value.kind == "missing"
    assert not (tmp_path / "tpyo").exists()
