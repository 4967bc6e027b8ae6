"""The account as rows of the ledger's file: `load` reads an account, `append` stores what is new in a later one.

Payments are only ever added, so an account that was loaded earlier is brought up to date by the rows after it. Of old
payments, `load` reads only those that can still count against the requested slot, and some more, so that a slot shortly
before it does not need another load.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import replace
from itertools import starmap
from typing import Any

from dpcrowd.privacy.account import Account, Horizon
from dpcrowd.privacy.clock_jumps import Jump
from dpcrowd.privacy.network_guarantee import NetworkGuarantee, UserBounds, Windows
from dpcrowd.privacy.payments import Payment, Payments

__all__ = ["Fetch", "append", "fetcher", "load"]

Fetch = Callable[..., list[tuple[Any, ...]]]
"""A function fetch(sql, values) that returns the rows of a query."""

_PAYMENTS = "SELECT counter, network, kind, slot, opens_ns, closes_ns, nano, regions, servers FROM ledger "
_GUARANTEES = (
    "SELECT network, nano, span_ns, since_ns, sensitivity, regions, servers, roaming, slot_ns, epoch_ns, horizon_slot "
    "FROM promise ORDER BY network"
)
_MORE_SLOTS = 100
_SECOND = 1_000_000_000
_MANY = 1_000


def fetcher(connection: sqlite3.Connection) -> Fetch:
    """Return a `Fetch` for loading inside a transaction."""
    return lambda sql, values=(): connection.execute(sql, values).fetchall()


def load(fetch: Fetch, network: str, opens_ns: int, before: Account | None = None) -> Account:
    """Load the account of a network, with all payments that count against slots opening at `opens_ns` or later.

    before  an account that was loaded earlier, by any connection
    """
    horizons = tuple(starmap(Horizon, fetch("SELECT network, since_ns, nano FROM horizon ORDER BY network, since_ns")))
    jumps = starmap(Jump, fetch("SELECT id, network, payments, at_ns, moved_ns, returned_ns FROM ahead ORDER BY id"))
    account = Account(network, _load_guarantees(fetch, horizons), jumps=tuple(jumps), horizons=horizons)
    ((count, total),) = fetch("SELECT counter, total FROM account")
    if before is not None and before.count > count:
        before = None  # the file was replaced by another one
    last, lost_nano = (0, 0) if before is None else (before.count, before.lost)
    lost_nano += sum(nano for (nano,) in fetch("SELECT nano FROM ledger WHERE counter > ? AND kind = 'lost'", (last,)))
    needed = account.reach(opens_ns)
    if before is None or before.complete_after_ns > needed:
        before = None
    elif before.payments.closed_by(needed) > max(_MANY, len(before.payments) // 2):
        before = None  # most of its payments no longer count
    if before is None:
        own = account.guarantee_of(network)
        complete_after_ns = needed - _MORE_SLOTS * max(1 if own is None else own.slot_ns, _SECOND)
        payments = Payments(map(Payment._make, fetch(f"{_PAYMENTS} WHERE closes_ns > ?", (complete_after_ns,))))
    else:
        complete_after_ns, payments = before.complete_after_ns, before.payments
        for row in fetch(f"{_PAYMENTS} WHERE counter > ? AND closes_ns > ?", (before.count, complete_after_ns)):
            payments = payments.add(Payment(*row))
    return replace(
        account, payments=payments, count=count, total=total, lost=lost_nano, complete_after_ns=complete_after_ns
    )


def _load_guarantees(fetch: Fetch, horizons: tuple[Horizon, ...]) -> tuple[NetworkGuarantee, ...]:
    windows: dict[str, tuple[Windows, ...]] = {}
    for network, slot_ns, offset_ns, span_ns in fetch("SELECT * FROM paid_windows"):
        windows[network] = (*windows.get(network, ()), Windows(span_ns, slot_ns, offset_ns))
    guarantees = []
    for network, nano, span_ns, since_ns, product, regions, servers, roaming, *slots in fetch(_GUARANTEES):
        exact = regions is not None or product == 1
        bounds = UserBounds(regions or product, servers or product, exact)
        starts = [one.since_ns for one in horizons if one.network == network]
        guarantee = NetworkGuarantee(network, nano, span_ns, since_ns, bounds, bool(roaming), *slots)
        earlier = tuple(start for start in starts if start < since_ns)
        guarantees.append(replace(guarantee, paid=windows.get(network, ()), earlier=earlier))
    return tuple(guarantees)


def append(connection: sqlite3.Connection, before: Account, after: Account, reason: str = "") -> None:
    """Store what `after` holds beyond `before`, inside the transaction in which `before` was loaded.

    reason  why a loss was booked, for the operator's log
    """
    _append_guarantees(connection, before, after)
    for one in after.jumps[len(before.jumps) :]:
        row = (one.number, one.network, one.payments, one.at_ns, one.moved_ns, one.returned_ns)
        connection.execute(
            "INSERT INTO ahead (id, network, payments, at_ns, moved_ns, returned_ns) VALUES (?, ?, ?, ?, ?, ?)", row
        )
    for old, new in zip(before.jumps, after.jumps, strict=False):
        if new.returned_ns > old.returned_ns:
            connection.execute("UPDATE ahead SET returned_ns = ? WHERE id = ?", (new.returned_ns, new.number))
    for payment in after.payments.newest(after.count - before.count):
        connection.execute(
            "INSERT INTO ledger (counter, network, kind, slot, opens_ns, closes_ns, nano, regions, servers, reason) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*payment, reason),
        )
    if after.count != before.count:
        connection.execute("UPDATE account SET counter = ?, total = ?", (after.count, after.total))


def _append_guarantees(connection: sqlite3.Connection, before: Account, after: Account) -> None:
    withdrawn = {guarantee.network: guarantee for guarantee in before.guarantees}
    for guarantee in after.guarantees:
        old = withdrawn.pop(guarantee.network, None)
        if old != guarantee:
            _put_guarantee(connection, guarantee)
        for windows in set(guarantee.paid) - set(old.paid if old else ()):
            connection.execute(
                "INSERT OR REPLACE INTO paid_windows (network, slot_ns, offset_ns, span_ns) VALUES (?, ?, ?, ?)",
                (guarantee.network, windows.slot_ns, windows.offset_ns, windows.span_ns),
            )
    for network in withdrawn:
        connection.execute("DELETE FROM promise WHERE network = ?", (network,))
        connection.execute("DELETE FROM paid_windows WHERE network = ?", (network,))
    for horizon in set(after.horizons) - set(before.horizons):
        connection.execute("INSERT INTO horizon VALUES (?, ?, ?)", horizon)


def _put_guarantee(connection: sqlite3.Connection, guarantee: NetworkGuarantee) -> None:
    bounds = guarantee.bounds
    connection.execute(
        "INSERT OR REPLACE INTO promise (network, nano, span_ns, since_ns, sensitivity, regions, servers, roaming, "
        "slot_ns, epoch_ns, horizon_slot) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            guarantee.network,
            guarantee.nano,
            guarantee.span_ns,
            guarantee.since_ns,
            bounds.sensitivity,
            bounds.regions if bounds.exact else None,
            bounds.servers if bounds.exact else None,
            guarantee.roaming,
            guarantee.slot_ns,
            guarantee.epoch_ns,
            guarantee.horizon_slot,
        ),
    )
