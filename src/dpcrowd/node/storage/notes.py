"""Smaller things that outlive a restart: refusals by reason, what neighbours last said, what the operator did.

Refused messages of neighbours are counted exactly. Of refused check-ins only whether it happened in a slot is kept: an
exact number would be a raw count of people. The table itself refuses any other number for them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from dpcrowd.node.storage.database import Database

__all__ = [
    "LARGEST_COUNTER",
    "Event",
    "Events",
    "Memory",
    "Refusal",
    "Refusals",
    "Remembered",
    "add_event",
    "put_complete",
    "put_memory",
    "put_refusals",
]

Remembered = tuple[int, int, bytes, int]
"""(slot in which a neighbour first said a counter, the counter, its proof, slot since which it is remembered)"""
LARGEST_COUNTER = 1 << 62
"""A counter that no ledger reaches; a neighbour that says more must not break a commit."""


@dataclass(frozen=True)
class Refusal:
    """`count` messages, or at least one check-in, were refused for a reason in the slot that opens at a time."""

    opens_ns: int
    kind: Literal["message", "check-in"]
    reason: str
    count: int = 1


@dataclass(frozen=True)
class Event:
    """Something that the operator did or confirmed."""

    at_ns: int
    network: str
    kind: str
    text: str


class Refusals:
    """Refusals of one network."""

    def __init__(self, database: Database, reader: Database, network: str) -> None:
        self._database = database
        self._reader = reader
        self._network = network

    def count(self, opens_ns: int, reason: str, n: int = 1) -> None:
        """Messages, exactly. A commit each: in a busy node hand them to `Storage.commit_release` instead."""
        self.add([Refusal(opens_ns, "message", reason, n)])

    def happened(self, opens_ns: int, reason: str) -> None:
        """Check-ins: only that it happened."""
        self.add([Refusal(opens_ns, "check-in", reason)])

    def add(self, refusals: Iterable[Refusal]) -> None:
        """Many in one commit."""
        with self._database.transaction() as connection:
            put_refusals(connection, self._network, refusals)

    def since(self, at_ns: int) -> list[Refusal]:
        """Of slots that opened at or after a time, oldest first."""
        rows = self._reader.rows(
            "SELECT opens_ns, kind, reason, count FROM refusal WHERE network = ? AND opens_ns >= ? "
            "ORDER BY opens_ns, kind, reason",
            (self._network, at_ns),
        )
        return [Refusal(*row) for row in rows]


class Memory:
    """The highest ledger counter that each neighbour said: echoed to it, so that an old copy is exposed.

    And up to which slot the own ledger was known to be complete: neighbours have to remember that far to vouch for it.
    """

    def __init__(self, database: Database, reader: Database, network: str) -> None:
        self._database = database
        self._reader = reader
        self._network = network

    def remember(self, heard: Mapping[str, Remembered]) -> None:
        """On disk when it returns. A counter below the one remembered changes nothing: it has to be exposed."""
        with self._database.transaction() as connection:
            put_memory(connection, self._network, heard)

    def remembered(self) -> dict[str, Remembered]:
        """By neighbour; no proof of what was remembered before there were any."""
        rows = self._reader.rows(
            "SELECT name, slot, counter, proof, coalesce(since, slot) FROM neighbour WHERE network = ?",
            (self._network,),
        )
        return {name: (slot, counter, proof, since) for name, slot, counter, proof, since in rows}

    def complete_until(self) -> int | None:
        """The last slot up to which the own ledger was known to be complete; None in a folder of version 0.1."""
        row = self._reader.row("SELECT until_slot FROM complete WHERE network = ?", (self._network,))
        return None if row is None else int(row[0])


class Events:
    """The operator's log; of all networks on this ledger, since all share its budget."""

    def __init__(self, database: Database, reader: Database, network: str) -> None:
        self._database = database
        self._reader = reader
        self._network = network

    def add(self, at_ns: int, kind: str, text: str) -> None:
        with self._database.transaction() as connection:
            add_event(connection, self._network, at_ns, kind, text)

    def all(self) -> list[Event]:
        """Oldest first."""
        return [Event(*row) for row in self._reader.rows("SELECT at_ns, network, kind, text FROM event ORDER BY id")]


def put_refusals(connection: sqlite3.Connection, network: str, refusals: Iterable[Refusal]) -> None:
    """Inside a transaction."""
    connection.executemany(
        "INSERT INTO refusal VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE "
        "SET count = CASE kind WHEN 'message' THEN count + excluded.count ELSE 1 END",
        [(network, one.opens_ns, one.kind, one.reason, one.count) for one in refusals],
    )


def put_memory(connection: sqlite3.Connection, network: str, heard: Mapping[str, Remembered]) -> None:
    """Inside a transaction."""
    connection.executemany(
        "INSERT INTO neighbour (network, name, slot, counter, proof, since) VALUES (?, ?, ?, ?, ?, ?) "
        "ON CONFLICT DO UPDATE SET slot = excluded.slot, counter = excluded.counter, proof = excluded.proof, "
        "since = excluded.since WHERE excluded.counter >= counter",
        [
            (network, name, slot, min(counter, LARGEST_COUNTER), proof, since)
            for name, (slot, counter, proof, since) in heard.items()
        ],
    )


def put_complete(connection: sqlite3.Connection, network: str, until_slot: int) -> None:
    """Inside a transaction."""
    connection.execute("INSERT OR REPLACE INTO complete VALUES (?, ?)", (network, until_slot))


def add_event(connection: sqlite3.Connection, network: str, at_ns: int, kind: str, text: str) -> None:
    """Inside a transaction."""
    connection.execute(
        "INSERT INTO event (network, at_ns, kind, text) VALUES (?, ?, ?, ?)", (network, at_ns, kind, text)
    )
