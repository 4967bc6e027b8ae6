"""Whether a name still leads to the file that was opened under it.

A file that is deleted or moved away while it is open takes everything that is written to it, and nobody finds that
again: after the next start a payment would be unknown, and an acknowledged check-in gone. The operating system says
nothing, and SQLite neither. So whoever writes asks first: the name must lead to the same device and inode as when the
file was opened. An inode is not given to another file as long as somebody has it open, so whoever watches a file keeps
it open, a folder too.

What this cannot see is a file that is overwritten in its place (`cp backup.db dpcrowd.db`): for that the ledger
compares its counter with the one that it knows.
"""

from __future__ import annotations

import os
from pathlib import Path

from dpcrowd.node.storage.failures import StorageFailed

__all__ = ["FileIdentity", "journal_in_the_way", "put_back", "restart_with_new_journal"]


class FileIdentity:
    """What stands at a path now, or the file behind a handle that was opened there."""

    def __init__(self, path: Path, handle: int | None = None) -> None:
        self.path = path
        self._known = _identity(os.stat(path) if handle is None else os.fstat(handle))

    def check(self) -> None:
        """Refuse a path that is gone, or leads elsewhere; whatever else keeps it from being seen is an OSError."""
        try:
            present = _identity(os.stat(self.path))
        except (FileNotFoundError, NotADirectoryError):
            raise put_back("missing", f"{self.path} was deleted or moved away under the running node") from None
        if present != self._known:
            raise put_back("replaced", f"{self.path} was replaced by another one under the running node")


def put_back(kind: str, reason: str) -> StorageFailed:
    """Somebody has changed the folder of a node that runs: only the folder as it was is right."""
    fix = "put it back as it was; or stop the node, restore the last backup into an empty folder and confirm the loss"
    return StorageFailed(kind, reason, fix)


def restart_with_new_journal(failure: StorageFailed) -> StorageFailed:
    """The same failure, where only check-ins are concerned: no payment is lost, so nothing has to be confirmed."""
    fix = (
        "put it back as it was, or restart the node, which makes what is missing. No payment is lost, only check-ins "
        "of the slot that is open"
    )
    return StorageFailed(failure.kind, failure.reason, fix)


def journal_in_the_way(folder: Path, *, running: bool) -> StorageFailed:
    """A file stands where the journal's folder belongs."""
    then = "restart the node" if running else "start the node again"
    fix = f"move it away and {then}, which makes the folder. No payment is lost"
    return StorageFailed("replaced", f"{folder} is a file, where the folder for check-ins belongs", fix)


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
