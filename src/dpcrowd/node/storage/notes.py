"""Smaller records that outlive a restart: refusals by reason, what neighbours last reported, what the operator did, and
which models there were.

Refused messages of neighbours are counted exactly. Of refused check-ins only whether it happened in a slot is stored:
an exact number would be a raw count of people. The table itself rejects any other number for them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from dpcrowd.node.storage.database import Database

__all__ = [
    "LARGEST_COUNTER",
    "EarlierModels",
    "Event",
    "Events",
    "Memory",
    "ModelRow",
    "Refusal",
    "Refusals",
    "Remembered",
    "add_event",
    "put_complete",
    "put_memory",
    "put_refusals",
]

Remembered = tuple[int, int, bytes, int]
"""(slot in which a neighbour first reported a counter, the counter, its proof, slot since which it is remembered)"""
ModelRow = tuple[str, str, int, bool]
"""(digest of an earlier model, its source, the first slot after those with it, whether estimates go on from it)"""
LARGEST_COUNTER = 1 << 62
"""A counter that no ledger reaches; a neighbour that reports a larger one must not break a commit."""


@dataclass(frozen=True)
class Refusal:
    """`count` messages, or at least one check-in, were refused for a reason in the slot that opens at `opens_ns`."""

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
    """The refusals of one network."""

    def __init__(self, database: Database, reader: Database, network: str) -> None:
        self._database = database
        self._reader = reader
        self._network = network

    def count(self, opens_ns: int, reason: str, n: int = 1) -> None:
        """Count refused messages exactly, in a commit of their own; a busy node uses `Storage.commit_release`."""
        self.add([Refusal(opens_ns, "message", reason, n)])

    def happened(self, opens_ns: int, reason: str) -> None:
        """Record that check-ins were refused, but not how many."""
        self.add([Refusal(opens_ns, "check-in", reason)])

    def add(self, refusals: Iterable[Refusal]) -> None:
        """Record several refusals in one commit."""
        with self._database.transaction() as connection:
            put_refusals(connection, self._network, refusals)

    def since(self, at_ns: int) -> list[Refusal]:
        """Return the refusals of slots that opened at or after a time, oldest first."""
        rows = self._reader.rows(
            "SELECT opens_ns, kind, reason, count FROM refusal WHERE network = ? AND opens_ns >= ? "
            "ORDER BY opens_ns, kind, reason",
            (self._network, at_ns),
        )
        return [Refusal(*row) for row in rows]


class Memory:
    """The highest ledger counter that each neighbour reported, which is echoed to it and so exposes an old copy.

    It also holds the last slot up to which the own ledger was known to be complete: to vouch for the ledger, neighbours
    have to remember at least that far back.
    """

    def __init__(self, database: Database, reader: Database, network: str) -> None:
        self._database = database
        self._reader = reader
        self._network = network

    def remember(self, reports: Mapping[str, Remembered]) -> None:
        """Store what neighbours reported. A counter below the remembered one changes nothing: it has to be exposed."""
        with self._database.transaction() as connection:
            put_memory(connection, self._network, reports)

    def remembered(self) -> dict[str, Remembered]:
        """Return what is remembered of each neighbour; records of early versions have an empty proof."""
        rows = self._reader.rows(
            "SELECT name, slot, counter, proof, coalesce(since, slot) FROM neighbour WHERE network = ?",
            (self._network,),
        )
        return {name: (slot, counter, proof, since) for name, slot, counter, proof, since in rows}

    def heard_until(self) -> int:
        """Return the last slot in which a neighbour has reported a new counter; -1: none ever has reported one."""
        return max((slot for slot, _, _, _ in self.remembered().values()), default=-1)

    def complete_until(self) -> int | None:
        """Return the last slot up to which the own ledger was known to be complete; None in a folder of version 0.1."""
        row = self._reader.row("SELECT until_slot FROM complete WHERE network = ?", (self._network,))
        return None if row is None else int(row[0])


class EarlierModels:
    """The models that a network had before, which its promise goes on to name: rows of digest, source, the first slot
    after those with it, and whether estimates go on from it.
    """

    def __init__(self, database: Database, reader: Database, network: str) -> None:
        self._database = database
        self._reader = reader
        self._network = network

    def all(self) -> list[ModelRow]:
        """Return all of them, by digest."""
        rows = self._reader.rows(
            "SELECT digest, source, until_slot, goes_on FROM earlier_model WHERE network = ? ORDER BY digest",
            (self._network,),
        )
        return [(name, source, until, bool(goes_on)) for name, source, until, goes_on in rows]

    def put(self, models: Iterable[ModelRow]) -> None:
        """Store these in the place of others with the same digest; none is ever deleted."""
        with self._database.transaction() as connection:
            connection.executemany(
                "INSERT OR REPLACE INTO earlier_model VALUES (?, ?, ?, ?, ?)",
                [(self._network, *model) for model in models],
            )


class Events:
    """The operator's log of all networks on this ledger, since they share its budget."""

    def __init__(self, database: Database, reader: Database, network: str) -> None:
        self._database = database
        self._reader = reader
        self._network = network

    def add(self, at_ns: int, kind: str, text: str) -> None:
        """Append an entry to the log."""
        with self._database.transaction() as connection:
            add_event(connection, self._network, at_ns, kind, text)

    def all(self) -> list[Event]:
        """Return all entries, oldest first."""
        return [Event(*row) for row in self._reader.rows("SELECT at_ns, network, kind, text FROM event ORDER BY id")]


def put_refusals(connection: sqlite3.Connection, network: str, refusals: Iterable[Refusal]) -> None:
    """Store refusals, inside a transaction."""
    connection.executemany(
        "INSERT INTO refusal VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE "
        "SET count = CASE kind WHEN 'message' THEN count + excluded.count ELSE 1 END",
        [(network, one.opens_ns, one.kind, one.reason, one.count) for one in refusals],
    )


def put_memory(connection: sqlite3.Connection, network: str, reports: Mapping[str, Remembered]) -> None:
    """Store what neighbours reported of their ledgers, inside a transaction."""
    connection.executemany(
        "INSERT INTO neighbour (network, name, slot, counter, proof, since) VALUES (?, ?, ?, ?, ?, ?) "
        "ON CONFLICT DO UPDATE SET slot = excluded.slot, counter = excluded.counter, proof = excluded.proof, "
        "since = excluded.since WHERE excluded.counter >= counter",
        [
            (network, name, slot, min(counter, LARGEST_COUNTER), proof, since)
            for name, (slot, counter, proof, since) in reports.items()
        ],
    )


def put_complete(connection: sqlite3.Connection, network: str, until_slot: int) -> None:
    """Store up to which slot the own ledger is complete, inside a transaction."""
    connection.execute("INSERT OR REPLACE INTO complete VALUES (?, ?)", (network, until_slot))


def add_event(connection: sqlite3.Connection, network: str, at_ns: int, kind: str, text: str) -> None:
    """Append an entry to the operator's log, inside a transaction."""
    connection.execute(
        "INSERT INTO event (network, at_ns, kind, text) VALUES (?, ?, ?, ?)", (network, at_ns, kind, text)
    )
