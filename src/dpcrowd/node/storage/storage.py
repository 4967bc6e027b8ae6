"""A node's storage as one object: the folder lock, the ledger's database, the journal, and larger transactions.

    commit_sample    {payment, noisy values, record, state}: a message may leave only after it has returned
    commit_release   {releases, smoothed slots, state, reports and records of others, refusals}: published only after it
                     has returned

Both store everything or nothing, whatever crashes.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from types import TracebackType

from dpcrowd.node.release import SlotRelease, SmoothedSlots
from dpcrowd.node.storage.database import Database, sync_folder
from dpcrowd.node.storage.failures import RESTORE, StorageError, translated
from dpcrowd.node.storage.journal import NEVER, Journal, erase
from dpcrowd.node.storage.ledger import LedgerStore
from dpcrowd.node.storage.lock import FileLock
from dpcrowd.node.storage.migrate import LEDGER_STEPS, check_version, migrate
from dpcrowd.node.storage.notes import (
    EarlierModels,
    Events,
    Memory,
    Refusal,
    Refusals,
    Remembered,
    add_event,
    put_complete,
    put_memory,
    put_refusals,
)
from dpcrowd.node.storage.records import RecordRow, RecordStore, forget_records, put_records
from dpcrowd.node.storage.releases import Releases, put_release, put_smoothed

__all__ = ["Storage", "forget_journal"]

LEDGER_FILE = "dpcrowd.db"
JOURNAL_FOLDER = "journal"
_EARLIER_JOURNAL = ("journal.db", "journal.db-wal", "journal.db-shm")
_VITAL = ("account", "ledger", "noisy", "promise", "paid_windows", "horizon", "state")
_STEP = 500
_LARGE_STATE = 1 << 14
_COMPRESSED = b"\x78"
_OLD_RELEASES = """DELETE FROM release WHERE rowid IN (
    SELECT rowid FROM release WHERE network = ? AND opens_ns < ? ORDER BY opens_ns LIMIT ?)"""
_OLD_SMOOTHED = """DELETE FROM smoothed WHERE rowid IN (
    SELECT rowid FROM smoothed WHERE network = ? AND opens_ns < ? ORDER BY opens_ns LIMIT ?)"""
_OLD_NOISY = """DELETE FROM noisy WHERE counter IN (
    SELECT counter FROM noisy JOIN ledger USING (counter) WHERE network = ? AND opens_ns < ? LIMIT ?)"""


class Storage:
    """The storage of a node, made by `open` (a running node) or `inspect` (a tool) and ended by `close` or `with`."""

    def __init__(self, database: Database, reader: Database, network: str, journal: Journal | None) -> None:
        self._database = database
        self._reader = reader
        self._network = network
        self._journal = journal
        self._resources = ExitStack()
        self.ledger = LedgerStore(database, reader, network)
        self.releases = Releases(reader, network)
        self.refusals = Refusals(database, reader, network)
        self.memory = Memory(database, reader, network)
        self.earlier_models = EarlierModels(database, reader, network)
        self.records = RecordStore(reader, network)
        self.events = Events(database, reader, network)
        self.migrated_from: Path | None = None
        self.is_new = False  # whether opening it created the ledger

    @classmethod
    def open(cls, folder: Path, *, network_id: str, ledger_folder: Path | None = None) -> Storage:
        """Open the storage of a node that is about to run; refuse a second node, naming the process id of the first.

        ledger_folder  the folder of another network over the same users, whose ledger is shared
        """
        where = folder if ledger_folder is None else ledger_folder
        if not where.is_dir() and where != folder:
            # A new ledger at a mistyped path would be empty, and both networks would spend a complete budget.
            raise StorageError(
                "missing",
                f"the shared ledger's folder {where} does not exist",
                "correct ledger.shared in node.toml, or create the folder",
            )
        with ExitStack() as opened:
            _make_folder(folder)
            opened.callback(FileLock(folder / "node.lock", "the data folder").close)
            # Network ids are free text, file names are not.
            name = hashlib.sha256(network_id.encode()).hexdigest()[:16]
            sampler = FileLock(where / f"sampler-{name}.lock", f"the ledger of network '{network_id}'")
            opened.callback(sampler.close)
            is_new = not (where / LEDGER_FILE).exists()
            database = Database(where / LEDGER_FILE)
            opened.callback(database.close)
            copy = migrate(database, LEDGER_STEPS, keep_copy=True)
            _refuse_damaged(database, _VITAL)
            reader = Database(where / LEDGER_FILE, read_only=True)
            opened.callback(reader.close)
            for name in _EARLIER_JOURNAL:  # of version 0.1, which does not record how much of an open slot was missed
                erase(folder / name)
            journal = Journal(folder / JOURNAL_FOLDER, check_ledger=database.check_files)
            opened.callback(journal.close)
            storage = cls(database, reader, network_id, journal)
            storage.ledger.check()
            storage.migrated_from, storage.is_new = copy, is_new
            for each in dict.fromkeys((folder, where)):
                with translated(each):
                    sync_folder(each)
            storage._resources = opened.pop_all()
        return storage

    @classmethod
    def inspect(cls, folder: Path, *, network_id: str, ledger_folder: Path | None = None) -> Storage:
        """Open the storage for a tool that reads it or backs it up, also while the node runs.

        Nothing is written, no lock is taken, and check-ins cannot be read this way.
        """
        path = (folder if ledger_folder is None else ledger_folder) / LEDGER_FILE
        if not path.exists():
            raise StorageError("missing", f"{path} does not exist: no node has run here", "start the node first")
        with ExitStack() as opened:
            reader = Database(path, read_only=True)
            opened.callback(reader.close)
            check_version(reader, LEDGER_STEPS, exact=True)
            storage = cls(reader, reader, network_id, None)
            storage._resources = opened.pop_all()
        return storage

    # --------------------------------------------------------------------------------------------- transactions

    def commit_sample(
        self,
        slot: int,
        opens_ns: int,
        length_ns: int,
        nano: int,
        noisy: bytes,
        state: bytes,
        record: RecordRow | None = None,
    ) -> int:
        """Pay for a slot and store what was drawn, also as a signed record; return the ledger's new counter.

        `SlotTaken` says that the slot was drawn before, `BudgetExhausted` that a guarantee would be broken; nothing has
        changed then.
        """
        with self._database.transaction() as connection:
            counter, account = self.ledger.pay(connection, slot, opens_ns, length_ns, nano, noisy)
            connection.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (self._network, _packed(state)))
            put_records(connection, self._network, () if record is None else (record,))
            put_complete(connection, self._network, slot)  # only a ledger that is known to be complete may pay
        self.ledger.committed(counter, account)
        return counter

    def commit_release(
        self,
        releases: Sequence[SlotRelease],
        state: bytes,
        *,
        heard: Mapping[str, Remembered] | None = None,
        refused: Iterable[Refusal] = (),
        complete_until: int | None = None,
        records: Iterable[RecordRow] = (),
        final_until: int | None = None,
        smoothed: SmoothedSlots | None = None,
    ) -> None:
        """Store the releases of one slot, or of several slots that were caught up, and the state after them.

        heard           what neighbours reported of their ledgers, see `Memory`
        refused         what was refused since the last commit
        complete_until  the slot up to which the ledger is now known to be complete; None: as before
        records         records and proofs that have arrived since the last commit
        final_until     the last slot whose records are not needed any more; None: all stay
        smoothed        past slots up to the last release, estimated again: they replace what was stored of them
        """
        with self._database.transaction() as connection:
            for release in releases:
                put_release(connection, self._network, release)
            if releases and smoothed is not None:
                put_smoothed(connection, self._network, releases[-1], smoothed)
            connection.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (self._network, _packed(state)))
            put_memory(connection, self._network, heard or {})
            put_refusals(connection, self._network, refused)
            put_records(connection, self._network, records)
            if final_until is not None:
                forget_records(connection, self._network, final_until)
            if complete_until is not None:
                put_complete(connection, self._network, complete_until)

    def accept_clock(self, at_ns: int, again_ns: int, state: bytes, complete_until: int, text: str) -> None:
        """Let the slots that open at `again_ns` or later begin again: delete their releases, and log it.

        complete_until  the last slot before them up to which the ledger was known to be complete
        """
        with self._database.transaction() as connection:
            for table in ("release", "smoothed"):
                connection.execute(
                    f"DELETE FROM {table} WHERE network = ? AND opens_ns >= ?", (self._network, again_ns)
                )
            forget_records(connection, self._network)
            connection.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (self._network, _packed(state)))
            put_complete(connection, self._network, complete_until)
            add_event(connection, self._network, at_ns, "clock-accepted", text)

    def state(self) -> bytes | None:
        """Return the state of the last commit of either kind."""
        row = self._reader.row("SELECT state FROM state WHERE network = ?", (self._network,))
        return None if row is None else _unpacked(row[0])

    # --------------------------------------------------------------------------------------------- housekeeping

    @property
    def journal(self) -> Journal:
        """The check-ins of open slots."""
        if self._journal is None:
            raise StorageError("closed", "tools have no access to check-ins", "ask the running node")
        return self._journal

    @property
    def failure(self) -> StorageError | None:
        """Why the last write, or `check_files`, failed; None once a write has succeeded again."""
        return self._database.failure or (self._journal.failure if self._journal else None)

    @property
    def gone(self) -> StorageError | None:
        """The failure, if it is that the node's files were deleted, moved away or replaced."""
        return self.failure if self.failure is not None and self.failure.kind in ("missing", "replaced") else None

    def check_files(self) -> None:
        """Refuse to continue if the ledger's database or the journal's folder was deleted, moved away or replaced."""
        self._database.check_files()
        if self._journal is not None:
            self._journal.check_folder()

    def retention(self, before_ns: int) -> int:
        """Delete releases, smoothed slots, noisy values and refusals from before a time; payments stay for ever.

        It works in small steps, so that the commit of a slot never waits long. Return how many releases were deleted.
        """
        releases = 0
        while deleted := self._database.write(_OLD_RELEASES, (self._network, before_ns, _STEP)):
            releases += deleted
        for statement in (_OLD_SMOOTHED, _OLD_NOISY):
            while self._database.write(statement, (self._network, before_ns, _STEP)):
                pass
        self._database.write("DELETE FROM refusal WHERE network = ? AND opens_ns < ?", (self._network, before_ns))
        self._database.write(
            "DELETE FROM regions WHERE id NOT IN (SELECT regions FROM release UNION SELECT regions FROM smoothed)"
        )
        return releases

    def backup(self, to_path: Path) -> int:
        """Copy the ledger's database into one new file, while the node runs; return the counter in the copy.

        Check-ins are not copied: they must not outlive their slot. Restore the copy into an empty folder as dpcrowd.db;
        later payments are then missing, which the neighbours will notice.
        """
        with closing(Database(self._reader.path, read_only=True)) as source:  # so that no reader has to wait
            source.copy_to(to_path)
        with closing(Database(to_path, read_only=True)) as copy:
            return LedgerStore(copy, copy, self._network).counter()

    def problems(self) -> list[str]:
        """Check the ledger's complete database thoroughly; return what is wrong, or an empty list."""
        with closing(Database(self._reader.path, read_only=True)) as source:
            return source.problems()

    def close(self) -> None:
        """Close all files and release the locks."""
        self._resources.close()

    def __enter__(self) -> Storage:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def forget_journal(folder: Path) -> Path:
    """Delete the check-ins in the data folder of a stopped node; return the journal's folder."""
    with ExitStack() as opened:
        opened.callback(FileLock(folder / "node.lock", "the data folder").close)
        for name in _EARLIER_JOURNAL:
            erase(folder / name)
        journal = Journal(folder / JOURNAL_FOLDER)
        opened.callback(journal.close)
        for opens_ns in journal.pending():
            journal.forget(opens_ns)
        journal.stamp(NEVER)  # so that the slot which is open at the next start counts as missed
    return journal.folder


def _packed(state: bytes) -> bytes:
    """Return a state as it is stored: with records of many servers it is large, mostly zeros, and written often."""
    return zlib.compress(state, 1) if len(state) >= _LARGE_STATE else state


def _unpacked(stored: bytes) -> bytes:
    """Return the state that was stored; states of earlier versions, and small ones, are stored as they are."""
    if stored[:1] != _COMPRESSED:  # no state begins with this byte: it is a MessagePack map
        return stored
    try:
        return zlib.decompress(stored)
    except zlib.error:
        return stored  # whoever reads it says that it is no state


def _make_folder(folder: Path) -> None:
    with translated(folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def _refuse_damaged(database: Database, tables: Sequence[str]) -> None:
    if database.problems(tables):
        raise StorageError("corrupt", f"{database.path}: the database is damaged", RESTORE)
