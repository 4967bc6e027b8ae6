"""Signed records of the last slots, and proofs that an origin has signed two of them for one slot.

A node passes records of other servers on, also after a restart. Its own are stored with their payment, those of others
with the release of the slot in which they arrived, and all are deleted once no server accepts them any more. A proof
takes the place of the record that it makes void.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import NamedTuple

from dpcrowd.node.storage.database import Database

__all__ = ["RecordRow", "RecordStore", "forget_records", "put_records"]


class RecordRow(NamedTuple):
    """A record, or a proof, of the server `origin` in a slot; kind: "record" or "proof"."""

    slot: int
    origin: str
    kind: str
    content: bytes


class RecordStore:
    """The stored records of one network."""

    def __init__(self, reader: Database, network: str) -> None:
        self._reader, self._network = reader, network

    def all(self) -> list[RecordRow]:
        """Return what is stored, in the order of slots and origins."""
        rows = self._reader.rows(
            "SELECT slot, origin, kind, content FROM record WHERE network = ? ORDER BY slot, origin", (self._network,)
        )
        return [RecordRow(*row) for row in rows]


def put_records(connection: sqlite3.Connection, network: str, records: Iterable[RecordRow]) -> None:
    """Store records and proofs, inside a transaction."""
    connection.executemany(
        "INSERT OR REPLACE INTO record VALUES (?, ?, ?, ?, ?)", [(network, *record) for record in records]
    )


def forget_records(connection: sqlite3.Connection, network: str, until_slot: int | None = None) -> None:
    """Delete the records of slots up to this one, or all, inside a transaction."""
    if until_slot is None:
        connection.execute("DELETE FROM record WHERE network = ?", (network,))
    else:
        connection.execute("DELETE FROM record WHERE network = ? AND slot <= ?", (network, until_slot))
