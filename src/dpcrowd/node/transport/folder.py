"""A folder for Unix sockets that only this user can enter.

It is in the folder of temporary files, since the path of a socket has at most about 100 characters. A process that was
killed leaves its folder behind, and the next one of the same user removes it: a folder in use contains a locked file.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import IO

from dpcrowd.node.transport.base import TransportFailed

__all__ = ["PrivateFolder"]

_FRESH, _PREFIX, _LOCK = "dpcrowd-fresh-", "dpcrowd-sockets-", "lock"
_LONGEST = 60


class PrivateFolder:
    """A new folder, until `close`; raises `TransportFailed` if it cannot be created."""

    def __init__(self) -> None:
        place = Path(tempfile.gettempdir())
        if len(str(place)) > _LONGEST:
            place = Path("/tmp")
        try:
            _clear(place)
            # Renamed after it is locked: otherwise a process that starts at the same moment could remove it.
            fresh = Path(tempfile.mkdtemp(prefix=_FRESH, dir=place))
            self._lock = (fresh / _LOCK).open("wb")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.path = fresh.rename(place / fresh.name.replace(_FRESH, _PREFIX, 1))
        except OSError as error:
            raise TransportFailed(
                f"cannot create a folder for sockets in {place}: {(error.strerror or str(error)).lower()}; free some "
                "space there, or set TMPDIR."
            ) from None

    def close(self) -> None:
        """Remove the folder with its content."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()


def _clear(place: Path) -> None:
    """Remove the folders of killed processes of this user."""
    for folder in place.glob(f"{_PREFIX}*"):
        try:
            if folder.lstat().st_uid != os.getuid() or folder.is_symlink():
                continue
            with (folder / _LOCK).open("rb") as lock:
                if _is_free(lock):
                    shutil.rmtree(folder, ignore_errors=True)
        except OSError:  # it was removed meanwhile
            continue


def _is_free(lock: IO[bytes]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
