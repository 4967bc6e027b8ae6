"""A folder for Unix sockets that nobody but this user can enter.

It lies where temporary files do, since the name of a socket has about 100 characters at most. A process that was killed
leaves its folder behind, and the next one of the same user removes it: a folder in use has a file that is locked.
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
    """A new folder, until `close`; raises `TransportFailed` where there can be none."""

    def __init__(self) -> None:
        place = Path(tempfile.gettempdir())
        if len(str(place)) > _LONGEST:
            place = Path("/tmp")
        try:
            _clear(place)
            # It gets its name when it is locked: a process that starts at the same moment would take it for one that
            # was left behind.
            fresh = Path(tempfile.mkdtemp(prefix=_FRESH, dir=place))
            self._lock = (fresh / _LOCK).open("wb")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.path = fresh.rename(place / fresh.name.replace(_FRESH, _PREFIX, 1))
        except OSError as error:
            raise TransportFailed(
                f"no folder for sockets can be made in {place}: {(error.strerror or str(error)).lower()}; free some "
                "space there, or set TMPDIR."
            ) from None

    def close(self) -> None:
        """Remove it and all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()


def _clear(place: Path) -> None:
    """Remove what killed processes of this user have left."""
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
