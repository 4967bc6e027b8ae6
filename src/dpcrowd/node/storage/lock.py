"""One node per folder: a lock that the operating system releases when its holder dies, however it dies.

The lock is on an open file, not the existence of one: after kill -9 nothing has to be cleaned up, and a restart is not
refused. The file contains the holder's process id, which a second node shows in its error message.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from dpcrowd.node.storage.failures import StorageError, translated

__all__ = ["FileLock"]


class FileLock:
    """A lock held from creation to `close`; if another process holds it, `StorageError` of kind "locked" is raised."""

    def __init__(self, path: Path, what: str) -> None:
        with translated(path):
            self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        if not _try_lock(self._file):
            holder = os.read(self._file, 20).decode("ascii", "replace").strip() or "unknown"
            os.close(self._file)
            raise StorageError(
                "locked",
                f"{path.parent}: {what} is in use by process {holder}",
                "stop that process first, or give this node another folder",
            )
        try:
            with translated(path):  # a full disk
                os.ftruncate(self._file, 0)
                os.write(self._file, str(os.getpid()).encode("ascii"))
        except StorageError:
            os.close(self._file)
            raise

    def close(self) -> None:
        """Release the lock. The file stays: without it two other processes could lock different files of one name."""
        if self._file >= 0:
            os.ftruncate(self._file, 0)
            os.close(self._file)
            self._file = -1


if sys.platform == "win32":
    import msvcrt

    def _try_lock(file: int) -> bool:
        # A lock on Windows prevents others from reading, so the locked byte lies far behind the process id.
        os.lseek(file, 1 << 20, os.SEEK_SET)
        try:
            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        finally:
            os.lseek(file, 0, os.SEEK_SET)
        return True

else:
    import fcntl

    def _try_lock(file: int) -> bool:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True
