"""Check-ins of open slots, durable before they are acknowledged and gone once they are counted.

One blob a batch, opaque here (keyed hashes of users and regions). The hash key is new for each slot, made by the
operating system's generator, and deleted first: what is left of a slot that is being forgotten names nobody. A
slot is forgotten in small steps, so that other slots' check-ins wait for milliseconds only; a crash in between is made
good when the journal is opened again.

Slots are known by the time at which they open: numbers begin again with a new epoch.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence

from dpcrowd.errors import BadInput
from dpcrowd.node.storage.database import Database
from dpcrowd.node.storage.failures import StorageFailed
from dpcrowd.node.storage.notes import utc_text

__all__ = ["KEY_BYTES", "Journal", "SlotForgotten"]

KEY_BYTES = 32
_STEP = 128
_DELETE = "DELETE FROM batch WHERE id IN (SELECT id FROM batch WHERE opens_ns = ? LIMIT ?)"
_APPEND = "INSERT INTO batch (opens_ns, batch) SELECT opens_ns, ? FROM slot WHERE opens_ns = ? AND hash_key IS NOT NULL"


class SlotForgotten(BadInput):
    """The journal has no key of the slot: it was never asked for, or the slot is over."""


class Journal:
    """An append-only journal a slot. Its database is used by nobody else and is part of no backup."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._log_holds_deleted = True  # unknown after a crash
        for (opens_ns,) in database.rows("SELECT opens_ns FROM slot WHERE hash_key IS NULL"):
            self._remove(opens_ns)
        self._empty_log()

    def slot_key(self, opens_ns: int) -> bytes:
        """The key with which the slot's users are hashed, made and kept at the first call."""
        found = self._key(opens_ns)
        if found is None:
            self._database.write(
                "INSERT INTO slot VALUES (?, ?) ON CONFLICT DO NOTHING", (opens_ns, secrets.token_bytes(KEY_BYTES))
            )
            found = self._key(opens_ns)  # another thread may have been first
        if found is None:
            raise _closed(opens_ns)
        return found

    def append(self, opens_ns: int, batch: bytes) -> None:
        """On disk when it returns. The slot must have a key, by which the batch was hashed."""
        if self.append_all([(opens_ns, batch)]):
            raise _closed(opens_ns)

    def append_all(self, batches: Sequence[tuple[int, bytes]]) -> set[int]:
        """(slot, batch) of several requests in one commit. Gives the slots without a key, for which nothing is written.

        The look at the key and the write are one statement: a slot may be forgotten at any moment by another thread.
        """
        if len(batches) == 1:
            ((opens_ns, batch),) = batches
            return set() if self._database.write(_APPEND, (batch, opens_ns)) else {opens_ns}
        with self._database.transaction() as connection:
            return {
                opens_ns for opens_ns, batch in batches if not connection.execute(_APPEND, (batch, opens_ns)).rowcount
            }

    def batches(self, opens_ns: int) -> Iterator[bytes]:
        """What was acknowledged for a slot, in that order."""
        if self._key(opens_ns) is None:
            return
        last = -1
        while rows := self._database.rows(
            "SELECT id, batch FROM batch WHERE opens_ns = ? AND id > ? ORDER BY id LIMIT ?", (opens_ns, last, _STEP)
        ):
            yield from (batch for _, batch in rows)
            last = rows[-1][0]

    def pending(self) -> list[int]:
        """When the slots open that have a key here; after a restart those to restore, or to forget."""
        return [opens_ns for (opens_ns,) in self._database.rows("SELECT opens_ns FROM slot ORDER BY opens_ns")]

    def forget(self, opens_ns: int) -> bool:
        """Delete a slot's key and check-ins, overwriting them; False if the log could not be emptied yet.

        That happens only while a foreign program reads the file; the next `forget` tries again.
        """
        self._log_holds_deleted |= self._remove(opens_ns)
        return self._empty_log()

    def forget_before(self, at_ns: int) -> bool:
        """Forget every slot that opens before a time."""
        gone = [self.forget(opens_ns) for opens_ns in self.pending() if opens_ns < at_ns]
        return gone[-1] if gone else True

    @property
    def failure(self) -> StorageFailed | None:
        """What the last write failed of; None once one has worked again."""
        return self._database.failure

    def _remove(self, opens_ns: int) -> bool:
        """Delete a slot, its key in the first step; whether there was one. A small slot takes one commit."""
        while True:
            with self._database.transaction() as connection:
                if connection.execute(_DELETE, (opens_ns, _STEP)).rowcount < _STEP:
                    return connection.execute("DELETE FROM slot WHERE opens_ns = ?", (opens_ns,)).rowcount > 0
                connection.execute("UPDATE slot SET hash_key = NULL WHERE opens_ns = ?", (opens_ns,))

    def _empty_log(self) -> bool:
        if self._log_holds_deleted and self._database.truncate_log():
            self._log_holds_deleted = False
        return not self._log_holds_deleted

    def _key(self, opens_ns: int) -> bytes | None:
        row = self._database.row("SELECT hash_key FROM slot WHERE opens_ns = ?", (opens_ns,))
        return None if row is None else row[0]


def _closed(opens_ns: int) -> SlotForgotten:
    return SlotForgotten(f"the slot from {utc_text(opens_ns)} has no key in the journal: ask for its key first.")
