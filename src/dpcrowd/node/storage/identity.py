"""Whether a path still leads to the file that was opened under it.

A file that is deleted or moved away while it is open still accepts everything that is written to it, and all of that is
lost: after the next start a payment would be unknown, and an acknowledged check-in missing. Neither the operating
system nor SQLite reports this. So every writer first checks that the path leads to the same device and inode as when
the file was opened. An inode is not reused while the file is open, so the watched file or folder stays open.

This does not detect a file that is overwritten in place (`cp backup.db dpcrowd.db`): for that the ledger compares its
counter with the highest one that it has stored.
"""

from __future__ import annotations

import os
from pathlib import Path

from dpcrowd.node.storage.failures import StorageError, StorageFailure

__all__ = ["FileIdentity", "journal_in_the_way", "put_back", "restart_with_new_journal"]


class FileIdentity:
    """The device and inode of what is at a path now, or of the open file behind a handle."""

    def __init__(self, path: Path, handle: int | None = None) -> None:
        self.path = path
        self._text = os.fspath(path)  # every writer checks: a path is converted once
        self._expected = _identity(os.stat(path) if handle is None else os.fstat(handle))

    def check(self) -> None:
        """Refuse a path that is missing or leads elsewhere; any other failure to look at it is an OSError."""
        try:
            present = _identity(os.stat(self._text))
        except (FileNotFoundError, NotADirectoryError):
            raise put_back("missing", f"{self.path} was deleted or moved away while the node was running") from None
        if present != self._expected:
            raise put_back("replaced", f"{self.path} was replaced by another one while the node was running")


def put_back(kind: StorageFailure, reason: str) -> StorageError:
    """Return the failure of a node whose folder was changed while it ran: only the original folder is right."""
    fix = "put it back as it was; or stop the node, restore the last backup into an empty folder and confirm the loss"
    return StorageError(kind, reason, fix)


def restart_with_new_journal(failure: StorageError) -> StorageError:
    """Return the same failure if it concerns only check-ins: no payment is lost, so no loss has to be confirmed."""
    fix = (
        "put it back as it was, or restart the node, which creates what is missing. No payment is lost, only check-ins "
        "of the open slot"
    )
    return StorageError(failure.kind, failure.reason, fix)


def journal_in_the_way(folder: Path, *, running: bool) -> StorageError:
    """Return the failure that a file is in the place of the journal's folder."""
    restart = "restart the node" if running else "start the node again"
    fix = f"move it away and {restart}, which creates the folder. No payment is lost"
    return StorageError("replaced", f"{folder} is a file, but has to be the folder for check-ins", fix)


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
