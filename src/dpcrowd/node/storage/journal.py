"""Check-ins of open slots: one append-only file per slot, durable before anything in it is acknowledged.

A file exists from the moment its slot opens, whether or not anybody checks in, and is deleted once the slot has been
counted. So nothing of a slot is left on the disk afterwards, not even the space that it took, and nothing that is left
depends on who was there.

    head     magic (16 bytes), hash key (32), nanoseconds missed (8), flags (4), kind (4)
    records  length (4), CRC-32 (4), content: opaque here (see `dpcrowd.node.collect`)

The hash key is new for each slot, made by the operating system's generator. Forgetting overwrites the key first: what
is left of a slot that is being forgotten names nobody. Then the records are overwritten and the file is deleted. What
the file system keeps in blocks that it has freed is beyond us; that takes an encrypted disk.

A record that a crash has cut off was never acknowledged; it is dropped, with whatever stands behind it. Whether a slot
is sampled must not depend on that, since it tells whether somebody was checking in at that moment. It depends on what
the node has missed of the slot, which follows from downtime alone: `alive` holds the last time at which the node was
known to run.

Nothing is written once the folder, or the file, is no longer where it was opened (see `identity`).

Slots are known by the time at which they open: numbers begin again with a new epoch.
"""

from __future__ import annotations

import os
import re
import secrets
import struct
import sys
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from dpcrowd.errors import BadInput
from dpcrowd.node.storage.database import sync_folder
from dpcrowd.node.storage.failures import StorageFailed, translated
from dpcrowd.node.storage.identity import FileIdentity, journal_in_the_way, restart_with_new_journal
from dpcrowd.privacy.units import utc_text

__all__ = ["KEY_BYTES", "MISSED_ALL", "NEVER", "Journal", "SlotForgotten", "erase"]

KEY_BYTES = 32
MISSED_ALL = (1 << 63) - 1
"""Nanoseconds missed of a slot of which nothing can be relied on."""
NEVER = (1 << 63) - 1
"""As the last sign of life: what was missed since then is not known."""

_MAGIC = b"dpcrowd journal\x02"
_HEAD = struct.Struct(f"<16s{KEY_BYTES}sQII")
_MISSED_AT = 16 + KEY_BYTES
_MISSED = struct.Struct("<QI")
_RECORD = struct.Struct("<II")
_ALIVE = struct.Struct("<qI")
_LIMIT_HIT, _ATTENDED = 1, 2
_ZEROS = bytes(1 << 20)
_SUFFIX = ".slot"
_FORGOTTEN = bytes(KEY_BYTES)
_BLOCK = 4 << 20


class SlotForgotten(BadInput):
    """The journal has no key of the slot: it was never opened, or the slot is over."""


@dataclass
class _File:
    """The open file of a slot."""

    path: Path
    handle: int
    key: bytes
    size: int
    missed_ns: int = 0
    flags: int = 0
    kind: int = 0


