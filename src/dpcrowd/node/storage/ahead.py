"""Jumps of the clock in the ledger's file; what they mean is said in `privacy.clock_jumps`."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

from dpcrowd.privacy.clock_jumps import Jump

__all__ = ["Fetch", "put_ahead", "put_back", "set_ahead"]

Fetch = Callable[..., list[tuple[Any, ...]]]
"""fetch(sql, values) -> rows"""

_SAME_MOMENT = 5_000_000_000
_SAME_STEP = 500_000_000


def set_ahead(fetch: Fetch) -> list[Jump]:
    """All jumps that were kept and have not been undone, the latest first."""
    rows = fetch(
        "SELECT payments, at_ns, moved_ns - returned_ns FROM ahead WHERE returned_ns < moved_ns ORDER BY id DESC"
    )
    return [(row[0], row[1], row[2]) for row in rows]


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
