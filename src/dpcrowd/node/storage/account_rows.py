"""The account in the ledger's file: rows are loaded into one, and what is new in another is appended.

Payments are only ever added, so an account that was loaded before is brought up to date by the rows behind it. Of old
payments only those are loaded that can still count against the slot that is asked for, and some more, so that a slot
shortly before it needs no other load.
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
"""fetch(sql, values) -> rows"""

_PAYMENTS = "SELECT counter, network, kind, slot, opens_ns, closes_ns, nano, regions, servers FROM ledger "
_GUARANTEES = (
    "SELECT network, nano, span_ns, since_ns, sensitivity, regions, servers, roaming, slot_ns, epoch_ns, horizon_slot "
    "FROM promise ORDER BY network"
)
_MORE_SLOTS = 100
_SECOND = 1_000_000_000
_MANY = 1_000


def fetcher(connection: sqlite3.Connection) -> Fetch:
    """To load inside a transaction."""
    return lambda sql, values=(): connection.execute(sql, values).fetchall()


def load(fetch: Fetch, network: str, opens_ns: int, before: Account | None = None) -> Account:
    """The account of a network, with all payments that count against a slot which opens at a time, or later.

    before  one that was loaded before, by whichever connection
    """
    horizons = tuple(starmap(Horizon, fetch("SELECT network, since_ns, nano FROM horizon ORDER BY network, since_ns")))
    jumps = starmap(Jump, fetch("SELECT id, network, payments, at_ns, moved_ns, returned_ns FROM ahead ORDER BY id"))
    account = Account(network, _load_guarantees(fetch, horizons), jumps=tuple(jumps), horizons=horizons)
    ((count, total),) = fetch("SELECT counter, total FROM account")
    if before is not None and before.count > count:
        before = None  # another file stands in its place
    seen, lost = (0, 0) if before is None else (before.count, before.lost)
    lost += sum(nano for (nano,) in fetch("SELECT nano FROM ledger WHERE counter > ? AND kind = 'lost'", (seen,)))
    needed = account.reach(opens_ns)
    if before is None or before.complete_after_ns > needed:
        before = None
    elif before.payments.closed_by(needed) > max(_MANY, len(before.payments) // 2):
        before = None  # most of it is over
    if before is None:
        own = account.guarantee_of(network)
        complete_after_ns = needed - _MORE_SLOTS * max(1 if own is None else own.slot_ns, _SECOND)
        payments = Payments(map(Payment._make, fetch(f"{_PAYMENTS} WHERE closes_ns > ?", (complete_after_ns,))))
    else:
        complete_after_ns, payments = before.complete_after_ns, before.payments
        for row in fetch(f"{_PAYMENTS} WHERE counter > ? AND closes_ns > ?", (before.count, complete_after_ns)):
            payments = payments.add(Payment(*row))
    return replace(account, payments=payments, count=count, total=total, lost=lost, complete_after_ns=complete_after_ns)


def _load_guarantees(fetch: Fetch, horizons: tuple[Horizon, ...]) -> tuple[NetworkGuarantee, ...]:
    paid: dict[str, tuple[Windows, ...]] = {}
    for network, slot_ns, offset_ns, span_ns in fetch("SELECT * FROM paid_windows"):
        paid[network] = (*paid.get(network, ()), Windows(span_ns, slot_ns, offset_ns))
    found = []
    for network, nano, span_ns, since_ns, product, regions, servers, roaming, *slots in fetch(_GUARANTEES):
        exact = regions is not None or product == 1
        bounds = UserBounds(regions or product, servers or product, exact)
        starts = [one.since_ns for one in horizons if one.network == network]
        guarantee = NetworkGuarantee(network, nano, span_ns, since_ns, bounds, bool(roaming), *slots)
        earlier = tuple(start for start in starts if start < since_ns)
        found.append(replace(guarantee, paid=paid.get(network, ()), earlier=earlier))
    return tuple(found)


def append(connection: sqlite3.Connection, before: Account, after: Account, reason: str = "") -> None:
    """Inside a transaction in which `before` was loaded: store what `after` has beyond it.

    reason  for a loss, the operator's words
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
    known = {guarantee.network: guarantee for guarantee in before.guarantees}
    for guarantee in after.guarantees:
        old = known.pop(guarantee.network, None)
        if old != guarantee:
            _put(connection, guarantee)
        for used in set(guarantee.paid) - set(old.paid if old else ()):
            connection.execute(
                "INSERT OR REPLACE INTO paid_windows (network, slot_ns, offset_ns, span_ns) VALUES (?, ?, ?, ?)",
                (guarantee.network, used.slot_ns, used.offset_ns, used.span_ns),
            )
    for network in known:
        connection.execute("DELETE FROM promise WHERE network = ?", (network,))
        connection.execute("DELETE FROM paid_windows WHERE network = ?", (network,))
    for horizon in set(after.horizons) - set(before.horizons):
        connection.execute("INSERT INTO horizon VALUES (?, ?, ?)", horizon)


def _put(connection: sqlite3.Connection, guarantee: NetworkGuarantee) -> None:
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
