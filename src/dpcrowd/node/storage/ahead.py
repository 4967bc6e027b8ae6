"""Clocks that were set ahead: a window of privacy is a span of time that has really passed.

The ledger is keyed by UTC. If the clock of a running node is set ahead by J, what was paid a moment ago seems to be J
old, and a window would give it back too early; a clock that is set ahead again and again would refill it at will. So
every such jump is kept, and a window's start is sought in the time that has passed:

    start = end - span;  for each jump, the latest first:  if it ended after start, start -= J

Jumps back need nothing: no slot is opened twice, and what was paid seems younger than it is. But a jump back may undo
one ahead, in part or wholly; then only the rest of it counts. Who may say so: `live.steps`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["Fetch", "Jump", "elapsed_start", "put_ahead", "put_back", "set_ahead", "younger"]

Fetch = Callable[..., list[tuple[Any, ...]]]
"""fetch(sql, values) -> rows"""
Jump = tuple[int, int, int]
"""payments made before it, the time at which the clock was set, nanoseconds"""

_SAME_MOMENT = 5_000_000_000
_SAME_STEP = 500_000_000


def set_ahead(fetch: Fetch) -> list[Jump]:
    """All jumps that were kept and have not been undone, the latest first."""
    rows = fetch(
        "SELECT payments, at_ns, moved_ns - returned_ns FROM ahead WHERE returned_ns < moved_ns ORDER BY id DESC"
    )
    return [(row[0], row[1], row[2]) for row in rows]


def elapsed_start(jumps: Sequence[Jump], start_ns: int) -> int:
    """Where a window has to begin by the clocks of its day, if by the present clock it begins at `start_ns`."""
    for _, at_ns, moved_ns in jumps:
        if at_ns + moved_ns > start_ns:
            start_ns -= moved_ns
    return start_ns


def younger(jumps: Sequence[Jump], payment: int) -> int:
    """By how much a payment, given by its number, is younger than its date says."""
    return sum(moved_ns for before, _, moved_ns in jumps if payment <= before)


def put_ahead(connection: sqlite3.Connection, network: str, at_ns: int, moved_ns: int) -> tuple[int, bool]:
    """Inside a transaction: keep a jump, once; another network on this ledger may have seen the same one.

    Gives its row, and whether that is new.
    """
    known = connection.execute(
        "SELECT id FROM ahead WHERE network <> ? AND abs(at_ns - ?) < ? AND abs(moved_ns - ?) < ? "
        "ORDER BY id DESC LIMIT 1",
        (network, at_ns, _SAME_MOMENT, moved_ns, _SAME_STEP),
    ).fetchone()
    if known is not None:
        return int(known[0]), False
    added = connection.execute(
        "INSERT INTO ahead (network, payments, at_ns, moved_ns) SELECT ?, counter, ?, ? FROM account RETURNING id",
        (network, at_ns, moved_ns),
    ).fetchone()
    return int(added[0]), True


def put_back(connection: sqlite3.Connection, row: int, returned_ns: int) -> bool:
    """Inside a transaction: so much of a jump has been undone, as one network has seen; whether that is new."""
    changed = connection.execute(
        "UPDATE ahead SET returned_ns = min(?2, moved_ns) WHERE id = ?1 AND returned_ns < min(?2, moved_ns)",
        (row, returned_ns),
    )
    return changed.rowcount > 0
