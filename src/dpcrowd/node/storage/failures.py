"""Failures of the disk as sentences: what is wrong and what to do, never a traceback of sqlite3.

A node that cannot write cannot pay, so it stops sampling; it needs one class to catch and one line to show. The texts
name files and kinds of failure only, never a value that was to be written.
"""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from dpcrowd.errors import DpcrowdError, SlotTaken

__all__ = ["RESTORE", "SlotTaken", "StorageError", "StorageFailure", "translated"]

StorageFailure = Literal[
    "full",
    "corrupt",
    "io",
    "read-only",
    "missing",
    "replaced",
    "busy",
    "locked",
    "newer",
    "older",
    "refused",
    "closed",
    "other",
]
"""What is wrong with the storage, in one word; "locked" by another node, "newer" and "older" are schemas."""
RESTORE = "stop the node, keep the folder for inspection and restore the last backup into an empty folder"
"""What to do about a damaged database."""
_BUSY: tuple[StorageFailure, str, str] = (
    "busy",
    "another process is writing",
    "wait for it, or stop the program that has the file open",
)
_KINDS: dict[int, tuple[StorageFailure, str, str]] = {
    sqlite3.SQLITE_FULL: ("full", "the disk is full", "free some space"),
    sqlite3.SQLITE_CORRUPT: ("corrupt", "the database is damaged", RESTORE),
    sqlite3.SQLITE_NOTADB: ("corrupt", "the file is not a database", RESTORE),
    sqlite3.SQLITE_IOERR: ("io", "the disk cannot be read or written", "look for disk errors in the system log"),
    sqlite3.SQLITE_READONLY: (
        "read-only",
        "the file cannot be written",
        "check the owner and permissions of the folder",
    ),
    sqlite3.SQLITE_PERM: ("read-only", "access is denied", "check the owner and permissions of the folder"),
    sqlite3.SQLITE_CANTOPEN: (
        "missing",
        "the file cannot be opened",
        "check that the folder exists, and its permissions",
    ),
    sqlite3.SQLITE_BUSY: _BUSY,
    sqlite3.SQLITE_LOCKED: _BUSY,
    sqlite3.SQLITE_CONSTRAINT: ("refused", "the database refused the change", "report this: it is a bug in dpcrowd"),
}
_OTHER: tuple[StorageFailure, str, str] = ("other", "the database failed", "run 'dpcrowd node doctor' for this node")


class StorageError(DpcrowdError):
    """The node's storage does not work: `kind` is one word, `reason` says what is wrong, `fix` what to do."""

    def __init__(self, kind: StorageFailure, reason: str, fix: str) -> None:
        super().__init__(f"{reason}; {fix}.")
        self.kind = kind
        self.reason = reason
        self.fix = fix

    def __reduce__(self) -> tuple[type[StorageError], tuple[StorageFailure, str, str]]:
        return type(self), (self.kind, self.reason, self.fix)


@contextmanager
def translated(path: Path, failed: Callable[[StorageError], None] | None = None) -> Iterator[None]:
    """Turn any failure of sqlite3 or of the file system on `path` into `StorageError`, and pass it to `failed`."""
    try:
        yield
    except StorageError as failure:
        if failed is not None:
            failed(failure)
        raise
    except (sqlite3.Error, OSError) as error:
        translation = _failure(error, path)
        if failed is not None:
            failed(translation)
        raise translation from None


def _failure(error: sqlite3.Error | OSError, path: Path) -> StorageError:
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        _, reason, fix = _KINDS[sqlite3.SQLITE_FULL]
        return StorageError("full", f"{path}: {reason} ({errno.errorcode[error.errno]})", fix)
    if isinstance(error, OSError):
        return StorageError(
            "io", f"{path}: {error.strerror or 'the file system failed'}", "check the folder and the disk"
        )
    if isinstance(error, sqlite3.ProgrammingError):
        return StorageError("closed", f"{path}: the database is closed", "start the node again")
    code = getattr(error, "sqlite_errorcode", None)
    if code == sqlite3.SQLITE_IOERR_SHMSIZE:  # the log's index could not grow
        code = sqlite3.SQLITE_FULL
    # Extended codes carry their primary code in the low byte.
    kind, reason, fix = _KINDS.get(code & 0xFF, _OTHER) if isinstance(code, int) else _OTHER
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    return StorageError(kind, f"{path}: {reason} ({name})", fix)