class Journal:
    """The files of the open slots, for several threads. They are part of no backup.

    limit  bytes that one slot may take; a slot that reaches it keeps nothing more, and `usable` says so
    kind   a number that says what is taken in; a slot that was opened for another kind is not usable
    check_ledger  refuses if the ledger is not where it was, either: then it is the ledger that has to be put back
    damaged       slots whose files could not be read when the journal was opened: their check-ins are lost
    """

    def __init__(
        self,
        folder: Path,
        *,
        limit: int | None = None,
        kind: int = 0,
        check_ledger: Callable[[], None] = lambda: None,
    ) -> None:
        self.folder = folder
        self._check_ledger = check_ledger
        self.damaged: list[int] = []
        self.limit = limit
        self.kind = kind
        self.failure: StorageFailed | None = None
        self._lock = threading.Lock()
        self._files: dict[int, _File] = {}
        self._alive: int | None = None
        self._held: int | None = None  # the folder: its inode is not given to another one meanwhile
        with translated(folder):
            try:
                folder.mkdir(mode=0o700, exist_ok=True)
            except FileExistsError:
                raise journal_in_the_way(folder, running=False) from None
            self._held = os.open(folder, os.O_RDONLY) if os.name == "posix" else None
            self._place = FileIdentity(folder, self._held)
            for path in sorted(folder.glob(f"*{_SUFFIX}")):
                self._load(path)

    # -------------------------------------------------------------------------------------------------- opening

    def slot_key(self, opens_ns: int) -> bytes:
        """The key with which the slot's users are hashed; made, with the slot's file, if there is none yet."""
        with self._lock, self._translated():
            return (self._files.get(opens_ns) or self._create(opens_ns)).key

    def _create(self, opens_ns: int) -> _File:
        path = self.folder / f"{opens_ns}{_SUFFIX}"
        key = secrets.token_bytes(KEY_BYTES)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o600)
        try:
            _write_all(handle, _HEAD.pack(_MAGIC, key, 0, 0, self.kind), 0)
            os.fsync(handle)
            sync_folder(self.folder)
        except BaseException:
            os.close(handle)
            with suppress(OSError):
                path.unlink()
            raise
        self._files[opens_ns] = _File(path, handle, key, _HEAD.size, kind=self.kind)
        return self._files[opens_ns]

    def _load(self, path: Path) -> None:
        """Take up a file of an earlier life; one that says nothing is deleted.

        A head that was cut off, or overwritten with zeros, is what a crash leaves of a file that was being made or
        forgotten. Any other wrong head is damage: whatever was acknowledged is lost, and the slot cannot be sampled.
        """
        handle = os.open(path, os.O_RDWR | getattr(os, "O_CLOEXEC", 0))
        head = os.pread(handle, _HEAD.size, 0)
        name = path.name.removesuffix(_SUFFIX)
        slot = int(name) if re.fullmatch("-?[0-9]{1,19}", name) else None
        if slot is None or len(head) < _HEAD.size or not head[: len(_MAGIC)].strip(b"\0"):
            _erase(handle, path)
            return
        magic, key, missed_ns, flags, kind = _HEAD.unpack(head)
        if magic != _MAGIC or key == _FORGOTTEN:
            _erase(handle, path)
            self._mark(self._create(slot), missed_ns=MISSED_ALL, flags=_ATTENDED)
            self.damaged.append(slot)
            return
        end = _end_of_records(handle)
        os.ftruncate(handle, end)
        self._files[slot] = _File(path, handle, key, end, missed_ns, flags, kind)

    # -------------------------------------------------------------------------------------------------- records

    def append(self, opens_ns: int, record: bytes) -> None:
        """On disk when it returns; the slot must be open."""
        if self.append_all([(opens_ns, record)]):
            raise _closed(opens_ns)

    def append_all(self, records: Sequence[tuple[int, bytes]]) -> set[int]:
        """(slot, record) of several requests, on disk when it returns; gives the slots that are not open any more."""
        by_slot: dict[int, list[bytes]] = {}
        for opens_ns, record in records:
            by_slot.setdefault(opens_ns, []).append(record)
        gone = set()
        for opens_ns, contents in by_slot.items():
            with self._lock, self._translated():
                file = self._files.get(opens_ns)
                if file is None:
                    gone.add(opens_ns)
                else:
                    self._append(file, contents)
        return gone

    def _append(self, file: _File, contents: Sequence[bytes]) -> None:
        self._check(FileIdentity(file.path, file.handle))
        if file.flags & _LIMIT_HIT:
            return
        block = b"".join(
            part for record in contents for part in (_RECORD.pack(len(record), zlib.crc32(record)), record)
        )
        if self.limit is not None and file.size + len(block) > self.limit:
            self._mark(file, flags=file.flags | _LIMIT_HIT)
            return
        try:
            _write_all(file.handle, block, file.size)
            _sync(file.handle)
        except BaseException:
            with suppress(OSError):  # what was cut off is dropped at the next start, too
                os.ftruncate(file.handle, file.size)
            raise
        file.size += len(block)

    def batches(self, opens_ns: int) -> Iterator[bytes]:
        """What was acknowledged for a slot, in that order."""
        with self._lock:
            file = self._files.get(opens_ns)
        if file is None:
            return
        yield from _records(file.handle, file.size)

    # --------------------------------------------------------------------------------------- what a node has missed

    def attend(self, opens_ns: int, missed_ns: int) -> None:
        """The node counts this slot from now on, and was not there for so long before.

        Only a slot that was attended to can be complete: that a check-in has made a slot's file says nothing.
        """
        with self._lock, self._translated():
            file = self._files.get(opens_ns) or self._create(opens_ns)
            missed_ns = min(file.missed_ns + max(missed_ns, 0), MISSED_ALL)
            self._mark(file, missed_ns=missed_ns, flags=file.flags | _ATTENDED)

    def missed(self, opens_ns: int) -> int:
        """Nanoseconds of the slot in which the node was not there; `MISSED_ALL` if the slot cannot be relied on."""
        with self._lock:
            file = self._files.get(opens_ns)
            if file is None or file.kind != self.kind or not file.flags & _ATTENDED:
                return MISSED_ALL
            return file.missed_ns

    def limit_hit(self, opens_ns: int) -> bool:
        """Whether the slot took more than a slot may: what came after that is not kept."""
        with self._lock:
            file = self._files.get(opens_ns)
            return file is not None and bool(file.flags & _LIMIT_HIT)

    def add_missed(self, opens_ns: int, missed_ns: int) -> None:
        """The node was not there for so long, after it had attended to the slot; otherwise `attend` will say so."""
        with self._lock, self._translated():
            file = self._files.get(opens_ns)
            if file is not None and file.flags & _ATTENDED and missed_ns > 0:
                self._mark(file, missed_ns=min(file.missed_ns + missed_ns, MISSED_ALL))

    def _mark(self, file: _File, *, missed_ns: int | None = None, flags: int | None = None) -> None:
        file.missed_ns = file.missed_ns if missed_ns is None else missed_ns
        file.flags = file.flags if flags is None else flags
        _write_all(file.handle, _MISSED.pack(file.missed_ns, file.flags), _MISSED_AT)
        _sync(file.handle)

    def stamp(self, at_ns: int) -> None:
        """The node runs at this time; on disk when it returns."""
        with self._lock, self._translated():
            if self._alive is None:
                flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)
                self._alive = os.open(self.folder / "alive", flags, 0o600)
            self._check(FileIdentity(self.folder / "alive", self._alive))
            packed = struct.pack("<q", at_ns)
            _write_all(self._alive, packed + struct.pack("<I", zlib.crc32(packed)), 0)
            _sync(self._alive)

    def last_stamp(self) -> int | None:
        """The last time at which the node is known to have run; None if it is not known."""
        content = self._alive_content()
        with suppress(struct.error):
            at_ns, check = _ALIVE.unpack(content)
            if check == zlib.crc32(content[:8]):
                return int(at_ns)
        return None

    def stamp_damaged(self) -> bool:
        """Whether there is a last sign of life that cannot be read; an empty one is what a crash leaves."""
        return bool(self._alive_content()) and self.last_stamp() is None

    def _alive_content(self) -> bytes:
        try:
            return (self.folder / "alive").read_bytes()
        except OSError:
            return b""

    # ----------------------------------------------------------------------------------------------- forgetting

    def pending(self) -> list[int]:
        """When the slots open that have a file here; after a restart those to restore, or to forget."""
        with self._lock:
            return sorted(self._files)

    def forget(self, opens_ns: int) -> None:
        """Overwrite and delete a slot's key and records; overwrite them even if the folder was moved away."""
        with self._lock:
            file = self._files.pop(opens_ns, None)
        if file is not None:
            with self._translated(forgetting=True):
                _erase(file.handle, file.path)

    def forget_before(self, at_ns: int) -> None:
        """Forget every slot that opens before a time; one that fails keeps none of the others."""
        failures = []
        for opens_ns in self.pending():
            if opens_ns < at_ns:
                try:
                    self.forget(opens_ns)
                except StorageFailed as failure:
                    failures.append(failure)
        if failures:
            raise failures[0]

    def close(self) -> None:
        """Nothing is deleted."""
        with self._lock:
            for file in self._files.values():
                os.close(file.handle)
            self._files.clear()
            if self._alive is not None:
                os.close(self._alive)
                self._alive = None
            if self._held is not None:
                os.close(self._held)
                self._held = None

    def check_folder(self) -> None:
        """Refuse to go on with a folder that was deleted, moved away or replaced."""
        with translated(self.folder, self._failed):
            self._check(self._place)

    def _check(self, file: FileIdentity) -> None:
        """Refuse a file or folder that is not the one that was opened, with what puts that right."""
        try:
            file.check()
        except StorageFailed as failure:
            self._check_ledger()
            if self.folder.is_file():
                raise journal_in_the_way(self.folder, running=True) from None
            raise restart_with_new_journal(failure) from None

    @contextmanager
    def _translated(self, *, forgetting: bool = False) -> Iterator[None]:
        """`failure` is what the last write failed of, or None."""
        with translated(self.folder, self._failed):
            if not forgetting:
                self._check(self._place)
            yield
            if forgetting:
                self._check(self._place)
            self.failure = None

    def _failed(self, failure: StorageFailed) -> None:
        self.failure = failure


