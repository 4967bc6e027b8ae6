"""Check-ins of open slots: one append-only file per slot, durable before anything in it is acknowledged.

A file exists from the moment its slot opens, whether or not anybody checks in, and is deleted once the slot has been
counted. So nothing of a slot stays on the disk afterwards, not even the space that it took, and nothing on the disk
depends on who was there.

    head     magic (16 bytes), hash key (32), nanoseconds missed (8), flags (4), kind (4)
    records  length (4), CRC-32 (4), content: opaque here (see `dpcrowd.node.collect`)

The hash key is new for each slot, from the operating system's generator. Forgetting a slot overwrites the key first, so
that a partly deleted file identifies nobody; then the records are overwritten and the file is deleted. The node cannot
erase what the file system keeps in freed blocks; an encrypted disk protects that.

A record that a crash has cut off was never acknowledged; it is dropped, with everything after it. Whether a slot is
sampled must not depend on that, since it reveals whether somebody was checking in at that moment. It depends on how
much of the slot the node has missed, which follows from downtime alone: `alive` holds the last time at which the node
was known to run.

Nothing is written once the folder, or the file, is no longer where it was opened (see `identity`).

Slots are identified by the time at which they open: numbers begin again with a new epoch.
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
from dpcrowd.node.storage.failures import StorageError, translated
from dpcrowd.node.storage.identity import FileIdentity, journal_in_the_way, restart_with_new_journal
from dpcrowd.privacy.units import utc_text

__all__ = ["KEY_BYTES", "MISSED_ALL", "NEVER", "Journal", "SlotForgotten", "erase"]

KEY_BYTES = 32
MISSED_ALL = (1 << 63) - 1
"""Nanoseconds missed of a slot that cannot be relied on."""
NEVER = (1 << 63) - 1
"""A last sign of life that says nothing: how much was missed since then is unknown."""

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
    """The journal has no key for the slot: it was never opened, or the slot is over."""


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
    """The files of the open slots, safe for several threads. They are never part of a backup.

    limit         bytes that one slot may take; a slot that reaches it stores nothing more, and `limit_hit` says so
    kind          a number that says what is accepted; a slot that was opened for another kind cannot be relied on
    check_ledger  raises if the ledger is not where it was, either: then the ledger has to be put back
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
        self.failure: StorageError | None = None
        self._lock = threading.Lock()
        self._files: dict[int, _File] = {}
        self._alive: int | None = None
        self._folder_handle: int | None = None  # keeps the folder's inode from being reused
        with translated(folder):
            try:
                folder.mkdir(mode=0o700, exist_ok=True)
            except FileExistsError:
                raise journal_in_the_way(folder, running=False) from None
            self._folder_handle = os.open(folder, os.O_RDONLY) if os.name == "posix" else None
            self._place = FileIdentity(folder, self._folder_handle)
            for path in sorted(folder.glob(f"*{_SUFFIX}")):
                self._load(path)

    # -------------------------------------------------------------------------------------------------- opening

    def slot_key(self, opens_ns: int) -> bytes:
        """Return the key with which the slot's users are hashed; create it, and the slot's file, if there is none."""
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
        """Load the file of an earlier run, or delete it if it holds nothing.

        A head that is cut off, or overwritten with zeros, is what a crash leaves of a file that was being created or
        forgotten. Any other wrong head is damage: acknowledged check-ins are lost, and the slot cannot be sampled.
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
        """Store a record of an open slot; it is on disk when this returns."""
        if self.append_all([(opens_ns, record)]):
            raise _closed(opens_ns)

    def append_all(self, records: Sequence[tuple[int, bytes]]) -> set[int]:
        """Store (slot, record) pairs, which are on disk when this returns; return the slots that are no longer open."""
        by_slot: dict[int, list[bytes]] = {}
        for opens_ns, record in records:
            by_slot.setdefault(opens_ns, []).append(record)
        closed = set()
        for opens_ns, contents in by_slot.items():
            with self._lock, self._translated():
                file = self._files.get(opens_ns)
                if file is None:
                    closed.add(opens_ns)
                else:
                    self._append(file, contents)
        return closed

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
            with suppress(OSError):  # otherwise the next start drops the incomplete record
                os.ftruncate(file.handle, file.size)
            raise
        file.size += len(block)

    def batches(self, opens_ns: int) -> Iterator[bytes]:
        """Yield what was acknowledged for a slot, in that order."""
        with self._lock:
            file = self._files.get(opens_ns)
        if file is None:
            return
        yield from _records(file.handle, file.size)

    # --------------------------------------------------------------------------------------- what a node has missed

    def attend(self, opens_ns: int, missed_ns: int) -> None:
        """Note that the node counts this slot from now on, and missed `missed_ns` of it before.

        Only a slot that was attended to can be complete: a file that a check-in has created proves nothing.
        """
        with self._lock, self._translated():
            file = self._files.get(opens_ns) or self._create(opens_ns)
            missed_ns = min(file.missed_ns + max(missed_ns, 0), MISSED_ALL)
            self._mark(file, missed_ns=missed_ns, flags=file.flags | _ATTENDED)

    def missed(self, opens_ns: int) -> int:
        """Return how many nanoseconds of the slot the node has missed; `MISSED_ALL` if it cannot be relied on."""
        with self._lock:
            file = self._files.get(opens_ns)
            if file is None or file.kind != self.kind or not file.flags & _ATTENDED:
                return MISSED_ALL
            return file.missed_ns

    def limit_hit(self, opens_ns: int) -> bool:
        """Whether the slot has reached the limit: what came after that is not stored."""
        with self._lock:
            file = self._files.get(opens_ns)
            return file is not None and bool(file.flags & _LIMIT_HIT)

    def add_missed(self, opens_ns: int, missed_ns: int) -> None:
        """Add time that the node missed of a slot which it attends to; of other slots `attend` will record it."""
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
        """Record that the node runs at this time; it is on disk when this returns."""
        with self._lock, self._translated():
            if self._alive is None:
                flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)
                self._alive = os.open(self.folder / "alive", flags, 0o600)
            self._check(FileIdentity(self.folder / "alive", self._alive))
            packed = struct.pack("<q", at_ns)
            _write_all(self._alive, packed + struct.pack("<I", zlib.crc32(packed)), 0)
            _sync(self._alive)

    def last_stamp(self) -> int | None:
        """Return the last time at which the node is known to have run; None if unknown."""
        content = self._alive_content()
        with suppress(struct.error):
            at_ns, check = _ALIVE.unpack(content)
            if check == zlib.crc32(content[:8]):
                return int(at_ns)
        return None

    def stamp_damaged(self) -> bool:
        """Whether the last sign of life cannot be read; an empty file is not damage, but what a crash leaves."""
        return bool(self._alive_content()) and self.last_stamp() is None

    def _alive_content(self) -> bytes:
        try:
            return (self.folder / "alive").read_bytes()
        except OSError:
            return b""

    # ----------------------------------------------------------------------------------------------- forgetting

    def pending(self) -> list[int]:
        """Return when the slots open that have a file; after a restart they are to be restored, or forgotten."""
        with self._lock:
            return sorted(self._files)

    def forget(self, opens_ns: int) -> None:
        """Overwrite and delete a slot's key and records, even if the folder was moved away."""
        with self._lock:
            file = self._files.pop(opens_ns, None)
        if file is not None:
            with self._translated(forgetting=True):
                _erase(file.handle, file.path)

    def forget_before(self, at_ns: int) -> None:
        """Forget every slot that opens before a time; a slot that fails does not stop the others."""
        failures = []
        for opens_ns in self.pending():
            if opens_ns < at_ns:
                try:
                    self.forget(opens_ns)
                except StorageError as failure:
                    failures.append(failure)
        if failures:
            raise failures[0]

    def close(self) -> None:
        """Close all files without deleting anything."""
        with self._lock:
            for file in self._files.values():
                os.close(file.handle)
            self._files.clear()
            if self._alive is not None:
                os.close(self._alive)
                self._alive = None
            if self._folder_handle is not None:
                os.close(self._folder_handle)
                self._folder_handle = None

    def check_folder(self) -> None:
        """Refuse to continue with a folder that was deleted, moved away or replaced."""
        with translated(self.folder, self._failed):
            self._check(self._place)

    def _check(self, file: FileIdentity) -> None:
        """Refuse a file or folder that is not the one that was opened, and say how to fix that."""
        try:
            file.check()
        except StorageError as failure:
            self._check_ledger()
            if self.folder.is_file():
                raise journal_in_the_way(self.folder, running=True) from None
            raise restart_with_new_journal(failure) from None

    @contextmanager
    def _translated(self, *, forgetting: bool = False) -> Iterator[None]:
        """Translate failures, check the folder, and set `failure` to why the last write failed, or None."""
        with translated(self.folder, self._failed):
            if not forgetting:
                self._check(self._place)
            yield
            if forgetting:
                self._check(self._place)
            self.failure = None

    def _failed(self, failure: StorageError) -> None:
        self.failure = failure


def _closed(opens_ns: int) -> SlotForgotten:
    return SlotForgotten(f"the slot from {utc_text(opens_ns)} is not open in the journal; open it first.")


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
    """Yield the records up to `size`, or up to the first that is damaged."""
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
    """Return where the undamaged records end."""
    return _HEAD.size + sum(_RECORD.size + len(record) for record in _records(handle, os.fstat(handle).st_size))


def erase(path: Path) -> None:
    """Overwrite and delete a file, if it exists."""
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
