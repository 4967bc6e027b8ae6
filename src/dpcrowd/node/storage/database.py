"""One SQLite file, with the settings under which a commit is durable.

    WAL                  readers do not block the writer
    synchronous=FULL     a commit is on the disk before it returns; kill -9 and power loss leave all of it or nothing
    fullfsync            the same on macOS, where a plain fsync does not reach the disk
    secure_delete        deleted content is overwritten with zeros in the file
    BEGIN IMMEDIATE      a transaction holds the write lock before it reads: two networks that share a ledger cannot
                         both see the same budget and both spend it

Before every write the file and its log must still be where they were opened, see `identity`.

In WAL mode deleted content stays in the log until the log is truncated (`truncate_log`). SQLite cannot erase what the
file system keeps in freed blocks; an encrypted disk protects that.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from dpcrowd.errors import BadInput
from dpcrowd.node.storage.failures import StorageError, translated
from dpcrowd.node.storage.identity import FileIdentity

__all__ = ["Database"]

_BUSY_MS = 5_000
_PRAGMAS = (
    "synchronous = FULL",
    "fullfsync = ON",
    "checkpoint_fullfsync = ON",
    "secure_delete = ON",
    "foreign_keys = ON",
    "trusted_schema = OFF",
    "temp_store = MEMORY",
    f"busy_timeout = {_BUSY_MS}",
)


class Database:
    """A connection that several threads may use, one at a time.

    failure  why the last write failed; None if it succeeded
    """

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self.path = path
        self.failure: StorageError | None = None
        self._lock = threading.RLock()
        self._files: list[FileIdentity] = []
        with translated(path):
            if not read_only:
                _create(path)
            # A read-only *file* could not be recovered after a crash of its writer, hence mode=rw and query_only.
            self.connection = sqlite3.connect(
                f"{path.absolute().as_uri()}?mode=rw", uri=True, isolation_level=None, check_same_thread=False
            )
        try:
            with translated(path):
                self._set_up(read_only)
        except BaseException:
            self.connection.close()
            raise

    def _set_up(self, read_only: bool) -> None:
        for pragma in _PRAGMAS:
            self.connection.execute(f"PRAGMA {pragma}")
        if read_only:
            self.connection.execute("PRAGMA query_only = ON")
            return
        (mode,) = self.connection.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            raise StorageError(
                "io", f"{self.path}: this file system has no write-ahead log", "put the data folder on a local disk"
            )
        self.connection.execute("SELECT count(*) FROM sqlite_master").fetchone()  # opens the log
        beside = [self.path.with_name(self.path.name + suffix) for suffix in ("-wal", "-shm")]
        self._files = [FileIdentity(path) for path in (self.path, *beside) if path.exists()]

    def check_files(self) -> None:
        """Refuse to continue with files that were deleted, moved away or replaced since they were opened."""
        with translated(self.path, self._failed):
            self._refuse_other_files()

    def _refuse_other_files(self) -> None:
        for file in self._files:
            file.check()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Make everything that is written inside the block durable when it ends; after any error, nothing of it."""
        with self._lock, translated(self.path, self._failed):
            self._refuse_other_files()
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                yield self.connection
                self.connection.execute("COMMIT")
            except BaseException:
                # A full disk may have rolled back by itself; a failing rollback must not hide the first error.
                if self.connection.in_transaction:
                    with contextlib.suppress(sqlite3.Error):
                        self.connection.execute("ROLLBACK")
                raise
            self.failure = None

    def write(self, sql: str, values: Sequence[Any] = ()) -> int:
        """Execute one statement durably; return how many rows it changed."""
        with self._lock, translated(self.path, self._failed):
            self._refuse_other_files()
            changed = self.connection.execute(sql, values).rowcount
            self.failure = None
            return changed

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return all rows of a query."""
        with self._lock, translated(self.path):
            return self.connection.execute(sql, values).fetchall()

    def row(self, sql: str, values: Sequence[Any] = ()) -> tuple[Any, ...] | None:
        """Return the first row of a query, or None."""
        rows = self.rows(sql, values)
        return rows[0] if rows else None

    def problems(self, tables: Sequence[str] = ()) -> list[str]:
        """Return what SQLite finds wrong: quickly in some tables; without `tables`, thoroughly in the complete file."""
        problems: list[str] = []
        for check in [f"quick_check('{table}')" for table in tables] or ["integrity_check", "foreign_key_check"]:
            # The result is "ok" or one problem per row; foreign_key_check returns no row if nothing is wrong.
            try:
                problems += [str(row[0]) for row in self.rows(f"PRAGMA {check}") if row[0] != "ok"]
            except StorageError as failure:
                if failure.kind != "corrupt":
                    raise
                problems.append(failure.reason)  # so damaged that the check itself fails
        return problems

    def truncate_log(self) -> bool:
        """Move the log into the file and empty it; return False if a reader of another connection prevents that."""
        with self._lock, translated(self.path, self._failed):
            (busy, _, _) = self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            return not busy

    def copy_to(self, target: Path) -> None:
        """Write a consistent copy while others write: complete at `target`, or not there; refuse an existing file."""
        if target.exists():
            raise BadInput(f"{target} exists already; give the name of a new file.")
        part = target.with_name(target.name + ".part")
        with self._lock, translated(target):
            part.unlink(missing_ok=True)
            os.close(os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
            with contextlib.closing(sqlite3.connect(part, isolation_level=None)) as copy:
                self.connection.backup(copy)
                copy.execute("PRAGMA journal_mode = DELETE")  # one file, without a log beside it
                if copy.execute("PRAGMA integrity_check").fetchall() != [("ok",)]:
                    part.unlink()
                    raise StorageError("corrupt", f"{self.path}: its copy is damaged", "check the disk")
            with open(part, "rb+") as written:
                os.fsync(written.fileno())
            os.rename(part, target)
            sync_folder(target.parent)

    def close(self) -> None:
        with self._lock, translated(self.path):
            self._files = []
            self.connection.close()

    def _failed(self, failure: StorageError) -> None:
        if failure.kind != "refused":  # a constraint did its work; the disk is fine
            self.failure = failure


def _create(path: Path) -> None:
    # Created here, so that nobody else can read it; SQLite gives its log the same permissions. An existing file is not
    # opened: closing any handle of a file releases this process's POSIX locks on it, SQLite's own included.
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable; Windows does this by itself and cannot open folders."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