def _closed(opens_ns: int) -> SlotForgotten:
    return SlotForgotten(f"the slot from {utc_text(opens_ns)} is not open in the journal: open it first.")


def _write_all(handle: int, content: bytes, at: int) -> None:
    view = memoryview(content)
    while view:
        written = os.pwrite(handle, view, at)
        view, at = view[written:], at + written


def _sync(handle: int) -> None:
    if sys.platform == "darwin":  # where a plain fsync does not reach the disk
        import fcntl

        fcntl.fcntl(handle, fcntl.F_FULLFSYNC)
    else:
        os.fdatasync(handle)


def _records(handle: int, size: int) -> Iterator[bytes]:
    """The records up to `size`, or up to the first that is not as it was written."""
    at = _HEAD.size
    while at + _RECORD.size < size:
        length, check = _RECORD.unpack(_read_exactly(handle, _RECORD.size, at))
        at += _RECORD.size
        if not 0 < length <= size - at:
            return
        record = _read_exactly(handle, length, at)
        if zlib.crc32(record) != check:
            return
        yield record
        at += length


def _read_exactly(handle: int, length: int, at: int) -> bytes:
    parts = []
    while length > 0:
        part = os.pread(handle, min(length, _BLOCK), at)
        if not part:
            break
        parts.append(part)
        length, at = length - len(part), at + len(part)
    return b"".join(parts)


def _end_of_records(handle: int) -> int:
    """Where the records end that are as they were written."""
    return _HEAD.size + sum(_RECORD.size + len(record) for record in _records(handle, os.fstat(handle).st_size))


def erase(path: Path) -> None:
    """Overwrite and delete a file, if it is there."""
    if path.exists():
        with translated(path):
            _erase(os.open(path, os.O_RDWR), path)


def _erase(handle: int, path: Path) -> None:
    """Overwrite a file, its key first, and delete it."""
    try:
        size = os.fstat(handle).st_size
        _write_all(handle, bytes(min(size, _HEAD.size)), 0)
        _sync(handle)
        for at in range(_HEAD.size, size, len(_ZEROS)):
            _write_all(handle, _ZEROS[: size - at], at)
        _sync(handle)
    finally:
        os.close(handle)
    path.unlink(missing_ok=True)
    with suppress(FileNotFoundError):
        sync_folder(path.parent)
